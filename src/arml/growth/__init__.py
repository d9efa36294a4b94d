"""A learner that grows: families of tasks arrive one after another, and it keeps those it knows.

To be read in this order: `replay` (tasks of known families), `vertices` (adding a vertex to a
learner), `growing` (the algorithm), `folder` (its run folder and trainings that can be resumed),
`stream` (`arml train --stream`) and `teach` (`arml grow`).
"""
