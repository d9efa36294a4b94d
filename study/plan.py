"""The tables of the study: which experiments make their rows, and with which budget.

[1] Yao, Wu, Tao, Li, Ding, Li and Li, Automated Relational Meta-learning, ICLR 2020.

Differences: the starter sets of the package stand in for Plain-Multi (three families) and Art-Multi
(nine), so that every table can be run anywhere. Ablations and the further tables vary `arml-paper`:
ARML as in the paper's text.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import arml
from arml.datasets.published import REAL_FOUR
from arml.experiment.options import TASKS, fingerprint, to_json
from arml.experiment.recipes import changed
from arml.results.files import read_json
from study.paper import names

SUBJECT = "arml-paper"
"""The method that the others are compared with, and that the side tables vary."""
ABLATIONS = arml.ALGORITHMS[SUBJECT].variants
"""The paper's nine, each a change of ARML's options."""
INERT = "row-normalised, 1 layer (edges inert)"


class Method(NamedTuple):
    """What the study knows of a method."""

    tables: str
    """The main tables that have a row of it, by data set (`benchmarks` are Plain- and Art-Multi).
    `smoke`: also in the smoke test. `again`: trained with several seeds wherever that is dear."""
    step: float = 0.005
    """Seconds of a step of 2-D regression with 25 tasks on one core."""
    images: float = 1.0
    """The time of a step on pictures, relative to MAML's."""
    row: str = ""
    """Its row in the paper's tables, if it is not called as here."""


NEXT = "mini-imagenet tiered-imagenet"
METHODS: dict[str, Method] = {
    "versa": Method("regression2d starter benchmarks", 0.007, 0.6),
    "protonet": Method("starter benchmarks real again", images=0.3),
    "tapnet": Method("starter benchmarks", images=0.6),
    "tadam": Method("starter benchmarks", images=0.9),
    "maml": Method(f"regression2d starter starter-art benchmarks {NEXT} real smoke again", 0.003),
    "meta-sgd": Method(f"regression2d starter benchmarks {NEXT} real", 0.0044),
    "bmaml": Method("regression2d starter benchmarks again", 0.027, 0.2),
    "mt-net": Method(f"regression2d starter benchmarks {NEXT}", 0.0076),
    "mumomaml": Method(f"regression2d starter starter-art benchmarks {NEXT} real again", 0.0093),
    "hsml": Method(
        f"regression2d starter starter-art benchmarks {NEXT} real smoke again", 0.0115, 1.2
    ),
    "llama": Method("regression2d starter mini-imagenet", 0.029, 3.5),
    "platipus": Method("regression2d starter mini-imagenet", 0.017, 2.2),
    "reptile": Method(f"regression2d starter {NEXT}", 0.0015, 0.45),
    "arml-film": Method(
        f"regression2d starter starter-art benchmarks {NEXT} again", 0.0085, 1.2, "arml"
    ),
    "arml-official": Method(f"regression2d starter benchmarks {NEXT} real", 0.0085, 1.2, "arml"),
    "arml-paper": Method(
        f"regression2d starter starter-art benchmarks {NEXT} real smoke again",
        0.0085,
        1.2,
        "arml",
    ),
    "first-order-maml": Method("regression2d starter", 0.0008, 0.6),
    "anil": Method("regression2d starter", 0.0003, 0.4),
    "arml": Method("regression2d starter real", 0.0085, 0.3, "-"),
    "proto-maml": Method("starter real", images=1.1),
    # Of these no run of the study is kept yet, and their times are guesses.
    "r2d2": Method("regression2d starter"),
    "cavia": Method("regression2d starter"),
    "tnp": Method("regression2d starter"),
}
"""In the order of the paper's tables, then those that it does not have. The seconds are means of
the laptop study's runs, one or two at a time on two shared cores of server CPUs."""
FOUR = ("protonet", "maml", "arml-paper", "arml")
"""The methods of real pictures that are trained several times."""
SEARCHED: dict[str, tuple[str, dict[str, Any]]] = {
    "scaled-protonet": ("protonet", {"scale": 0.05, "learn_scale": True}),
    "protonet": ("protonet", {"scale": 1.0, "learn_scale": False}),
    "maml": ("maml", {}),
    "proto-maml": ("proto-maml", {}),
    "arml": ("arml", {}),
    "arml-paper": ("arml-paper", {}),
}
"""The methods that `study.rates` searches alike, by name: the recipe, and its options."""
AS_TRAINED = {"protonet": "protonet-published"}
"""The recipes of the runs that have these names, where the method's own recipe is a newer one."""
RATES = Path(__file__).parent / "results" / "rates.json"
FOUND: dict[str, list[Any]] = read_json(RATES)
"""The trials of `study.rates` that are finished, and the methods whose search is."""
SEVERAL = {"real-four-1shot": 5}
"""Their trainings where these are not three: five are the fewest that decide a claim."""
SLOW = 0.015
"""On a laptop a method whose step of 2-D regression takes more seconds is trained once, if it is
not one of those that are trained `again`: 70,000 such steps take 18 minutes."""


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    label: str
    experiment: arml.Experiment
    """With the row's own name as its recipe, which is its folder too; the seed is filled in."""
    paper: str = ""
    """Its name in the paper's table."""
    seeds: int = 0
    """Its number of seeds; 0 for that of the other rows."""
    turn: int = 0
    """The turn of its first seed: units are carried out by turn. A further seed is 20 later."""


