"""What everything stands on: tasks as values, losses, inner steps, and what a learner is."""
