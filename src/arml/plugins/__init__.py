"""Code of users: plug-in files, the package or file that a class is of, and what a value is."""
