"""Photographs and small pictures: reading them, their vectors, and their learner."""
