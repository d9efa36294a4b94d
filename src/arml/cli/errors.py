"""Errors of the command line, in a module that is imported quickly."""


class UsageError(ValueError):
    """A command line that cannot be understood."""