@dataclass(frozen=True)
class Table:
    """Rows that are compared with one of them, each on the same test tasks."""

    name: str
    title: str
    about: str
    rows: tuple[Row, ...]
    reference: str
    """Label of the row that the others are compared with."""
    paper: str
    """Key of the paper's table in `paper.json`."""
    tasks: int
    """Test tasks."""
    explained: int
    """Test tasks that `arml explain` looks into; 0 for none."""


class Unit(TypedDict):
    """One run of the study, as plain JSON."""

    folder: str
    """Within the study's folder."""
    experiment: dict[str, Any]
    options: str
    """The fingerprint of the experiment."""
    tasks: int
    explain: int
    """Number of tasks that `arml explain` looks into; 0 for none."""
    seconds: float
    """Expected time on one core."""
    turn: int


class Scale(NamedTuple):
    """A budget, and the tables that are run with it."""

    name: str
    budget: Callable[[arml.Experiment, bool], arml.Experiment]
    """Called with an experiment of the paper, and whether it belongs to a side table."""
    tables: tuple[str, ...]
    vectors: tuple[int, int]
    """Seeds and test tasks of 2-D regression."""
    images: tuple[int, int]
    again: int
    """Seeds of the methods that are trained again."""
    explained: int = 1_000
    """Test tasks that `arml explain` looks into."""


class Place(NamedTuple):
    """A problem and its number of shots."""

    problem: str
    title: str
    shots: int | None = None
    steps: int | None = None
    """Outer steps; None for those of the recipe."""
    traits: tuple[str, ...] = ()
    """Further traits of the setting, for which methods may have options."""
    paper: str = ""
    """The table of the paper, if it is not called as the place."""
    turn: int = 0
    """The turn of its first units."""
    chunk: int = 0
    """Tasks that are learned at once; 0 for those of the recipe."""


def real(shots: int, start: bool, turn: int) -> Place:
    """The four families of real pictures, all steps or the first 500."""
    steps = " in 500 steps" if start else ""
    title = f"Birds, flowers, characters and objects{steps}, 5-way {shots}-shot"
    return Place("real-four", title, shots, 500 if start else None, turn=turn)


def mini(shots: int, steps: int, turn: int, chunk: int = 0) -> Place:
    """miniImageNet with fewer steps than the paper's."""
    paper = "mini-imagenet" if shots == 1 else "-"
    title = f"miniImageNet in {steps:,} steps, 5-way {shots}-shot"
    return Place("mini-imagenet", title, shots, steps, paper=paper, turn=turn, chunk=chunk)


