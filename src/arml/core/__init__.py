"""The foundations: tasks as values, losses, inner steps, and the type of a learner."""
