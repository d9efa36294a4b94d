"""Tables: the cells of a file, columns as numbers, and the predictor of rows."""
