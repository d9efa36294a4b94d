"""One search for all baselines of 2-D regression: inner rate, inner steps and outer rate.

    python -m study.inner                     # runs/inner, results/inner-search; resumable

Each method gets the same twelve trials of 6,000 steps: first the recipe's own values, then those
that Optuna proposes in the same ranges. The median of the others ends a trial that has fallen
behind. 1,000 validation tasks choose. If the best is not the recipe, five trainings of all steps
follow, which are scored on the test tasks of `results/laptop.json`. Everything else is the recipe.
No search may take more inner steps than the five that most recipes have.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import arml
from arml.experiment.options import fingerprint, to_json
from arml.experiment.search import chosen, opened, space, tune
from arml.report.verdicts import difference, score_cells, told
from arml.results.files import Json, read_json, write_json
from arml.results.scores import read_scores, write_scores
from study.data import RESULTS, Study
from study.pictures import drawn
from study.plan import Unit, seconds
from study.unit import carry_out, is_done

OUT = Path("runs/inner")
KEPT = RESULTS / "inner-search"
"""`search.json`, and the scores of each training on single tasks."""
PLACE = "regression2d"
METHODS = ("anil", "maml", "cavia", "meta-sgd", "mt-net", "arml-paper", "mumomaml", "hsml")
"""The quickest first."""
RECIPE_UNTRAINED = ("cavia",)
"""Methods whose recipe the study's own table does not have: it is trained here."""
SEARCH = (
    "algorithm.inner_rate=0.001..1",
    "algorithm.inner_steps=1..5",
    "outer.outer_rate=0.0003..0.01",
)
TRIALS, SHORT, SEEDS, TASKS = 12, 6_000, 5, 4_000


def searched(method: str, out: Path) -> Json:
    """The search of a method, continued in `out`: its trials, the best first."""
    made = replace(arml.recipe(f"{PLACE}/{method}"), steps=SHORT, checkpoint_every=2_000)
    folder, ranges = out / "search" / method, space(SEARCH, made)
    own = {path: value_of(made, path) for path in ranges}
    opened(made, ranges, folder).enqueue_trial(own, skip_if_exists=True)

    def watch(trial: Any) -> None:
        print(method, trial.number, trial.value, trial.params, flush=True)

    ended = tune(made, ranges, folder, trials=TRIALS, watch=watch)
    # A trial that fell behind or diverged was ended, and is never the best.
    trials = [
        {
            "values": t.params,
            "validation": t.value,
            "steps": max(t.intermediate_values, default=0),
            "seconds": round(t.duration.total_seconds()) if t.duration else None,
        }
        for t in ended
    ]
    return {"recipe": own, "best": ended[0].params, "trials": trials}


def value_of(made: arml.Experiment, path: str) -> Any:
    """The value of the option at a path, such as `outer.outer_rate`."""
    part, _, name = path.partition(".")
    return getattr(getattr(made, part), name)


def trained(method: str, values: dict[str, Any], seed: int, out: Path, name: str = "") -> Json:
    """A training of all steps with these values, continued in `out`, whose scores are kept under
    the `name`, the method's if not given; returns its facts."""
    made = chosen(arml.recipe(f"{PLACE}/{method}"), values)
    made = replace(made, seed=seed, checkpoint_every=5_000)
    unit = Unit(
        folder=f"runs/{PLACE}/{name or method}/seed-{seed}",
        experiment=to_json(made),
        options=fingerprint(made),
        tasks=TASKS,
        explain=0,
        seconds=seconds(made, TASKS),
        turn=0,
    )
    if not is_done(unit, out):
        carry_out(unit, out)
    folder = out / unit["folder"]
    write_scores(KEPT / f"{name or method}-{seed}.npz", read_scores(folder / "scores.npz"))
    return read_json(folder / "row.json")


def main(methods: Sequence[str]) -> None:
    """Carry out what is left, all searches first, and write what there is after each part."""
    path = KEPT / "search.json"
    kept: Json = read_json(path) if path.exists() else {"command": "python -m study.inner"}
    kept |= {"search": SEARCH, "trials": TRIALS, "steps": SHORT}
    known = kept.setdefault("methods", {})
    for method in methods:
        known.setdefault(method, {}).update(searched(method, OUT))
        write_json(path, kept)
    for seed, method in product(range(SEEDS), methods):
        found = known[method]
        if found["best"] != found["recipe"]:
            found.setdefault("trainings", {})[str(seed)] = trained(method, found["best"], seed, OUT)
            write_json(path, kept)
        if method in RECIPE_UNTRAINED:
            facts = trained(method, found["recipe"], seed, OUT, f"{method}-recipe")
            found.setdefault("recipe_trainings", {})[str(seed)] = facts
            write_json(path, kept)


def page(study: Study) -> str:
    """The recipes and the searched options side by side: their errors and the difference; and the
    text's ARML against each other method, on both sides."""
    table, rows = study.table(PLACE), []
    assert table is not None
    kept = read_json(KEPT / "search.json")["methods"]
    every: dict[str, dict[str, Sequence[arml.Scores]]] = {"recipe": {}, "searched": {}}
    for method, found in kept.items():
        title = arml.ALGORITHMS[method].title
        ours = table.row(title)
        files = [KEPT / f"{method}-{seed}.npz" for seed in found.get("trainings", ())]
        own = [KEPT / f"{method}-recipe-{n}.npz" for n in found.get("recipe_trainings", ())]
        sides = {"recipe": [*ours.scores.values()] if ours else [*map(read_scores, own)]}
        sides["searched"] = [*map(read_scores, files)] or [
            *(sides["recipe"] if found["best"] == found["recipe"] else [])
        ]
        cells = [title]
        for side, values in (("recipe", found["recipe"]), ("searched", found["best"])):
            rate, steps, outer = (values[text.partition("=")[0]] for text in SEARCH)
            some = sides[side]
            every[side] |= {title: some} if some else {}
            score, _, count = score_cells(some) if some else ("not yet run", "", "")
            cells += [f"{rate:.2g}, {steps}, {outer:.2g}", f"{score}, {count}" if count else score]
        if all(sides.values()) and files:
            both = {"searched": sides["searched"], "recipe": sides["recipe"]}
            against = arml.compare(both, against="recipe")["searched"]
            cells.append(f"{difference(against)}: {told(against)}")
        rows.append(cells)
    head = ("Method", "Recipe: inner rate, steps, outer rate", "MSE, trainings (SD)")
    first = drawn((*head, "Searched", "MSE, trainings (SD)", "Searched minus recipe"), rows)
    return f"{first}\n\n{_against_arml(every)}"


def _against_arml(every: dict[str, dict[str, Sequence[arml.Scores]]]) -> str:
    """Each method minus the text's ARML, both by their recipes, and both searched."""
    ours = arml.ALGORITHMS["arml-paper"].title
    verdicts: dict[str, Mapping[str, arml.Comparison]] = {
        side: arml.compare(methods, against=ours).differences if ours in methods else {}
        for side, methods in every.items()
    }
    names = [name for name in every["searched"] if name != ours]
    rows = [
        [name, *(_told(verdicts[side], name) for side in ("recipe", "searched"))] for name in names
    ]
    return drawn((f"Minus {ours}", "as published", "searched alike"), rows)


def _told(verdicts: Mapping[str, arml.Comparison], name: str) -> str:
    known = name in verdicts
    return f"{difference(verdicts[name])}: {told(verdicts[name])}" if known else "not yet run"


if __name__ == "__main__":
    main(sys.argv[1:] or METHODS)