PLACES: dict[str, Place] = {
    "regression2d": Place("regression2d", "2-D regression, 10-shot"),
    "starter-1shot": Place("starter", "Starter set, 5-way 1-shot", 1),
    "starter-5shot": Place("starter", "Starter set, 5-way 5-shot", 5),
    "starter-art-1shot": Place(
        "starter-art",
        "Starter set and its filters, 5-way 1-shot",
        1,
        traits=("many families",),  # as Art-Multi, which it stands in for
    ),
    "plain-multi-1shot": Place("plain-multi", "Plain-Multi, 5-way 1-shot", 1),
    "plain-multi-5shot": Place("plain-multi", "Plain-Multi, 5-way 5-shot", 5, 40_000),
    "art-multi-1shot": Place("art-multi", "Art-Multi, 5-way 1-shot", 1),
    "art-multi-5shot": Place("art-multi", "Art-Multi, 5-way 5-shot", 5, 40_000),
    "mini-imagenet": Place("mini-imagenet", "miniImageNet, 5-way 1-shot", 1),
    "tiered-imagenet": Place("tiered-imagenet", "tieredImageNet, 5-way 1-shot", 1),
    "real-four-1shot": real(1, False, 80),
    "real-four-1shot-start": real(1, True, 0),
    "real-four-5shot": real(5, False, 162),
    "real-four-5shot-start": real(5, True, 90),
    "mini-imagenet-1shot": mini(1, 3_000, 94),
    "mini-imagenet-1shot-start": mini(1, 500, 45),
    "mini-imagenet-1shot-gpu": mini(1, 8_000, 300, chunk=4),
    "mini-imagenet-5shot": mini(5, 3_000, 200),
    "mini-imagenet-5shot-start": mini(5, 500, 161),
}


def experiment(place: str, method: str, scale: Scale, *, side: bool = False) -> arml.Experiment:
    """One method at one place, within the scale's budget; its recipe is the run's name."""
    at = PLACES[place]
    shape = {} if at.shots is None else {"shots": at.shots}
    known = AS_TRAINED.get(method, method)
    made = arml.recipe(f"{at.problem}/{known}", **shape)
    for trait in at.traits:
        made = changed(made, arml.ALGORITHMS[known].settings.get(trait, {}))
    made = replace(made, steps=at.steps or made.steps, chunk=at.chunk or made.chunk)
    fitted = scale.budget(made, side)
    shortened = f"-{fitted.steps}" if fitted.steps != made.steps else ""
    return replace(fitted, recipe=f"{place}{shortened}/{method}")


def varied(base: arml.Experiment, name: str, **options: object) -> arml.Experiment:
    """The same experiment with other options of its method, and with a name of its own."""
    algorithm = replace(base.algorithm, **options)
    if algorithm == base.algorithm:
        return base
    return replace(base, recipe=f"{base.recipe}-{name}", algorithm=algorithm)


def row_of(place: str, method: str, scale: Scale, seeds: int = 0) -> Row:
    """The row of one method in a main table."""
    paper = METHODS[method].row or method
    made = experiment(place, method, scale)
    known = paper if paper in names() else ""
    return Row(arml.ALGORITHMS[method].title, made, known, seeds=seeds)


def training_of(rate: float, augment: bool) -> dict[str, dict[str, Any]]:
    """The options of the outer loop and of the training tasks: the rate falls, and the weights of
    the last fifth are averaged."""
    outer = {"outer_rate": rate, "schedule": "cosine", "average": 0.2, "warmup": 0.0}
    return {"outer": outer, "tasks": {"augment": augment}}


class Rows(NamedTuple):
    """The rows of a table, and how they are read."""

    rows: Sequence[Row]
    about: str
    reference: str = ""
    """The first row's label if empty."""
    paper: str = ""


def main(place: str, scale: Scale) -> Rows:
    """The paper's comparison of methods."""
    problem = PLACES[place].problem
    kind = "benchmarks" if problem.endswith("-multi") else problem
    kind = scale.name if scale.name in ("smoke", "real") else kind
    rows = []
    for name, method in METHODS.items():
        words = method.tables.split()
        on_gpu = kind == "real" and PLACES[place].chunk
        if kind not in words or (on_gpu and name not in FOUR):
            continue
        slow = scale.name == "laptop" and method.step > SLOW
        again = "again" in words and (slow or place == "starter-1shot")
        row = row_of(place, name, scale, scale.again if again else int(slow))
        if kind == "real":
            several = name in FOUR and problem == "real-four"
            row = replace(row, seeds=SEVERAL.get(place, 3) if several else 1)
            row = replace(row, turn=PLACES[place].turn + (0 if name in FOUR else 90))
        rows.append(row)
        if kind == "real" and name == "protonet":  # the head of `arml` without its graph
            made = varied(row.experiment, "scaled", scale=0.05, learn_scale=True)
            label, turn = f"{row.label}, learned scale", row.turn + 1
            rows.append(Row(label, made, seeds=SEVERAL.get(place, 1), turn=turn))
        if place == "real-four-1shot" and name == SUBJECT:
            what, options = ABLATIONS["IV"]
            made = varied(row.experiment, "IV", **options)
            rows.append(Row(f"{row.label}, {what}", made, seeds=1, turn=163))
    about = "The methods of the paper's comparison, and ARML in its several versions."
    return Rows(rows, about, arml.ALGORITHMS[SUBJECT].title, PLACES[place].paper or place)


