"""Teach a trained learner new families of tasks (`arml grow`), and keep those that it knows."""
