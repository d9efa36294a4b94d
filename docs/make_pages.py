"""Write docs/methods/: a page for each method, made from its docstring and its options.

python docs/make_pages.py [--check]

`--check` writes nothing, and fails if a page is not what it would write.
"""

import ast
import dataclasses
import inspect
import itertools
import sys
from pathlib import Path
from typing import Any

from arml.algorithms import ALGORITHMS
from arml.experiment.parts import IMAGES, REGRESSION
from arml.experiment.recipes import RECIPES

HERE = Path(__file__).parent / "methods"


def options_of(name: str) -> Any:
    """The options of an algorithm, on the first kind of problem that it is made for."""
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


def stem(module: str) -> str:
    """The page's name: that of the module, or of the room that has a method of its own."""
    room, last = module.split(".")[1], module.rpartition(".")[2]
    return last if room == "algorithms" else room


def page(module: str, names: list[str]) -> str:
    """The page of the methods that one module defines."""
    cls = type(options_of(names[0]))
    doc = inspect.cleandoc(sys.modules[module].__doc__ or "")
    title, _, _ = doc.partition(":")
    lines = [f"# {title}", "", doc, "", "## By name", ""]
    lines += ["| algorithm | what it is | paper | recipes |", "|---|---|---|---|"]
    for name in names:
        known = ALGORITHMS[name]
        recipes = ", ".join(f"`{r}`" for r in RECIPES if r.partition("/")[2] == name)
        lines.append(f"| `{name}` | {known.about} | {known.paper} | {recipes} |")
        for variant, other in known.variants.items():
            lines.append(f"| | {other.about} | | `{other.setting}/{variant}` |")
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
    file = module.replace(".", "/")
    lines += ["", f"Source: [`src/{file}.py`](../../src/{file}.py). This page is made from it by"]
    lines += ["`python docs/make_pages.py`."]
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Every page by its file's name, the index too."""
    of_module: dict[str, list[str]] = {}
    for name in ALGORITHMS:
        of_module.setdefault(type(options_of(name)).__module__, []).append(name)
    made = {f"{stem(m)}.md": page(m, names) for m, names in of_module.items()}
    lines = ["# Methods", "", "| algorithm | what it is | regression | classification |"]
    lines += ["|---|---|---|---|"]
    for module, names in of_module.items():
        for name in names:
            link = f"[`{name}`]({stem(module)}.md)"
            kinds = ("regression", "classification")
            marks = " | ".join("yes" if k in ALGORITHMS[name].kinds else "" for k in kinds)
            lines.append(f"| {link} | {ALGORITHMS[name].about} | {marks} |")
    made["README.md"] = "\n".join([*lines, ""])
    return made


def main() -> None:
    check = "--check" in sys.argv[1:]
    made = pages()
    there = {path.name: path.read_text(encoding="utf-8") for path in HERE.glob("*.md")}
    if there == made:
        return
    odd = sorted(name for name in {*made, *there} if made.get(name) != there.get(name))
    if check:
        sys.exit(f"{', '.join(odd)}: not what the sources say; run python docs/make_pages.py")
    HERE.mkdir(exist_ok=True)
    for name in odd:
        if name in made:
            (HERE / name).write_text(made[name], encoding="utf-8")
        else:
            (HERE / name).unlink()
    print(f"wrote {', '.join(odd)}")


if __name__ == "__main__":
    main()
