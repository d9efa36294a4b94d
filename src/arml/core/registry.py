"""Registries of the parts that an experiment may name, of this package and of plug-ins.

An entry brings everything that the library needs to know about one method, one kind of tasks or one
network. Entries of others come from installed packages (entry points) and from plug-in files, which
call `arml.register`. A registry reads both when it is used. Nothing here needs JAX.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, make_dataclass, replace
from difflib import get_close_matches
from importlib import metadata
from inspect import signature
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from arml.core.checks import Options
from arml.plugins.loading import load_plugins, one_line
from arml.plugins.sources import Source, source_of

T = TypeVar("T")


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


BUILD_CONTEXT = ("key", "progress", "split")
"""Parameters that the caller of `build` passes: they are not options."""


def options_of(build: Callable[..., object]) -> type:
    """A class of options whose fields are the parameters of a function that have defaults.

    `options.build(...)` calls the function with them. It leaves out arguments for which the
    function has no parameter, so that a class of tasks may replace the function.

    **Raises** `ValueError` in one line for a keyword without a default.
    """
    parameters = signature(build, eval_str=True).parameters
    options = {name: p for name, p in parameters.items() if name not in BUILD_CONTEXT}
    required = sum(p.default is p.empty and p.kind < p.KEYWORD_ONLY for p in parameters.values())
    for name, p in options.items():
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty:
            raise ValueError(f"the option {name} of {build.__name__} needs a default: give it one")
    options = {name: p for name, p in options.items() if p.default is not p.empty}

    def built(self: object, *parts: object, **context: object) -> object:
        accepted = {name: value for name, value in context.items() if name in parameters}
        own = {name: getattr(self, name) for name in options}
        return build(*parts[:required], **accepted, **own)

    held = [
        (name, type(p.default) if p.annotation is p.empty else p.annotation, p.default)
        for name, p in options.items()
    ]
    built.__wrapped__ = build  # type: ignore[attr-defined]
    namespace = {"build": built, "__doc__": build.__doc__}
    name = f"{build.__name__.title().replace('_', '')}Options"
    cls = make_dataclass(name, held, bases=(Options,), namespace=namespace, frozen=True)
    cls.__module__ = build.__module__  # its file is the plug-in
    return cls


@runtime_checkable
class Named(Protocol):
    """The fields of every entry: see `Entry`."""

    @property
    def name(self) -> str: ...
    @property
    def options_class(self) -> type: ...
    @property
    def source(self) -> "Source | None": ...


E = TypeVar("E", bound=Named)


class Registry(Mapping[str, E], Generic[E]):
    """Entries by name, in the order of their registration.

    **Arguments**

    - `part`: `method`, `tasks` or `network`; its entry points are of the group `arml.methods`,
      `arml.tasks` or `arml.networks`.
    - `entry`: makes an entry from the keywords `name`, `options_class` and its other fields.
    """

    def __init__(self, part: str, entry: Callable[..., E], own: Iterable[E] = ()) -> None:
        self.part, self.entry = part, entry
        self._own = {known.name: known for known in own}
        self._others: dict[str, E] = {}
        self._points = points(part)

    def _entries(self) -> dict[str, E]:
        return {**self._own, **self.others}

    @property
    def others(self) -> dict[str, E]:
        """The entries that are not the package's own. **Raises** `ValueError` in one line for an
        entry point or a plug-in that cannot be loaded."""
        while self._points:
            point = self._points.pop(0)  # first: the loaded module may also use registries
            try:
                found = point.load()
            except (Exception, SystemExit) as error:
                package = point.dist.name if point.dist else "a package"
                raise ValueError(
                    f"could not load {point.name!r} of {package}: {one_line(error)}; update or "
                    "remove it"
                ) from error
            self.add(found if isinstance(found, Entry) else self.make(point.name, found))
        load_plugins()
        return self._others

    def __getitem__(self, name: str) -> E:
        return self._entries()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def make(self, name: str, options: Callable[..., object], **about: object) -> E:
        """The entry of that name for a class of options, a function or a class of tasks."""
        if callable(options) and (not isinstance(options, type) or hasattr(options, "sample")):
            options = options_of(options)
        return self.entry(name=name, options_class=options, **about)

    def add(self, entry: Any) -> None:
        """Register an entry. One of the same name is replaced, unless it is the package's own.

        **Raises** `ValueError` in one line.
        """
        if entry.name in self._own:
            raise ValueError(f"arml has a {self.part} {entry.name!r} already: choose a new name")
        self._others[entry.name] = entry

    def known(self, name: str) -> E:
        """The entry of that name.

        **Raises** `ValueError` with the nearest names if there is none.
        """
        return known(self.part, name, self._entries())

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
            f"arml.register({self.part!r}, NAME, {name}) first, and use NAME"
        )


def with_options(options: Any, changes: Mapping[str, object], whose: str) -> Any:
    """The options with these changes. **Raises** `ValueError` for an unknown option."""
    known = [field.name for field in fields(options)]
    if odd := sorted({*changes} - {*known}):
        raise ValueError(f"{whose} has no option {odd[0]!r}{nearest(odd[0], known)}")
    return replace(options, **changes) if changes else options


def points(part: str) -> list[metadata.EntryPoint]:
    """The entries of a registry that other packages bring, before they are loaded."""
    return [*metadata.entry_points(group=f"arml.{part.rstrip('s')}s")]


def nearest(name: str, known: Iterable[str], n: int = 3) -> str:
    """The end of a message about an unknown name: the known names that are most like it."""
    names = list(known)
    close = get_close_matches(name, names, n, 0.5)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    few = len(names) < 15
    return f": expected {' or '.join(names)}" if few else ": `arml list` names all of them"


def known(what: str, name: str, entries: Mapping[str, T], most: int = 3) -> T:
    """The entry of that name. **Raises** `ValueError` with the nearest ones for an unknown one."""
    if name not in entries:
        raise ValueError(f"unknown {what} {name!r}{nearest(name, entries, most)}")
    return entries[name]
