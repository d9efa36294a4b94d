"""A learner that grows: task families that arrive one after another, and what was known is kept."""
