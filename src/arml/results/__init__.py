"""Run folders as files: nothing in this package imports JAX."""
