"""Code of users: plug-in files, the package or file of a class, and the identity of a value."""
