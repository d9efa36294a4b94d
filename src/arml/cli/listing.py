"""`arml list`: settings, methods, recipes and data sets, on one screen each."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from arml.cli.console import parse, print_json, say
from arml.cli.errors import UsageError
from arml.core.registry import as_options
from arml.results.files import Json

if TYPE_CHECKING:
    from arml.core.registry import Entry
    from arml.experiment.options import Experiment


@dataclass(frozen=True)
class ListOptions:
    """List the settings, methods and data sets, or the recipes of one.

    A recipe is a setting and a method: `arml train starter/maml --run DIR`.
    """

    what: Positional[str | None] = None
    """A setting (starter), a method (maml) or a recipe (starter/maml); all if not given."""
    json: bool = False
    """Print JSON."""


def list_command(arguments: Sequence[str]) -> int:
    """List settings, methods and data sets, or the recipes of one"""
    options = parse(ListOptions, arguments, prog="arml list")
    found = catalogue()
    if options.what is not None:
        found = selected(found, options.what)
    if options.json:
        print_json(found)
        return 0
    console = Console()
    if options.what is None:
        _print_all(console, found)
    else:
        _print_selected(console, found)
    return 0


def catalogue() -> dict[str, list[Json]]:
    """Everything that can be named: each entry has a name and a one-line description."""
    from arml.algorithms import ALGORITHMS
    from arml.cli.data import entries
    from arml.experiment.options import NETWORKS, TASKS
    from arml.experiment.recipes import RECIPES, measured, settings

    scores = measured()
    # A command with parts of a plug-in needs the plug-in. Its tasks are listed as settings.
    plugins = "".join(f" {shlex.quote(word)}" for word in as_options())
    recipes = []
    for name, recipe in RECIPES.items():
        setting, _, method = name.partition("/")
        known = scores.get(setting, {})
        score = known.get("scores", {}).get(method)
        about: Json = {
            "name": name,
            "setting": setting,
            "method": method,
            "description": recipe.description,
            "where": recipe.setting.description,
            "about": recipe.description.removeprefix(f"{recipe.setting.description}. "),
            "minutes": recipe.minutes,
            "command": f"arml train {name}{_data(recipe.make())} --run runs/{name}{plugins}",
        }
        if recipe.expected is not None:
            about["expected"] = recipe.expected
        if score is not None:
            about["measured"] = {k: known[k] for k in ("metric", "steps", "tasks", "protocol")}
            about["measured"]["score"] = score
        recipes.append(about)
    return {
        "settings": [
            {"name": name, "description": f"{setting.description}."}
            for name, setting in settings().items()
        ],
        "algorithms": _described(ALGORITHMS.values()),
        "recipes": recipes,
        "datasets": [
            *_described(kind for kind in TASKS.values() if kind.source is None),
            *(
                {"name": entry["name"], "description": entry["about"], "here": entry["here"]}
                for entry in entries()
            ),
        ],
        "networks": _described(NETWORKS.values()),
    }


def selected(found: dict[str, list[Json]], what: str) -> dict[str, list[Json]]:
    """The recipes of a setting or method, or one recipe; and the entries of that name.

    **Raises** `UsageError` with the nearest names for an unknown one.
    """
    recipes = [r for r in found["recipes"] if what in (r["name"], r["setting"], r["method"])]
    named = {
        kind: [entry for entry in some if entry["name"] == what]
        for kind, some in found.items()
        if kind != "recipes"
    }
    if not recipes and not any(named.values()):
        known = {entry["name"] for some in found.values() for entry in some}
        close = get_close_matches(what, sorted(known), 3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise UsageError(
            f"expected a setting, a method, a recipe, a data set or a network, got {what!r}{hint}; "
            "`arml list` names them"
        )
    return {**named, "recipes": recipes}


def _data(experiment: "Experiment") -> str:
    """The data that a recipe's command needs."""
    needs = getattr(experiment.tasks, "needs", "")
    return f" {needs}" if needs else ""


def _described(entries: Iterable["Entry"]) -> list[Json]:
    return [{"name": entry.name, "description": entry.about} for entry in entries]


def _table(console: Console, title: str, rows: Sequence[Sequence[str]]) -> None:
    """Rows of a name, numbers and a text, which is cut where the terminal ends."""
    style: Json = {"title_justify": "left", "title_style": "bold", "box": None}
    table = Table(title=title, show_header=False, expand=True, **style)
    table.add_column(no_wrap=True, style="cyan", min_width=max(len(row[0]) for row in rows))
    for place in range(1, len(rows[0]) - 1):
        width = max(len(row[place]) for row in rows)
        table.add_column(no_wrap=True, justify="right", min_width=width)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _print_all(console: Console, found: dict[str, list[Json]]) -> None:
    _table(
        console,
        "Settings: `arml list SETTING` shows its recipes and their scores",
        [(entry["name"], entry["description"]) for entry in found["settings"]],
    )
    _table(
        console,
        "Methods: `arml list METHOD` shows its recipes; `arml train SETTING/METHOD --run DIR` "
        "trains one",
        [(entry["name"], entry["description"]) for entry in found["algorithms"]],
    )
    say(console, f"Networks (--network NAME): {', '.join(e['name'] for e in found['networks'])}")
    prepared = [entry for entry in found["datasets"] if "here" in entry]
    here = [entry["name"] for entry in prepared if entry["here"] == "yes"]
    names = ", ".join(entry["name"] for entry in prepared)
    say(console, f"Data sets (`arml data list`): {names}")
    say(console, f"Prepared here: {', '.join(here) or 'none'}")


def _print_selected(console: Console, found: dict[str, list[Json]]) -> None:
    for kind in ("settings", "algorithms", "datasets", "networks"):
        for entry in found[kind]:
            say(console, f"{entry['name']}: {entry['description']}")
    recipes = found["recipes"]
    if not recipes:
        return
    settings = {r["setting"] for r in recipes}
    rows = [
        (r["name"], _score(r), _minutes(r), r["about"] if len(settings) == 1 else r["where"])
        for r in recipes
    ]
    # A column without an entry is left out.
    full = [i for i in range(4) if any(row[i] for row in rows)]
    _table(console, "", [[row[i] for i in full] for row in rows])
    for how in sorted({_how(r["measured"]) for r in recipes if "measured" in r}):
        say(console, f"{how}; minutes: the recipe's training on a CPU" if 2 in full else how)
    say(console, f"Train one: {recipes[0]['command']}")


def _score(recipe: Json) -> str:
    known = recipe.get("measured")
    if known is not None:
        percent = known["metric"] == "accuracy"
        return f"{100 * known['score']:.1f}%" if percent else f"{known['score']:.3g}"
    return f"{recipe['expected']:.3g}" if "expected" in recipe else ""


def _minutes(recipe: Json) -> str:
    return f"{recipe['minutes']:g} min" if recipe["minutes"] else ""


def _how(known: Json) -> str:
    kind = "Accuracy" if known["metric"] == "accuracy" else "Mean squared error"
    return (
        f"{kind} on {known['tasks']:,} test tasks after {known['steps']:,} steps "
        f"({known['protocol'].partition(', ')[0]})"
    )
