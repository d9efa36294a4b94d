"""A trained learner is taught new families of tasks (`arml grow`), and keeps those it knows."""
