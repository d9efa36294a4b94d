"""Registries of the parts that an experiment may name: this package's and those of others.

An entry brings everything that the library needs to know about one method, one kind of tasks or one
network. Entries of others come from installed packages (entry points) and from plug-in files; a
registry reads both at its first use.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, make_dataclass
from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from typing import Any, Generic, TypeVar

from arml.core.checks import Options
from arml.core.episodes import TaskDistribution
from arml.core.plugins import Source, entry_points, load_plugins, source_of


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of a registry."""

    name: str
    """Its name in recipes and commands."""
    options_class: type
    """Its options: a frozen dataclass with `check` and `build`, whose fields have defaults."""
    about: str = ""
    """One sentence for lists; the first one of the options' docstring if empty."""
    kind: str = ""
    """The name of its options in files; `name` if empty."""

    def __post_init__(self) -> None:
        cls = self.options_class
        if not (isinstance(cls, type) and is_dataclass(cls)):
            raise ValueError(f"{self.name!r}: expected options as a dataclass, got {cls!r}")
        for method in ("check", "build"):
            if not callable(getattr(cls, method, None)):
                raise ValueError(
                    f"{self.name!r}: {cls.__name__} needs the method {method}: see arml.Options"
                )
        bare = [f.name for f in fields(cls) if f.default is f.default_factory is MISSING]
        if bare:
            raise ValueError(
                f"{self.name!r}: the option {bare[0]} of {cls.__name__} needs a default"
            )
        text = " ".join((self.about or cls.__doc__ or "").split())
        object.__setattr__(self, "about", f"{text.partition('. ')[0].rstrip('.')}.")
        object.__setattr__(self, "kind", self.kind or self.name)

    @property
    def source(self) -> Source | None:
        """Where it comes from; None for the package's own."""
        return source_of(self.options_class)


def options_of(build: Callable[..., object]) -> type:
    """A class of options whose fields are the parameters of a function that have defaults.

    `options.build(...)` calls the function with them. It leaves out arguments for which the
    function has no parameter, so that a class of tasks may be given as the function.

    **Raises** `ValueError` in one line for a keyword without a default.
    """
    known = signature(build, eval_str=True).parameters
    for name, p in known.items():
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty and name not in GIVEN:
            raise ValueError(f"the option {name} of {build.__name__} needs a default: give it one")
    given = [p for p in known.values() if p.default is p.empty and p.kind < p.KEYWORD_ONLY]
    own = {name: p for name, p in known.items() if p.default is not p.empty and name not in GIVEN}

    def made(options: object, *parts: object, **more: object) -> object:
        wanted = {name: value for name, value in more.items() if name in known}
        return build(
            *parts[: len(given)], **wanted, **{name: getattr(options, name) for name in own}
        )

    held = [
        (name, type(p.default) if p.annotation is p.empty else p.annotation, p.default)
        for name, p in own.items()
    ]
    about = {"build": made, "__doc__": build.__doc__}
    name = f"{build.__name__.title().replace('_', '')}Options"
    cls = make_dataclass(name, held, bases=(Options,), namespace=about, frozen=True)
    cls.__module__ = build.__module__  # its file is the plug-in
    return cls


GIVEN = ("key", "progress", "split")
"""Parameters that the caller of `build` gives: they are not options."""
E = TypeVar("E", bound=Entry)


class Registry(Mapping[str, E], Generic[E]):
    """Entries by name, in the order of their registration.

    **Arguments**

    - `part`: `method`, `tasks` or `network`; its entry points are of the group `arml.methods`,
      `arml.tasks` or `arml.networks`.
    - `entry`: makes an entry from the keywords `name`, `options_class` and others of its own.
    - `rooms`: modules of the package that bring entries in a tuple `METHODS` or `TASKS`. They are
      imported at the first use, as plug-ins are, because they stand on higher floors.
    """

    def __init__(
        self, part: str, entry: Callable[..., E], own: Iterable[E] = (), rooms: Sequence[str] = ()
    ) -> None:
        self.part, self.entry, self._rooms = part, entry, rooms
        self._own = {known.name: known for known in own}
        self._others: dict[str, E] = {}
        self._read = False

    def _entries(self) -> dict[str, E]:
        if not self._read:
            self._read = True  # first, because the loaded modules ask registries, too
            for name, found in entry_points(f"arml.{self.part.rstrip('s')}s"):
                self.add(found if isinstance(found, Entry) else self.make(name, found))
        load_plugins()
        return {**self.built_in(), **self._others}

    def built_in(self) -> dict[str, E]:
        """The package's own entries."""
        rooms, self._rooms = self._rooms, ()
        for room in rooms:
            entries = getattr(import_module(room), f"{self.part.rstrip('s')}s".upper())
            self._own |= {known.name: known for known in entries}
        return self._own

    def __getitem__(self, name: str) -> E:
        return self._entries()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def make(self, name: str, options: Callable[..., object], **about: object) -> E:
        """The entry of that name for a class of options, a function or a class of tasks."""
        builds = not isinstance(options, type) or issubclass(options, TaskDistribution)
        if callable(options) and builds:
            options = options_of(options)
        return self.entry(name=name, options_class=options, **about)

    def add(self, entry: Any) -> None:
        """Register an entry. One of the same name is replaced, unless it is the package's own.

        **Raises** `ValueError` in one line.
        """
        if entry.name in self.built_in():
            raise ValueError(f"arml has a {self.part} {entry.name!r} of its own: choose a new name")
        taken = next((e for e in self._own.values() if e.kind == entry.kind), None)
        if taken is not None and taken.options_class is not entry.options_class:
            raise ValueError(f"arml has options {entry.kind!r} of its own: choose a new kind")
        self._others[entry.name] = entry

    def remove(self, name: str) -> None:
        """Forget an entry that `add` registered."""
        del self._others[name]

    def known(self, name: str) -> E:
        """The entry of that name.

        **Raises** `ValueError` with the nearest names if there is none.
        """
        found = self._entries()
        if name not in found:
            raise ValueError(f"unknown {self.part} {name!r}{nearest(name, found)}")
        return found[name]

    def of(self, options: object) -> E:
        """The entry whose options these are.

        **Raises** `ValueError` for options that are not registered.
        """
        for entry in self._entries().values():
            if entry.options_class is type(options):
                return entry
        name = type(options).__name__
        raise ValueError(
            f"expected options of a registered {self.part}, got {name}: call "
            f"arml.register({self.part!r}, NAME, {name}) first"
        )

    def class_of(self, kind: str) -> type | None:
        """The options that files call `kind`; None for an unknown one."""
        return next((e.options_class for e in self._entries().values() if e.kind == kind), None)

    def kinds(self) -> tuple[str, ...]:
        """The names that options may have in files."""
        return tuple(dict.fromkeys(entry.kind for entry in self._entries().values()))


def nearest(name: str, known: Iterable[str], n: int = 3) -> str:
    """The end of a message about an unknown name: the known names that are most like it."""
    names = list(known)
    close = get_close_matches(name, names, n, 0.5)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    few = len(names) < 9
    return f": expected {' or '.join(names)}" if few else ": `arml list` names all of them"
