"""`arml list`: settings, methods, recipes and data sets."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import command, listed, parse, print_json, say
from arml.datasets.folders import default_folder
from arml.results.files import Json, JsonView, RunError, checksum, read_json, write_json


@dataclass(frozen=True)
class _ListOptions:
    """List the settings, methods and data sets, or the recipes of one.

    A recipe is a setting and a method: `arml train starter/maml --run DIR`.
    """

    what: Positional[str | None] = None
    """A setting (starter), a method (maml) or a recipe (starter/maml)."""
    json: bool = False
    """Print only JSON."""


def list_command(arguments: Sequence[str]) -> None:
    options = parse(_ListOptions, arguments, prog="arml list")
    what, console = options.what, Console()
    found, recipes = _named(what)
    if options.json:
        print_json({**found, "recipes": {name: _measured(name) for name in recipes}})
    elif what is not None:
        for about in (some[what] for some in found.values() if some):
            say(console, f"{what}: {about}")
        if recipes:
            _print_recipes(console, recipes)
    else:
        for kind, title in (
            ("settings", "Settings: `arml list SETTING` shows its recipes and their scores"),
            ("methods", "Methods: `arml train SETTING/METHOD --run DIR` trains one"),
            ("inputs", "Kinds of input: `arml adapt` learns from your own examples"),
        ):
            console.print(listed(("", ""), found[kind].items(), title))
        say(console, f"Networks (--network NAME): {', '.join(found['networks'])}")
        say(console, f"Data sets (`arml data list`): {', '.join(found['data sets'])}")
        from arml.datasets.prepare import prepared_here

        say(console, f"Prepared here: {', '.join(prepared_here()) or 'none'}")


def _named(what: str | None) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The descriptions of everything with this name, by kind, and its recipes with the options that
    they need; all if `what` is None. **Raises** `ValueError` with the nearest names for an unknown
    one."""
    from arml.core.registry import nearest

    every, needs = _catalogue()
    if what is None:
        return every, needs
    found = {kind: {k: v for k, v in some.items() if k == what} for kind, some in every.items()}
    recipes = {k: v for k, v in needs.items() if what in (k, *k.split("/"))}
    if not recipes and not any(found.values()):
        known = [*(name for some in every.values() for name in some), *needs]
        raise ValueError(
            f"no setting, method, recipe, data set or network is named {what!r}"
            f"{nearest(what, known)}"
        )
    return found, recipes


def _catalogue() -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The descriptions of everything, by its kind, and of each recipe the options that it needs.
    They are cached until the package changes, because the methods load JAX, but not with plug-ins
    and other packages' methods."""
    from arml.core.registry import points
    from arml.plugins.loading import as_options

    if (
        "arml.algorithms" in sys.modules
        or as_options()
        or any(map(points, ("method", "tasks", "network", "inputs")))
    ):
        return _read_catalogue()
    package = Path(__file__).parents[1]
    paths = sorted(path for path in package.rglob("*") if path.suffix in (".py", ".toml"))
    key = checksum([[str(path), path.stat().st_mtime_ns, path.stat().st_size] for path in paths])
    place = default_folder() / "list.json"
    with suppress(RunError, KeyError):
        kept = read_json(place)
        if kept["key"] == key:
            return kept["every"], kept["needs"]
    every, needs = _read_catalogue()
    with suppress(OSError, RunError):  # a cache that cannot be written only costs time
        place.parent.mkdir(parents=True, exist_ok=True)
        write_json(place, {"key": key, "every": every, "needs": needs})
    return every, needs


def _read_catalogue() -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    from arml.algorithms import ALGORITHMS
    from arml.datasets.published import DATA_SETS
    from arml.experiment.options import NETWORKS
    from arml.experiment.recipes import RECIPES, method_of, settings, variants_of
    from arml.predict.kinds import every_kind

    every = {
        "settings": {name: f"{setting.description}." for name, setting in settings().items()},
        "methods": {name: entry.about for name, entry in ALGORITHMS.items()},
        "variants": {
            name: method_of(name).about
            for method in ALGORITHMS.values()
            for name in variants_of(method)
        },
        "inputs": {name: kind.about for name, kind in every_kind().items()},
        "networks": {name: entry.about for name, entry in NETWORKS.items()},
        "data sets": {name: f"{data.about}." for name, data in DATA_SETS.items()},
    }
    return every, {k: str(getattr(made.tasks, "needs", "")) for k, made in RECIPES.items()}


@cache
def study_scores() -> JsonView:
    """The study's scores by setting: `metric`, `steps`, `protocol`, `tasks`, and of each method
    `scores` and `minutes`."""
    return json.loads(files("arml").joinpath("data/measured.json").read_text(encoding="utf-8"))


def _measured(recipe: str) -> Json:
    """The study's metric, mean score and minutes of a training on one core, or None."""
    place, method = recipe.split("/")
    facts = study_scores().get(place, {})
    return {
        "metric": facts.get("metric"),
        "score": facts.get("scores", {}).get(method),
        "minutes": facts.get("minutes", {}).get(method),
    }


def _print_recipes(console: Console, recipes: Mapping[str, str]) -> None:
    """Print recipes, which need these options, with their scores in the study."""
    every = _catalogue()[0]
    one_setting = len({name.split("/")[0] for name in recipes}) == 1
    rows = []
    notes = {"minutes: the time of one training of the study on one CPU core": None}
    for name in recipes:
        (place, method), found = name.split("/"), _measured(name)
        score, minutes = "-", found["minutes"]
        if found["score"] is None:
            notes["-: no table of the study has this recipe"] = None
        else:
            facts, percent = study_scores()[place], found["metric"] == "accuracy"
            score = f"{100 * found['score']:.1f}%" if percent else f"{found['score']:.3g}"
            notes[
                f"score: {'accuracy' if percent else 'mean squared error'} on {facts['tasks']:,} "
                f"test tasks ({facts['protocol'].partition(', ')[0]}) after {facts['steps']:,} "
                "steps, a mean over the study's trainings (one to five); study/README.md shows "
                "which differences are more than chance"
            ] = None
        methods = every["methods"] | every["variants"]
        about = methods[method] if one_setting else every["settings"][place][:-1]
        rows.append((name, score, f"{minutes:g}" if minutes else "", about))
    console.print(listed(("recipe", "score", "minutes", ""), rows))
    say(console, *notes)
    first, needs = next(iter(recipes.items()))
    # Its needs are placeholders, and are not quoted.
    run = command("--run", f"runs/{first}").removeprefix("arml")
    say(console, f"Train one: arml train {first}{needs and ' ' + needs}{run}")
