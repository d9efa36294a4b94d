"""`arml list`: settings, methods, recipes and data sets."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import command, listed, parse, print_json, say
from arml.report.tables import duration
from arml.results.files import Json


@dataclass(frozen=True)
class _ListOptions:
    """List the settings, methods and data sets, or the recipes of one.

    A recipe is a setting and a method: `arml train starter/maml --run DIR`.
    """

    what: Positional[str | None] = None
    """A setting (starter), a method (maml) or a recipe (starter/maml)."""
    json: bool = False
    """Print JSON and nothing else."""


def list_command(arguments: Sequence[str]) -> int:
    """List settings, methods and data sets, or the recipes of one"""
    options = parse(_ListOptions, arguments, prog="arml list")
    what, console = options.what, Console()
    if options.json:
        print_json(_as_json(what))
        return 0
    if what is not None:
        _print_one(console, what)
        return 0
    from arml.cli.data import entries

    found = _described()
    for kind, title in (
        ("settings", "Settings: `arml list SETTING` shows its recipes and their scores"),
        ("methods", "Methods: `arml train SETTING/METHOD --run DIR` trains one"),
    ):
        console.print(listed(("", ""), found[kind].items(), title))
    say(console, f"Networks (--network NAME): {', '.join(found['networks'])}")
    say(console, f"Data sets (`arml data list`): {', '.join(found['data sets'])}")
    here = [entry.name for entry in entries() if entry.here]
    say(console, f"Prepared here: {', '.join(here) or 'none'}")
    return 0


def _described() -> dict[str, dict[str, str]]:
    """Everything that can be named, by its kind, with a description."""
    from arml.algorithms import ALGORITHMS
    from arml.cli.data import entries
    from arml.experiment.options import NETWORKS
    from arml.experiment.recipes import settings

    return {
        "settings": {name: f"{setting.description}." for name, setting in settings().items()},
        "methods": {name: entry.about for name, entry in ALGORITHMS.items()},
        "networks": {name: entry.about for name, entry in NETWORKS.items()},
        "data sets": {entry.name: entry.about for entry in entries()},
    }


def _as_json(what: str | None) -> Json:
    """The lists of `arml list` by kind and name; each recipe with the study's mean `score` and
    `minutes` of one training on one core (None where there is none)."""
    from arml.experiment.recipes import study_scores

    known, recipes = _known(what)
    found: Json = {
        kind: {name: about for name, about in some.items() if name in known}
        for kind, some in _described().items()
    }
    found["recipes"] = {}
    for name in recipes:
        place, method = name.split("/")
        facts = study_scores().get(place, {})
        score, minutes = (facts.get(k, {}).get(method) for k in ("scores", "minutes"))
        metric = facts.get("metric")
        found["recipes"][name] = {"metric": metric, "score": score, "minutes": minutes}
    return found


def _known(what: str | None) -> tuple[dict[str, str], list[str]]:
    """The description of what has this name, if it has one, and the recipes that belong to it; all
    if `what` is None. **Raises** `ValueError` with the nearest names for an unknown one."""
    from arml.experiment.recipes import RECIPES

    known = {name: about for some in _described().values() for name, about in some.items()}
    recipes = [name for name in RECIPES if what is None or what in (name, *name.split("/"))]
    if what is not None and what not in known and not recipes:
        close = get_close_matches(what, [*known, *RECIPES], 3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ValueError(
            f"no setting, method, recipe, data set or network is named {what!r}{hint}; `arml list` "
            "names them"
        )
    return {k: about for k, about in known.items() if what in (None, k)}, recipes


def _print_one(console: Console, what: str) -> None:
    """Print a description, and the recipes of a setting or method with their scores. **Raises** as
    `_known`."""
    from arml.algorithms import ALGORITHMS
    from arml.experiment.recipes import RECIPES, paces, settings, study_scores

    known, recipes = _known(what)
    if what in known:
        say(console, f"{what}: {known[what]}")
    if not recipes:
        return
    parts = [name.split("/") for name in recipes]
    one_setting = len({place for place, _ in parts}) == 1
    rows, here = [], paces()
    notes = {"minutes: the time of one training of the study on one CPU core": None}
    for place, method in parts:
        facts, score = study_scores().get(place, {}), ""
        if (expected := facts.get("scores", {}).get(method)) is not None:
            percent = facts["metric"] == "accuracy"
            score = f"{100 * expected:.1f}%" if percent else f"{expected:.3g}"
            notes[
                f"score: {'accuracy' if percent else 'mean squared error'} on {facts['tasks']:,} "
                f"test tasks ({facts['protocol'].partition(', ')[0]}) after {facts['steps']:,} "
                "steps, a mean over the study's trainings (one to five); which differences are "
                "more than chance: study/README.md"
            ] = None
        minutes = facts.get("minutes", {}).get(method)
        about = ALGORITHMS[method].about if one_setting else settings()[place].description
        own: tuple[str, ...] = ()
        if here:
            pace, steps = here.get(f"{place}/{method}"), RECIPES[f"{place}/{method}"].steps
            own = (f"{pace:.2g} s, {duration(pace * steps)}",) if pace else ("",)
        minutes = f"{minutes:g}" if minutes else ""
        rows.append((f"{place}/{method}", score, minutes, *own, about))
    if here:
        notes["here: seconds of a step, and time of all steps, in the last run on this machine"] = (
            None
        )
    console.print(listed(("recipe", "score", "minutes", *["here"] * bool(here), ""), rows))
    say(console, *notes)
    first = recipes[0]
    # The data that a command needs are placeholders, and not quoted.
    needs = getattr(RECIPES[first].tasks, "needs", "")
    run = command("--run", f"runs/{first}").removeprefix("arml")
    say(console, f"Train one: arml train {first}{needs and ' ' + needs}{run}")
