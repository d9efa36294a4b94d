"""The kinds of inputs by name, and what networks and methods must know of each.

A kind is an object. This half describes one input for the mathematics; `arml.Inputs`, its
subclass, adds how people's own inputs are read, learned and shown. Nothing here loads JAX.
"""

from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

from arml.core.registry import Registry
from arml.plugins.sources import Source, source_of


class Form:
    """The kind of one input. The defaults are those of a vector of plain numbers."""

    name: str = ""
    """Its name in the registry."""
    axes: ClassVar[int] = 1
    """The axes of one input."""
    spatial: ClassVar[bool] = False
    """Whether the axes are height, width and channels, so that convolutions suit."""
    plain: ClassVar[bool] = True
    """Whether simple models can read the numbers as they are."""
    like: ClassVar[str] = "vectors"
    """The kind of the package whose networks, methods and usual options suit it."""
    one: ClassVar[str] = "input"
    many: ClassVar[str] = "inputs"
    """The names of one and of several in messages."""
    can: ClassVar[frozenset[str]] = frozenset({"add", "novelty", "learning_curve"})
    """The capabilities of its predictors: see `arml.Predictor.can`."""
    near: ClassVar[float] = 0.0
    """Two inputs are copies if their distance is below this share of the median distance."""

    @property
    def options_class(self) -> type["Form"]:
        """The class that was registered."""
        return type(self)

    @property
    def source(self) -> Source | None:
        """Where it comes from; None for the package's own."""
        return source_of(type(self))


OWN_INPUTS = {
    "vectors": "arml.tables.inputs:Vectors",
    "functions": "arml.tables.inputs:Functions",
    "tables": "arml.tables.inputs:Tables",
    "pictures": "arml.photographs.inputs:Pictures",
    "texts": "arml.texts.inputs:Texts",
    "photographs": "arml.photographs.inputs:Photographs",
}
"""Where the package's kinds are, written like the entry points of other packages."""


def _named(name: str, options_class: type[Form]) -> Form:
    """The kind of that name, from its class. **Raises** `ValueError` for another class."""
    if not (isinstance(options_class, type) and issubclass(options_class, Form)):
        raise ValueError(f"{name!r}: expected a subclass of arml.Inputs, got {options_class!r}")
    kind = options_class()
    kind.name = name
    return kind


class _Kinds(Registry[Form]):
    """The package's own are loaded one by one, because a `Problem` needs its kind before plug-ins
    can be loaded."""

    def known(self, name: str) -> Form:
        return _own(name) if name in OWN_INPUTS else super().known(name)

    def _entries(self) -> dict[str, Form]:
        return {**{name: _own(name) for name in OWN_INPUTS}, **self.others}

    def add(self, entry: Form) -> None:
        if entry.name in OWN_INPUTS:
            raise ValueError(f"arml has inputs {entry.name!r} already: choose a new name")
        super().add(entry)


@cache
def _own(name: str) -> Form:
    return _named(name, EntryPoint(name, OWN_INPUTS[name], "arml.inputs").load())


INPUTS = _Kinds("inputs", _named)
"""All kinds of inputs."""


def write_folder(learner: object, folder: Path | str) -> None:
    """Write a trained learner as a folder to share: see `arml.FewShotLearner.save`."""
    point = EntryPoint("learner", "arml.predict.learner:FewShotLearner", "arml.inputs")
    point.load().of(learner).save(folder)
