"""A page on this machine to try a learner on one's own pictures and tables.

`server` receives the page's requests; `picture_tab` and `table_tab` compute the answers of one tab
each, by the same functions as `arml adapt`. `page/` is the page itself: it asks nothing of any
other machine. `standalone` writes a page of another kind, which needs no server.
"""
