"""An experiment is pure data; `run` trains it in a folder, or continues where it stopped.
A step depends only on the seed and on its own number, so a resumed run gives the same weights as
one that was never stopped, bit for bit.
"""
