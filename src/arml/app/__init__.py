"""A page on this machine to try a learner: pictures of one's own, and functions of two inputs.

`server` answers the page's requests, `answers` holds what they ask for, `uploads` checks what they
bring, `page/` is the page itself: it asks nothing of any other machine.
"""
