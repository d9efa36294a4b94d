"""A learner that grows: families of tasks arrive one after another, and it keeps those it knows.

To be read in this order: `replay` (tasks of known families), `folder` (the run folder of a learner
that grows), `stream` (`arml train --stream`) and `teach` (`arml grow`).
"""
