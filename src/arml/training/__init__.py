"""The outer loop, and the functions that map the mathematics of one task over many."""
