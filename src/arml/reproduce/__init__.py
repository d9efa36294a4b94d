"""The ARML paper as one command: every table as data, carried out by worker processes, resumably.

`tables` says what the rows are, `scales` how much of each is done, `unit` carries one row and seed
out, `crew` spreads the units over processes. A unit is plain JSON, so that another way to spread
them needs nothing of this but `unit.carry_out`.
"""
