"""A page on this machine to try a learner on pictures and tables, and a page that needs no server
(`standalone`)."""
