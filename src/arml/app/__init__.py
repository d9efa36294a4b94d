"""A page on this machine to try a learner: on pictures, functions of two inputs, and tables.

`server` receives the page's requests, `uploads` checks their content, and `answers`, `functions`
and `tables` compute the answers of one tab each. `page/` is the page itself: it asks nothing of any
other machine. `standalone` writes a page of another kind, which needs no server.
"""