def specialists(place: str, scale: Scale) -> Rows:
    """One learner for all families against one for each, by two methods."""
    rows = []
    for name, later in (("protonet", 83), ("maml", 95)):
        row = replace(row_of(place, name, scale), turn=PLACES[place].turn)
        rows.append(replace(row, seeds=SEVERAL.get(place, 3)))
        for family in REAL_FOUR:
            tasks = replace(row.experiment.tasks, only=(family,))
            recipe = f"{row.experiment.recipe}-{family}"
            own = replace(row.experiment, recipe=recipe, tasks=tasks)
            label, turn = f"{row.label}, {family} alone", row.turn + later
            rows.append(replace(row, label=label, experiment=own, turn=turn))
    about = "One learner for all families, and one for each, which has seen no other family."
    return Rows(rows, about)


def searched(place: str, scale: Scale) -> Rows:
    """Methods trained alike: augmented pictures, averaged weights, and a rate that falls from the
    one that `study.rates` found best for each at one shot. A method whose search is not finished
    has no row."""
    rows = []
    for name in FOUND["finished"]:
        recipe, options = SEARCHED[name]
        found = [trial for trial in FOUND["trials"] if trial["method"] == name]
        rate = max(found, key=lambda trial: trial["accuracy"])["rate"]
        row = row_of(place, recipe, scale)
        looks = row.experiment.steps // 4
        named = replace(row.experiment, recipe=f"{place}/{name}-searched", validate_every=looks)
        made = changed(named, {"algorithm": options, **training_of(rate, augment=True)})
        label = row.label + (", learned scale" if name.startswith("scaled") else "")
        seeds = 1 if name in ("protonet", "maml") else 3
        rows.append(Row(label, made, seeds=seeds, turn=PLACES[place].turn + 1))
    about = (
        "Each method is trained with augmented pictures, averaged weights and an outer rate that "
        "falls from the one that was best for it on validation tasks at one shot, after 1,000 "
        "steps on pictures as they are (`python -m study.rates`)."
    )
    return Rows(rows, about, arml.ALGORITHMS["arml"].title)


def ablations(place: str, scale: Scale) -> Rows:
    """The paper's ablations."""
    base = experiment(place, SUBJECT, scale, side=True)
    rows = [Row("ARML", base, "arml")]
    for number in ("IV",) if scale.name == "smoke" else ABLATIONS:
        what, options = ABLATIONS[number]
        rows.append(Row(f"{number}. {what}", varied(base, f"ablation-{number}", **options), number))
    about = "ARML (the paper's text) with one component removed or replaced."
    return Rows(rows, about, paper=f"ablations-{PLACES[place].problem}")


def vertices(place: str, scale: Scale) -> Rows:
    """The paper's numbers of vertices."""
    base = experiment(place, SUBJECT, scale, side=True)
    counts = (4, 8, 12, 16, 20)
    rows = [Row(f"{n} vertices", varied(base, f"vertices-{n}", vertices=n), str(n)) for n in counts]
    about = "ARML (the paper's text) by the number of vertices of its meta-knowledge graph."
    return Rows(rows, about, "8 vertices", f"vertices-{PLACES[place].problem}")


def evidence(place: str, scale: Scale) -> Rows:
    """ARML that reads by evidence, without its vertices, and without tailoring."""
    row = replace(row_of(place, "arml", scale), paper="")
    one = varied(row.experiment, "one-vertex", vertices=1)
    head = varied(row.experiment, "head-alone", vertices=1, read_by="place", gate="templates")
    rows = [row, Row("one vertex, which all tasks read", one), Row("the head alone", head)]
    about = (
        "In `arml` a task reads a vertex by how well its network explains the task's examples. The "
        "head alone is a ridge regression on one network, which is the same for all tasks."
    )
    return Rows(rows, about)


