"""`arml list`: settings, methods, recipes and data sets."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import command, listed, parse, print_json, say
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
        ):
            console.print(listed(("", ""), found[kind].items(), title))
        say(console, f"Networks (--network NAME): {', '.join(found['networks'])}")
        say(console, f"Data sets (`arml data list`): {', '.join(found['data sets'])}")
        from arml.datasets.prepare import prepared_here

        say(console, f"Prepared here: {', '.join(prepared_here()) or 'none'}")


def _named(what: str | None) -> tuple[dict[str, dict[str, str]], list[str]]:
    """The descriptions of everything of this name, by its kind, and the recipes that belong to it;
    all if `what` is None. **Raises** `ValueError` with the nearest names for an unknown one."""
    from arml.algorithms import ALGORITHMS
    from arml.core.registry import nearest
    from arml.datasets.published import CATALOGUE
    from arml.experiment.options import NETWORKS
    from arml.experiment.recipes import RECIPES, settings

    every = {
        "settings": {name: f"{setting.description}." for name, setting in settings().items()},
        "methods": {name: entry.about for name, entry in ALGORITHMS.items()},
        "networks": {name: entry.about for name, entry in NETWORKS.items()},
        "data sets": {name: f"{data.about}." for name, data in CATALOGUE.items()},
    }
    if what is None:
        return every, [*RECIPES]
    found = {kind: {k: v for k, v in some.items() if k == what} for kind, some in every.items()}
    recipes = [name for name in RECIPES if what in (name, *name.split("/"))]
    if not recipes and not any(found.values()):
        known = [*(name for some in every.values() for name in some), *RECIPES]
        raise ValueError(
            f"no setting, method, recipe, data set or network is named {what!r}"
            f"{nearest(what, known)}"
        )
    return found, recipes


def _measured(recipe: str) -> Json:
    """The `metric` of the study's setting, its mean `score` of the recipe and the `minutes` of one
    training on one core; None where the study has none."""
    from arml.experiment.recipes import study_scores

    place, method = recipe.split("/")
    facts = study_scores().get(place, {})
    return {
        "metric": facts.get("metric"),
        "score": facts.get("scores", {}).get(method),
        "minutes": facts.get("minutes", {}).get(method),
    }


def _print_recipes(console: Console, recipes: Sequence[str]) -> None:
    """Print recipes with their scores in the study."""
    from arml.experiment.recipes import RECIPES, method_of, settings, study_scores

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
                "steps, a mean over the study's trainings (one to five); which differences are "
                "more than chance: study/README.md"
            ] = None
        about = method_of(method).about if one_setting else settings()[place].description
        rows.append((name, score, f"{minutes:g}" if minutes else "", about))
    console.print(listed(("recipe", "score", "minutes", ""), rows))
    say(console, *notes)
    first = recipes[0]
    # The data that a command needs are placeholders, and not quoted.
    needs = getattr(RECIPES[first].tasks, "needs", "")
    run = command("--run", f"runs/{first}").removeprefix("arml")
    say(console, f"Train one: arml train {first}{needs and ' ' + needs}{run}")
