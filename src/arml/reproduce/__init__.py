"""All tables of the ARML paper by one command, which can be stopped and resumed.

`tables` defines the rows and `scales` their budgets. `unit` carries out one row with one seed, and
`crew` distributes the units over processes. A unit is plain JSON, so another scheduler needs only
`unit.carry_out`.
"""
