"""Write docs/methods.md, the list of all methods; and make a page of each method for the site, from
its docstring and its options.

python docs/make_pages.py [--check]

`--check` writes nothing, and fails if the list is not what it would write.
"""

import ast
import dataclasses
import inspect
import itertools
import sys
from pathlib import Path
from typing import Any

from arml.algorithms import ALGORITHMS
from arml.experiment.options import IMAGES, REGRESSION
from arml.experiment.recipes import RECIPES

LIST = Path(__file__).parent / "methods.md"
DESCRIBED_IN = {
    "imaml": "arml.algorithms.imaml",
    "maml++": "arml.algorithms.maml_plus_plus",
}
"""The module whose docstring describes a method, where another one has its options."""


def options_of(name: str) -> Any:
    """The options of an algorithm, for the first kind of problem that it can learn."""
    known = ALGORITHMS[name]
    return known.options(REGRESSION if "regression" in known.kinds else IMAGES)


def docstrings(cls: type) -> dict[str, str]:
    """The line under each field of a class and of its bases in the package."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("arml"):
            continue
        body = ast.parse(inspect.getsource(base)).body[0].body  # type: ignore[attr-defined]
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                found[field.target.id] = " ".join(text.value.value.split())  # type: ignore
    return found


def page(module: str, names: list[str]) -> str:
    """The page of the methods that one module defines."""
    cls = type(options_of(names[0]))
    doc = inspect.cleandoc(sys.modules[module].__doc__ or "")
    title, _, _ = doc.partition(":")
    lines = [f"# {title}", "", doc, "", "## By name", ""]
    lines += ["| algorithm | description | paper | recipes |", "|---|---|---|---|"]
    for name in names:
        known = ALGORITHMS[name]
        recipes = ", ".join(f"`{r}`" for r in RECIPES if r.partition("/")[2] == name)
        lines.append(f"| `{name}` | {known.about} | {known.paper} | {recipes} |")
    lines += ["", "## Options", "", "| option | default | meaning |", "|---|---|---|"]
    meaning = docstrings(cls)
    for field in dataclasses.fields(cls):
        if field.name not in meaning:
            sys.exit(
                f"expected a docstring under {cls.__name__}.{field.name}, found none: write one, "
                "because the method's page shows it"
            )
        flag = field.name.replace("_", "-")
        lines.append(f"| `--algorithm.{flag}` | `{field.default}` | {meaning[field.name]} |")
    lines += ["", f"Source: `src/{module.replace('.', '/')}.py`, from which this page is made."]
    return "\n".join(lines) + "\n"


def of_modules() -> dict[str, list[str]]:
    """The names of the package's methods by the module that defines their options."""
    found: dict[str, list[str]] = {}
    for name in (name for name, method in ALGORITHMS.items() if method.source is None):
        found.setdefault(type(options_of(name)).__module__, []).append(name)
    return found


def pages() -> dict[str, str]:
    """The page of each module for the site, by the module's name, or by its room's name for a
    method outside of `algorithms`."""

    def stem(module: str) -> str:
        _, room, *_, last = module.split(".")
        return last if room == "algorithms" else room

    return {stem(module): page(module, names) for module, names in of_modules().items()}


def index() -> str:
    """The list of all methods."""
    lines = [
        "# Methods",
        "",
        "Each method is one file. Its docstring names the paper, the reference code, and every",
        "difference. Two differences hold for all methods: rates and weights are for mean losses,",
        "and all methods of a setting have the same base network, tasks and outer optimiser,",
        "unless the method's entry names others. `arml train SETTING/METHOD --help` shows the",
        "options of a method. (The package has no setting for `tables`: its tasks are in",
        "`benchmarks/table_prior.py`.) This list is made by `python docs/make_pages.py`.",
        "",
        "| method | description | paper | regression | classification |",
        "|---|---|---|---|---|",
    ]
    for module, names in of_modules().items():
        for name in names:
            known = ALGORITHMS[name]
            file = DESCRIBED_IN.get(name, module).replace(".", "/")
            link = f"[`{name}`](../src/{file}.py)"
            kinds = ("regression", "classification")
            marks = " | ".join("yes" if kind in known.kinds else "" for kind in kinds)
            lines.append(f"| {link} | {known.about} | {known.paper} | {marks} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Write the list, or check it."""
    made = index()
    if LIST.is_file() and LIST.read_text(encoding="utf-8") == made:
        return
    if "--check" in sys.argv[1:]:
        sys.exit(f"{LIST.name} differs from the sources: run python docs/make_pages.py")
    LIST.write_text(made, encoding="utf-8")
    print(f"wrote {LIST.name}")


if __name__ == "__main__":
    main()
