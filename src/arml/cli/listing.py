"""`arml list`: settings, methods, recipes and data sets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import command, listed, parse, print_json, say
from arml.results.files import Json

if TYPE_CHECKING:
    from arml.core.registry import Entry


@dataclass(frozen=True)
class ListOptions:
    """List the settings, methods and data sets, or the recipes of one.

    A recipe is a setting and a method: `arml train starter/maml --run DIR`.
    """

    what: Positional[str | None] = None
    """A setting (starter), a method (maml) or a recipe (starter/maml)."""
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
    elif options.what is None:
        _print_all(Console(), found)
    else:
        _print_selected(Console(), found)
    return 0


def catalogue() -> dict[str, list[Json]]:
    """Everything that can be named: each entry has a name and a one-line description."""
    from arml.algorithms import ALGORITHMS
    from arml.cli.data import entries
    from arml.experiment.options import NETWORKS, TASKS
    from arml.experiment.recipes import RECIPES, measured, settings

    scores = measured()
    recipes = []
    for name, recipe in RECIPES.items():
        setting, _, method = name.partition("/")
        known = scores.get(setting, {})
        # The data that the command needs are placeholders, and not quoted.
        needs = getattr(recipe.make().tasks, "needs", "")
        tail = command("--run", f"runs/{name}").removeprefix("arml")
        about: Json = {
            "name": name,
            "setting": setting,
            "method": method,
            "description": recipe.description,
            "minutes": recipe.minutes,
            "command": f"arml train {name}{needs and ' ' + needs}{tail}",
        }
        if recipe.expected is not None:
            about["measured"] = {k: known[k] for k in ("metric", "steps", "tasks", "protocol")}
            about["measured"]["score"] = recipe.expected
        recipes.append(about)
    return {
        "settings": [
            {"name": name, "description": f"{setting.description}."}
            for name, setting in settings().items()
        ],
        "algorithms": _described(ALGORITHMS.values()),
        "recipes": recipes,
        "datasets": [*_described(kind for kind in TASKS.values() if not kind.source), *entries()],
        "networks": _described(NETWORKS.values()),
    }


def selected(found: dict[str, list[Json]], what: str) -> dict[str, list[Json]]:
    """The recipes of a setting or method, or one recipe; and the entries of that name.

    **Raises** `ValueError` with the nearest names for an unknown one.
    """
    chosen = {
        kind: [e for e in some if what in (e["name"], e.get("setting"), e.get("method"))]
        for kind, some in found.items()
    }
    if not any(chosen.values()):
        names = {entry["name"] for some in found.values() for entry in some}
        close = get_close_matches(what, sorted(names), 3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ValueError(
            f"no setting, method, recipe, data set or network is named {what!r}{hint}; `arml list` "
            "names them"
        )
    return chosen


def _described(entries: Iterable["Entry"]) -> list[Json]:
    return [{"name": entry.name, "description": entry.about} for entry in entries]


def _print_all(console: Console, found: dict[str, list[Json]]) -> None:
    for kind, title in (
        ("settings", "Settings: `arml list SETTING` shows its recipes and their scores"),
        ("algorithms", "Methods: `arml train SETTING/METHOD --run DIR` trains one"),
    ):
        rows = [(e["name"], e["description"]) for e in found[kind]]
        console.print(listed(("", ""), rows, title))
    say(console, f"Networks (--network NAME): {', '.join(e['name'] for e in found['networks'])}")
    prepared = [entry for entry in found["datasets"] if "here" in entry]
    here = [entry["name"] for entry in prepared if entry["here"] == "yes"]
    names = ", ".join(entry["name"] for entry in prepared)
    say(console, f"Data sets (`arml data list`): {names}")
    say(console, f"Prepared here: {', '.join(here) or 'none'}")


def _print_selected(console: Console, found: dict[str, list[Json]]) -> None:
    recipes = found["recipes"]
    for kind, entries in found.items():
        for entry in entries if kind != "recipes" else ():
            say(console, f"{entry['name']}: {entry['description']}")
    if not recipes:
        return
    # A description is that of the setting, then that of the method: the one that differs is shown.
    part = 2 if len({r["setting"] for r in recipes}) == 1 else 0
    rows = [
        (r["name"], _score(r), _minutes(r), r["description"].partition(". ")[part]) for r in recipes
    ]
    console.print(listed(("recipe", "score", "minutes", ""), rows))
    for how in sorted({_how(r["measured"]) for r in recipes if "measured" in r}):
        say(console, how)
    if any(r["minutes"] for r in recipes):
        say(console, "minutes: the time of one training on one CPU core")
    say(console, f"Train one: {recipes[0]['command']}")


def _score(recipe: Json) -> str:
    known = recipe.get("measured")
    if known is None:
        return ""
    percent = known["metric"] == "accuracy"
    return f"{100 * known['score']:.1f}%" if percent else f"{known['score']:.3g}"


def _minutes(recipe: Json) -> str:
    return f"{recipe['minutes']:g}" if recipe["minutes"] else ""


def _how(known: Json) -> str:
    kind = "accuracy" if known["metric"] == "accuracy" else "mean squared error"
    return (
        f"score: {kind} on {known['tasks']:,} test tasks ({known['protocol'].partition(', ')[0]}) "
        f"after {known['steps']:,} steps, a mean over the study's trainings (one to five); which "
        "differences are more than chance: study/README.md"
    )
