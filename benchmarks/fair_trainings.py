"""One training of the fair comparison: its families, its experiment, and its scores."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arml.algorithms.conditioned import Conditioned
from arml.datasets.decode import FILTERS
from arml.experiment.choose import AVERAGE, choose
from arml.experiment.options import Experiment
from arml.experiment.recipes import recipe
from arml.experiment.running import Run, run
from arml.explain.interventions import interventions
from arml.tasks.conflict import QUESTIONS, ConflictOptions
from arml.tasks.mixture import mixture
from arml.tasks.options import Splits, StarterOptions
from arml.training.evaluate import evaluate

PICTURES = ("glyphs", "icons", "textures")
GROUPS: dict[str, tuple[str, ...]] = {
    **{name: tuple(q for q in QUESTIONS if q.startswith(name)) for name in PICTURES},
    "all": tuple(QUESTIONS),
    "starter": PICTURES,
    "starter-art": (*PICTURES, *(f"{name}-{kind}" for kind in FILTERS for name in PICTURES)),
}
"""Families of the same pictures under two questions, and all six; the starter families, without and
with the blur and the pencil filter."""
SCALED = {"scale": 0.05, "learn_scale": True}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "protonet": ("protonet", SCALED),
    **{f"arml-{n}": ("arml", {"vertices": n}) for n in (1, 2, 4, 8, 16)},
    **{
        f"arml-{n}-mahalanobis": ("arml", {"vertices": n, "head": "mahalanobis"}) for n in (2, 4, 8)
    },
    "mahalanobis": ("protonet", {**SCALED, "metric": "mahalanobis"}),
    "tadam": ("tadam", {**SCALED, "metric": "squared"}),
    "tapnet": ("tapnet", SCALED),
    **{name: (name, {}) for name in ("proto-maml", "maml", "anil", "mumomaml", "hsml")},
    **{name: (name, {}) for name in ("arml-paper", "arml-film")},
}
"""The method of a recipe, and what is changed of it."""
RATES = (0.003, 0.001, 0.01)
"""The outer rates of the search."""
SEARCH_SEED = 0
"""The seed of the search, whichever seeds are trained with the rate that it kept."""
BASELINE = "protonet"
"""The method that all others are compared with."""
SPECIALISTS = {
    "protonet": "a ProtoNet for each family",
    "mahalanobis": "a Mahalanobis ProtoNet for each family",
}
"""Methods that are also trained on each family alone, and the names of their rows."""
WAYS = 5
"""Classes of every task that is scored, and of training tasks if `--train-ways` is not given."""
LONG = 2_000
"""Trainings of at least this many steps are validated ten times."""


@dataclass(frozen=True)
class Training:
    """One training on some families."""

    method: str
    families: tuple[str, ...]
    shots: int
    steps: int
    rate: float
    seed: int
    ways: int = WAYS
    """Classes of a training task."""
    data: str = ""
    """Pictures of one's own, in place of those in the package."""
    averaged: bool = False
    """The learner is the mean of the weights of the last half, at a constant outer rate."""

    @property
    def name(self) -> str:
        """Of its run folder, and in the results."""
        ways = f"{self.ways}way-" if self.ways != WAYS else ""
        ways += "averaged-" if self.averaged else ""
        about = f"{self.shots}shot-{ways}{self.steps}-{self.method}-{self.rate:g}-{self.seed}"
        return f"{self.group}-{about}"

    @property
    def group(self) -> str:
        """The name of its families together."""
        return next((g for g, names in GROUPS.items() if names == self.families), self.families[0])

    def experiment(self) -> Experiment:
        """Conflicting families, and tasks of more classes, have 5 queries a class, to save time."""
        method, changes = METHODS[self.method]
        conflict = conflicting(self.families)
        setting = "folders" if self.data else "starter-conflict" if conflict else self.group
        base = recipe(f"{setting}/{method}")
        if self.data:
            own = replace(choose([self.data])[0], steps=self.steps)
            base = replace(base, tasks=own.tasks, network=own.network)
        asked: dict[str, Any] = {"queries": 5} if conflict or self.ways != WAYS else {}
        asked |= {"families": self.families} if conflict else {}
        asked |= {"train_ways": self.ways} if self.ways != WAYS else {}
        mean: dict[str, Any] = {"schedule": "constant", "average": AVERAGE} if self.averaged else {}
        parts, validation = (10, 200) if self.steps >= LONG else (1, 10)
        return replace(
            base,
            tasks=replace(base.tasks, shots=self.shots, **asked),
            algorithm=replace(base.algorithm, **changes),
            outer=replace(base.outer, outer_rate=self.rate, **mean),
            steps=self.steps,
            seed=self.seed,
            checkpoint_every=20,
            validate_every=max(20, self.steps // parts // 20 * 20),
            validation_tasks=validation,
        )


def conflicting(families: Sequence[str]) -> bool:
    """Whether families ask questions of the same pictures. Only these have specialists here."""
    return families[0] in QUESTIONS


def tasks_of(training: Training, families: Sequence[str], made: Run) -> Splits:
    """The splits of all families of a training, or of one."""
    if training.data:
        return made.splits
    if conflicting(families):
        options = ConflictOptions(shots=training.shots, queries=10, families=tuple(families))
        return options.build(Path("none"))
    splits = StarterOptions(shots=training.shots, art=training.group == "starter-art").build(Path())
    if len(families) > 1:
        return splits
    return splits._replace(test=mixture(splits.test).only(families[0]))


def trained(training: Training, runs: Path) -> Run:
    """Its finished run folder."""
    folder = runs / training.name
    run(training.experiment(), folder)
    return Run(folder)


def validated(training: Training, runs: Path, *, tasks: int) -> dict[str, Any]:
    """Train, and score on validation tasks of all its families."""
    made = trained(training, runs)
    splits = tasks_of(training, training.families, made)
    found = evaluate(made.learner, splits, n=tasks, split="validation", progress=False)
    entry = {"validation": found.mean, "seconds": made.seconds, "steps": made.step}
    if training.steps < LONG:
        return entry
    return entry | {
        "curve": {m["step"]: m["validation"] for m in made.metrics if "validation" in m}
    }


def tested(training: Training, runs: Path, *, tasks: int) -> dict[str, Any]:
    """The scores on test tasks of each family, and what each part of the graph does."""
    made = trained(training, runs)
    learner = made.learner
    found: dict[str, Any] = {"test": {}}
    for family in training.families:
        splits = tasks_of(training, (family,), made)
        values = evaluate(learner, splits, n=tasks, progress=False).values
        found["test"][family] = " ".join(f"{value:.4f}".rstrip("0") for value in values)
    if isinstance(learner, Conditioned) and METHODS[training.method][0] == "arml":
        test = tasks_of(training, training.families, made).test
        known = interventions(learner, test, n=tasks, chunk=10)
        found["interventions"] = {
            name: {
                group: {key: entry[key] for key in ("mean", "ci95", "adjusted")}
                for group, entry in groups.items()
            }
            for name, groups in {
                **known["use"],
                **{f"V{i}": groups for i, groups in enumerate(known["vertices"])},
            }.items()
        }
    return found
