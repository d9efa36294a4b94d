"""Published data sets, one module for each: how its pictures are named and annotated."""
