"""The base of a learner and a predictor."""

from arml.core.episodes import Problem
from arml.experiment.loaded import Portable


class Holder:
    """Holds a meta-trained learner, and describes it."""

    portable: Portable

    @property
    def problem(self) -> Problem:
        """The kind of tasks that the learner was built for."""
        return self.portable.problem

    def _seen(self) -> str:
        """The examples that it has learned from."""
        return ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._seen()}{self.portable.about})"
