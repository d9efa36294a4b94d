"""A learner that grows: families of tasks arrive one after another, and it keeps those it knows.

To be read in this order: `replay` (stages of a stream, kept tasks), `vertices` (adding a vertex
to a learner), `growing` (the algorithm), `training` (its trainings, which can be resumed), `stream`
(`arml train --stream`) and `teach` (`arml grow`).
"""
