"""The API reference: one page with every public name of the package, made from the docstrings.

`make_site.py` puts it into the site. A name's entry has its signature with the shapes of its
arrays, its docstring, and its fields, properties and methods.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import make_pages

import arml

PARTS = {
    "core": "Tasks and learners",
    "tasks": "Training, validation and test tasks",
    "algorithms": "Methods",
    "training": "Training and scoring in memory",
    "results": "Scores",
    "report": "Comparisons over training runs",
    "experiment": "Experiments and run folders",
    "predict": "Predictions from a few examples",
}
"""The reference's sections, by the room of a name's module."""
VALUE_EXAMPLES = {
    "ALGORITHMS": 'arml.ALGORITHMS["maml"].about',
    "RECIPES": 'arml.RECIPES["regression2d/arml"].steps',
    "Loss": "loss: arml.Loss = lambda outputs, y: jnp.mean((outputs - y) ** 2)",
}
"""An example for each public name that is neither a class nor a function."""
STUB = Path(arml.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
ROOMS = {name: room for room, name in re.findall(r"^from \.(\w+)\S* import (\w+)", STUB, re.M)}


def page() -> str:
    """The reference, in Markdown."""
    lines = ["# API reference", "", "Every public name of `arml`. Shapes stand in the annotations."]
    names = sorted({*arml.__all__} - {"__version__", "nn"})
    for room, title in PARTS.items():
        here = [name for name in names if home(name) == room]
        values = {f"arml.{name}": getattr(arml, name) for name in here}
        lines += ["", f"## {title}"] + [line for one in values.items() for line in entry(*one)]
    lines += ["", "## Names of modules", "", "Import them from the module, not from `arml`."]
    for name, module in arml.MOVED_NAMES.items():
        lines += entry(f"{module}.{name}", getattr(import_module(module), name))
    return "\n".join(lines) + "\n"


def home(name: str) -> str:
    """The room in which a public name is defined."""
    return ROOMS[name]


def entry(name: str, value: Any) -> Iterator[str]:
    """The lines of one public name."""
    yield from ("", f"### `{name}`", "")
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        yield f"A mapping of {len(value)} names." if isinstance(value, Mapping) else repr(value)
        yield from ("", f"    {VALUE_EXAMPLES[name.removeprefix('arml.')]}")
        return
    yield from signature(name, value)
    yield from described(value)
    if inspect.isclass(value):
        yield from members(value)


def members(cls: type) -> Iterator[str]:
    """The fields, properties and methods of a class, with their docstrings."""
    known = make_pages.docstrings(cls).items()
    if known:
        yield from ("", "| field | meaning |", "|---|---|")
        yield from (f"| `{name}` | {text.replace('|', chr(92) + '|')} |" for name, text in known)
    for name, value in own(cls):
        if isinstance(value, property):
            yield from ("", f"**`.{name}`** (property)", "")
            yield from described(value)
        else:
            yield from ("", f"**`.{name}()`**", "", *signature(name, inspect.unwrap(value)))
            yield from described(value)


def own(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that the package gives a class, in order of definition."""
    seen = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("arml"):
            continue
        for name, value in vars(base).items():
            value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            value = getattr(value, "method", value)  # Equinox wraps the methods of its modules
            public = not name.startswith("_") and name not in seen
            if public and (isinstance(value, property) or inspect.isfunction(value)):
                seen.add(name)
                yield name, value


def described(value: Any) -> Iterator[str]:
    """The docstring; headings in it would become the page's own."""
    text = inspect.getdoc(value) or ""
    yield from ("", *re.sub(r"^#+ ", "", text, flags=re.MULTILINE).splitlines())


def signature(name: str, value: Callable[..., Any]) -> Iterator[str]:
    """The signature as code, a line for each argument where one line is too short."""
    try:
        found = inspect.signature(value)
    except ValueError:
        return
    parameters = [p for p in found.parameters.values() if p.name != "self"]
    parts = [plain(str(parameter)) for parameter in parameters]
    star = [i for i, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY]
    if star:
        parts.insert(star[0], "*")
    result = found.return_annotation
    arrow = "" if result is found.empty else f" -> {plain(inspect.formatannotation(result))}"
    line = f"{name}({', '.join(parts)}){arrow}"
    if len(line) > 88:
        line = "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){arrow}"])
    yield from ("```python", *line.splitlines(), "```")


def plain(annotation: str) -> str:
    """An annotation without the modules of its names."""
    key = r"Union\[Key\[[^\]]*\], UInt32\[[^\]]*\], UInt32\[[^\]]*\]\]"
    text = re.sub(r"<function .*?>", "...", re.sub(key, "PRNGKeyArray", annotation))
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z_]\w)|\bnumpy\.(?=ndarray)|~", "", text)