def edges(place: str, scale: Scale) -> Rows:
    """Whether the links between vertices matter, by numbers of layers and normalisations."""
    base = experiment(place, SUBJECT, scale, side=True)
    rows = []
    for normalise, layers in [(n, k) for n in ("row", "symmetric") for k in (1, 2, 3)]:
        made = varied(base, f"{normalise}-{layers}", normalise=normalise, layers=layers)
        label = f"{normalise}-normalised, {layers} layer{'s' if layers > 1 else ''}"
        rows.append(Row(INERT if (normalise, layers) == ("row", 1) else label, made))
    about = (
        "With one row-normalised layer, as in the authors' code, the links between vertices do not "
        "change what a task reads; in the other rows they do."
    )
    return Rows(rows, about)


def normalisation(place: str, scale: Scale) -> Rows:
    """Batch statistics of the queries against those of the support set."""
    rows = []
    for name in ("protonet", "maml", SUBJECT):
        row = row_of(place, name, scale)
        made, title = row.experiment, row.label
        network = replace(made.network, normalisation="support")
        own = replace(made, recipe=f"{made.recipe}-inductive", network=network)
        row = replace(row, label=f"{title}, transductive")
        rows += [row, replace(row, label=f"{title}, inductive", experiment=own, paper="")]
    about = (
        "Transductive: queries are normalised by their own batch, as in the paper. Inductive: by "
        "the support set, so that a prediction depends on nothing but its own image."
    )
    return Rows(rows, about)


KINDS: dict[str, tuple[str, Callable[[str, Scale], Rows]]] = {
    "": ("", main),
    "specialists": ("Specialists: ", specialists),
    "searched": ("Trained alike: ", searched),
    "ablations": ("Ablations: ", ablations),
    "vertices": ("Number of vertices: ", vertices),
    "evidence": ("Does ARML with evidence need its vertices? ", evidence),
    "edges": ("Do the links between vertices matter? ", edges),
    "normalisation": ("Transductive or inductive: ", normalisation),
}
"""Kinds of tables. A table's name is its kind and its place; that of a main table its place."""


def table(name: str, scale: Scale) -> Table:
    """The table of that name. **Raises** `ValueError` for an unknown name."""
    if name not in scale.tables:
        raise ValueError(
            f"unknown table {name!r} of scale {scale.name}: expected one of "
            f"{', '.join(scale.tables)}"
        )
    kind, _, place = ("", "", name) if name in PLACES else name.partition("-")
    title, rows_of = KINDS[kind]
    rows, about, reference, paper = rows_of(place, scale)
    images = any(len(TASKS.of(row.experiment.tasks).problem.features) == 3 for row in rows)
    seeds, tasks = scale.images if images else scale.vectors
    rows = tuple(replace(row, seeds=row.seeds or seeds) for row in rows)
    title, reference = f"{title}{PLACES[place].title}", reference or rows[0].label
    # Of one family there is nothing to compare what is read with.
    explained = 0 if PLACES[place].problem in NEXT.split() else min(tasks, scale.explained)
    return Table(name, title, about, rows, reference, paper, tasks, explained)


def units(tables: Sequence[Table]) -> list[Unit]:
    """The work of the tables in their order; a run that is in several tables is done once."""
    inside = {method.title for method in arml.ALGORITHMS.values() if method.inside}
    found: dict[str, Unit] = {}
    for one in tables:
        for row in one.rows:
            for seed in range(row.seeds):
                made = replace(row.experiment, seed=seed)
                folder = f"runs/{made.recipe}/seed-{seed}"
                turn = row.turn + 20 * seed
                unit = found.setdefault(
                    folder,
                    Unit(
                        folder=folder,
                        experiment=to_json(made),
                        options=fingerprint(made),
                        tasks=one.tasks,
                        explain=0,
                        seconds=round(seconds(made, one.tasks), 1),
                        turn=turn,
                    ),
                )
                assert unit["options"] == fingerprint(made), f"two experiments at {folder}"
                if row.label in inside and seed == 0:
                    unit["explain"] = one.explained
    return sorted(found.values(), key=lambda unit: unit["turn"])


def seconds(made: arml.Experiment, tasks: int) -> float:
    """Training, and scoring on `tasks` test tasks, on one core. A step on pictures grows with the
    pixels and with the support set."""
    name = made.recipe.rpartition("/")[2].removeprefix("scaled-")
    method = METHODS[max(filter(name.startswith, METHODS), key=len)]
    size = getattr(made.tasks, "size", None)
    if size is None:
        return 25.0 + made.steps * method.step * made.batch / 25
    shots = 0.8 if getattr(made.tasks, "shots", 1) == 1 else 2.1
    step = shots * (size / 32) ** 2 * made.batch / 4 * method.images
    # A task is scored with one forward pass a step and no outer gradient: a tenth of its training.
    scored = tasks + made.validation_tasks * made.steps / made.validate_every
    return 40.0 + step * (made.steps + 0.1 * scored / made.batch)


