"""Sweeps over an experiment's options."""
