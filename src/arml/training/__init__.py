"""The outer loop, and all that maps the mathematics of one task over many."""
