"""Reading tables: the cells of a file, and columns as numbers."""