def whole(made: arml.Experiment, side: bool) -> arml.Experiment:
    """The paper's budget."""
    return made


def hours(made: arml.Experiment, side: bool) -> arml.Experiment:
    """The main tables of 2-D regression have all steps, and its side tables a seventh of them. On
    pictures all methods have the same few steps: 400 at one shot, and 200 at more shots, where a
    step takes longer."""
    if TASKS.of(made.tasks).problem.kind == "regression":
        return replace(made, steps=10_000) if side else made
    steps = 400 if getattr(made.tasks, "shots", 0) == 1 else 200
    return replace(made, steps=steps, interval=10, checkpoint_every=50, validate_every=steps // 2)


def measured_on_real(made: arml.Experiment, side: bool) -> arml.Experiment:
    """A constant rate, so that a longer training goes on from a shorter one, and pictures as they
    are."""
    outer = replace(made.outer, schedule="constant", warmup=0.0, average=0.0)
    made = replace(made, outer=outer, tasks=replace(made.tasks, augment=False))
    return replace(made, validate_every=250, checkpoint_every=50, interval=10)


TINY = {"inner_steps": 1, "width": 4, "hidden": (), "particles": 2, "layers": 1}


def _small(options: Any, sizes: Mapping[str, Any]) -> Any:
    known = {field.name for field in fields(options)}
    # Some rows compare numbers of layers of message passing.
    keep = {"layers"} if "normalise" in known else set()
    return replace(options, **{k: v for k, v in sizes.items() if k in known - keep})


def tiny(made: arml.Experiment, side: bool) -> arml.Experiment:
    """Twenty steps of tiny networks: a test that everything works, not a result."""
    return replace(
        made,
        algorithm=_small(made.algorithm, TINY),
        network=_small(made.network, {"hidden": (8,), "filters": 2}),
        outer=replace(made.outer, warmup=0.0),
        steps=20,
        batch=4,
        chunk=10,
        interval=10,
        checkpoint_every=10,
        validate_every=20,
        validation_tasks=10,
    )


LOCAL = (
    "regression2d",
    "starter-1shot",
    "ablations-regression2d",
    "evidence-regression2d",
    "edges-regression2d",
    "vertices-regression2d",
    "ablations-starter-1shot",
    "starter-art-1shot",
    "vertices-starter-art-1shot",
    "normalisation-starter-1shot",
    "starter-5shot",
)
"""Tables that need only the data in the package; cheap and decisive ones come first."""
BENCHMARKS = (
    "plain-multi-1shot",
    "plain-multi-5shot",
    "art-multi-1shot",
    "art-multi-5shot",
    "mini-imagenet",
    "tiered-imagenet",
    "ablations-plain-multi-5shot",
    "ablations-art-multi-5shot",
    "vertices-art-multi-5shot",
    "edges-plain-multi-5shot",
    "normalisation-plain-multi-5shot",
)
"""Tables that need `arml data prepare`."""
PICTURES = (
    "real-four-1shot-start",
    "specialists-real-four-1shot-start",
    "mini-imagenet-1shot-start",
    "real-four-1shot",
    "specialists-real-four-1shot",
    "real-four-5shot-start",
    "mini-imagenet-5shot-start",
    "mini-imagenet-1shot",
    "real-four-5shot",
    "mini-imagenet-5shot",
    "mini-imagenet-1shot-gpu",
    *(f"searched-real-four-{n}shot{end}" for n in (1, 5) for end in ("-start", "")),
)
"""Tables that need `arml data prepare real-four` and `mini-imagenet`."""
SMOKE = ("regression2d", "ablations-regression2d")

SCALES: dict[str, Scale] = {
    "smoke": Scale("smoke", tiny, SMOKE, (2, 40), (1, 10), 2),
    "laptop": Scale("laptop", hours, LOCAL, (5, 4_000), (1, 1_000), 3),
    "real": Scale("real", measured_on_real, PICTURES, (1, 1_000), (1, 1_000), 3, 200),
    "paper": Scale("paper", whole, (*LOCAL, *BENCHMARKS), (3, 4_000), (1, 4_000), 1),
}
