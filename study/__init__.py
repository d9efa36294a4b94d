"""The study of the ARML paper: its tables and claims, made through the public interface of `arml`.

`plan` says which experiments make the tables, `unit` carries one of them out, `data` keeps the
results in few files, `claims` judges the paper's claims by them, and `pages` writes `tables.md`.
`python -m study --help` (or `make study`) runs it. Nothing in the package imports this folder.
"""
