"""Where do a learner in context (TNP) and a closed-form head (R2-D2) stand beside ARML, after equal
searches? On 2-D regression, and on the vectors that the network of `photos` makes of pictures.

    python -m study.contexts regression tnp --steps 30000
    python -m study.contexts vectors clothing.zip foods.zip ... --data vectors.npz
    python -m study.contexts photos r2d2 --shots 5 --data vectors.npz
    python -m study.contexts collect                            # results/contexts.json

Each method is trained at the same outer rates with the same schedule: a warm-up over 2% of the
steps, half a cosine, gradients clipped at 10. The rate with the best score on validation tasks is
kept. All rates and seeds run side by side as one program, which a GPU carries out in little more
time than one of them: on a CPU give fewer seeds.

2-D regression: four rates at five seeds each; the test tasks are those of the study. Photographs:
three rates, three seeds. The classes of each set of pictures are divided: 5 in 8 for training, 1 in
8 for validation, 1 in 4 for test; a set of 10 or 11 classes has 5 for test and none for validation.
*Held-out classes*: trained on all sets, tested on the test classes. *Held-out sets*: trained on the
other sets, tested on all classes of the set. The body is the identity plus two dense layers, whose
output is zero at first: so training starts from the class means, or the ridge regression, of the
vectors themselves. TNP reads the vectors.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree
from scipy.special import stdtrit
from sklearn.linear_model import LogisticRegression

import arml
from arml.core.checks import Options
from arml.core.episodes import Problem, Task, TaskDistribution
from arml.core.losses import score_of
from arml.datasets.folders import open_source
from arml.nn.heads import PrototypeHead
from arml.predict.photos import PhotoLearner, fit_head, unit_roots
from arml.results.comparisons import error_of
from arml.tasks.images import Table, draw, examples
from arml.training.evaluate import split_keys
from arml.training.fit import OuterOptions, make_step, start, training_key
from study.data import RESULTS, load

OUTER = OuterOptions(clip=10.0, warmup=0.02, schedule="cosine")
RATES = (0.0005, 0.001, 0.002, 0.004)
"""The outer rates of the search on 2-D regression."""
PHOTO_RATES = (0.0001, 0.0005, 0.0025)
PIECE = 100
"""Steps of one call of the compiled program."""
Of = Callable[[PyTree, PyTree], TaskDistribution]
"""From what all trainings share, and a training's own arrays, to its tasks."""


def trained(
    made: arml.Experiment,
    of: Of,
    shared: PyTree,
    own: PyTree,
    *,
    seeds: Sequence[int],
    rates: Sequence[float],
    steps: int,
) -> PyTree:
    """The learners, stacked, of trainings side by side: training i has `seeds[i]`, `rates[i]` and
    the tasks `of(shared, own[i])`."""
    problem = of(shared, jax.tree.map(lambda a: a[0], own)).problem
    first = {seed: initial(made, problem, seed) for seed in {*seeds}}
    keys = jnp.stack([jax.random.key_data(training_key(seed)) for seed in seeds])

    def optimiser(rate: Array, steps: Array) -> Any:
        traced: Any = rate
        return replace(made.outer, outer_rate=traced).build(steps)

    @eqx.filter_jit
    def begun(learners: PyTree, rates: Array, steps: Array) -> PyTree:
        return eqx.filter_vmap(lambda learner, rate: start(learner, optimiser(rate, steps)))(
            learners, rates
        )

    def one(shared: PyTree, steps: Array, own: PyTree, rate: Array, key: Array, now: PyTree) -> Any:
        moves = optimiser(rate, steps)
        step = make_step(moves, batch=made.batch, key=jax.random.wrap_key_data(key))
        moving, rest = eqx.partition(now, eqx.is_array)

        def body(moving: PyTree, _: None) -> tuple[PyTree, None]:
            state = step(of(shared, own), eqx.combine(moving, rest))[0]
            return eqx.filter(state, eqx.is_array), None

        moving, _ = jax.lax.scan(body, moving, None, length=PIECE)
        return eqx.combine(moving, rest)

    @eqx.filter_jit(donate="all-except-first")
    def piece(given: tuple[PyTree, ...], states: PyTree) -> PyTree:
        along = (None, None, *(eqx.if_array(0),) * 4)
        return eqx.filter_vmap(one, in_axes=along)(*given, states)

    given = (shared, jnp.asarray(steps), own, jnp.asarray(rates, jnp.float32), keys)
    states = begun(stacked([first[seed] for seed in seeds]), given[3], given[1])
    for _ in range(steps // PIECE):
        states = piece(given, states)
    return states.learner


def stacked(trees: Sequence[PyTree]) -> PyTree:
    """Their arrays along a new first axis."""
    return jax.tree.map(lambda a, *more: jnp.stack([a, *more]) if eqx.is_array(a) else a, *trees)


def scores(
    learners: PyTree, of: Of, shared: PyTree, own: PyTree, split: str, n: int, chunk: int = 50
) -> np.ndarray:
    """`[trainings, n]`: the score of each training on the first `n` of its tasks."""
    score = score_of(of(shared, jax.tree.map(lambda a: a[0], own)).problem)[1]

    def one(shared: PyTree, own: PyTree, keys: Array, learner: PyTree) -> Array:
        def each(key: Array) -> Array:
            task_key, adapt_key = jax.random.split(key)
            task = of(shared, own).sample(task_key)
            predict = learner.adapt(task.support, key=adapt_key).predict
            return score(predict(task.query.x), task.query.y)

        return jax.vmap(each)(keys)

    along = (None, eqx.if_array(0), None, eqx.if_array(0))
    some = eqx.filter_jit(eqx.filter_vmap(one, in_axes=along))
    parts = [some(shared, own, split_keys(split, k, chunk), learners) for k in range(0, n, chunk)]
    return np.concatenate([np.asarray(part) for part in parts], axis=1)[:, :n]


def save(path: Path, about: dict[str, Any], **arrays: np.ndarray) -> None:
    """Scores, with facts beside them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    small: dict[str, Any] = {name: array.astype(np.float32) for name, array in arrays.items()}
    np.savez_compressed(path, about=json.dumps(about), **small)
    print(path.stem, about, {k: v.mean(axis=-1).round(4).tolist() for k, v in small.items()})


def regression(method: str, steps: int, out: Path, seeds: int, tasks: tuple[int, int]) -> None:
    """2-D regression: every rate at every seed; the test scores at the best rate."""
    jax.config.update("jax_default_matmul_precision", "highest")
    made = replace(arml.recipe(f"regression2d/{method}"), outer=OUTER)
    drawn, lanes = made.tasks.build(Path()).test, [(r, s) for r in RATES for s in range(seeds)]

    def of(shared: PyTree, own: PyTree) -> TaskDistribution:
        return drawn

    own, (rates, each) = jnp.zeros(len(lanes)), zip(*lanes, strict=True)
    learners = trained(made, of, None, own, seeds=each, rates=rates, steps=steps)
    shape = len(RATES), seeds, -1
    tried = scores(learners, of, None, own, "validation", tasks[0]).reshape(shape).mean(axis=(1, 2))
    best = int(np.nanargmin(tried))
    found = scores(learners, of, None, own, "test", tasks[1]).reshape(shape)[best]
    about = {"steps": steps, "rate": RATES[best], "validation": tried.round(4).tolist()}
    save(out / f"regression-{method}-{steps}.npz", about, test=found)


# --- photographs


class Sets(TaskDistribution):
    """Tasks of one of the first `count` sets of `which`."""

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    which: Int[Array, " sets"]
    count: Int[Array, ""]
    vectors: Array
    table: Table

    def sample(self, key: PRNGKeyArray) -> Task:
        key, set_key = jax.random.split(key)
        family = self.which[jax.random.randint(set_key, (), 0, self.count)]
        of_one = (a[family][None] for a in (self.table.first_class, self.table.classes))
        table = Table(self.table.first, self.table.count, *of_one)
        drawn, shots = draw(table, self.problem, key=key), self.problem.shots
        support, query = (
            examples(self.vectors[part.reshape(-1)], self.problem.outputs)
            for part in (drawn.images[:, :shots], drawn.images[:, shots:])
        )
        return Task(support, query, family)


class Residual(eqx.Module):
    """x + b(relu(a(x)))."""

    a: arml.Linear
    b: arml.Linear

    def __call__(self, x: Array) -> Array:
        return x + self.b(jax.nn.relu(self.a(x)))


@dataclass(frozen=True)
class ResidualOptions(Options):
    """One residual block, which is the identity at first."""

    width: int = 256

    def build(self, problem: Problem, *, key: PRNGKeyArray) -> Any:
        """The network."""
        keys, size = jax.random.split(key, 3), problem.features[0]
        zero = jax.nn.initializers.zeros
        first = arml.linear(size, self.width, key=keys[0])
        block = Residual(first, arml.linear(self.width, size, init=zero, key=keys[1]))
        return arml.network([block], arml.linear(size, problem.outputs, key=keys[2]))


CHANGES: dict[str, dict[str, Any]] = {
    "protonet": {"scale": 10.0, "learn_scale": True},
    "r2d2": {},
    "arml": {},
    "tnp": {},
}
"""Methods, and the changes of their recipes: distances of unit vectors are small."""


def on_vectors(method: str) -> arml.Experiment:
    """The experiment of a method on the vectors of pictures."""
    made = arml.recipe(f"features/{method}")
    options: Any = replace(made, outer=OUTER, network=ResidualOptions())
    return replace(options, algorithm=replace(options.algorithm, **CHANGES[method]))


def initial(made: arml.Experiment, problem: Problem, seed: int) -> arml.MetaLearner:
    """A learner before training; the head of ARML has the initial scale of ProtoNet."""
    learner: Any = arml.build(made, problem, seed=seed)
    if isinstance(getattr(learner, "head", None), PrototypeHead):
        return eqx.tree_at(lambda one: one.head.scale, learner, jnp.asarray(10.0))
    return learner


def class_means(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The cosine to the class means."""
    means = np.stack([x[y == k].mean(axis=0) for k in range(5)])
    return new @ (means / np.linalg.norm(means, axis=1, keepdims=True)).T


def logistic(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Logistic regression, with the strength that `benchmarks/photos.py` has."""
    return LogisticRegression(C=10, max_iter=1000).fit(x, y).decision_function(new)


def head(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The head of `photos`, which takes the roots itself."""
    return fit_head(np.sign(x) * x * x, y, 5).logits(np.sign(new) * new * new)


UNTRAINED = {"class means": class_means, "logistic regression": logistic, "photos": head}
PARTS = ("train", "validation", "test", "all")
MANY = 40
"""A set of fewer classes has none for validation."""


def tables(classes: np.ndarray, counts: np.ndarray) -> dict[str, Table]:
    """The table of each part, from the number of classes of each set and of pictures of each
    class."""
    rng, first = np.random.default_rng(0), np.cumsum(counts) - counts
    places: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
    for n, begin in zip(classes, np.cumsum(classes) - classes, strict=True):
        order = begin + rng.permutation(n)
        test, validation = (5, 0) if n < MANY else (n // 4, n // 8)
        cut = np.split(order, [test, test + validation])
        for part, own in zip(PARTS, (cut[2], cut[1], cut[0], order), strict=True):
            places[part].append(own)
    made = {}
    for part, own in places.items():
        sizes, every = np.array([len(some) for some in own]), np.concatenate(own)
        parts = first[every], counts[every], np.cumsum(sizes) - sizes, sizes
        made[part] = Table(*(jnp.asarray(a, jnp.int32) for a in parts))
    return made


def photos(method: str, shots: int, data: Path, out: Path, steps: int, seeds: int, n: int) -> None:
    """One method on vectors, trained on all sets and on all but each; or one without training."""
    held = np.load(data)
    names, classes, counts = (held[k].tolist() for k in ("names", "classes", "counts"))
    vectors = jnp.asarray(held["vectors"], jnp.float32)
    vectors = vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)
    problem = Problem("classification", vectors.shape[1:], 5, shots, 5)
    shared = (vectors, tables(np.array(classes), np.array(counts)))
    sets = range(len(names))

    def of(part: str) -> Of:
        def made(shared: PyTree, own: PyTree) -> TaskDistribution:
            return Sets(
                families=tuple(names),
                problem=problem,
                which=own[0],
                count=own[1],
                vectors=shared[0],
                table=shared[1][part],
            )

        return made

    def only(*some: int) -> tuple[Array, Array]:
        padded = [*some, *[0] * (len(names) - len(some))]
        return jnp.asarray(padded, jnp.int32), jnp.asarray(len(some), jnp.int32)

    about: dict[str, Any] = {"names": names}
    if method in UNTRAINED:
        found = {
            kind: np.stack([untrained(method, of(part)(shared, only(s)), n)[None] for s in sets])
            for kind, part in (("classes", "test"), ("sets", "all"))
        }
        save(out / f"photos-{method}-{shots}.npz", about, **found)
        return
    made = on_vectors(method)
    left_out = (-1, *sets)
    lanes = [(h, rate, seed) for h in left_out for rate in PHOTO_RATES for seed in range(seeds)]
    others = [[s for s in sets if s != h] for h, *_ in lanes]
    learners = trained(
        made,
        of("train"),
        shared,
        stacked([only(*some) for some in others]),
        seeds=[seed for *_, seed in lanes],
        rates=[rate for _, rate, _ in lanes],
        steps=steps,
    )

    def scored(part: str, chosen: Sequence[Sequence[int]], split: str) -> np.ndarray:
        own = stacked([only(*some) for some in chosen])
        found = scores(learners, of(part), shared, own, split, n)
        return found.reshape(len(left_out), len(PHOTO_RATES), seeds, n)

    many = [[s for s in some if classes[s] >= MANY] for some in others]
    best = np.nanargmax(scored("validation", many, "validation").mean(axis=(2, 3)), axis=1)
    own_set = scored("all", [[max(h, 0)] for h, *_ in lanes], "test")
    of_classes = [scored("test", [[s]] * len(lanes), "test")[0, best[0]] for s in sets]
    save(
        out / f"photos-{method}-{shots}.npz",
        {**about, "rates": [PHOTO_RATES[i] for i in best], "steps": steps},
        classes=np.stack(of_classes),
        sets=np.stack([own_set[s + 1, best[s + 1]] for s in sets]),
    )


def untrained(method: str, tasks: TaskDistribution, n: int) -> np.ndarray:
    """Its accuracy on each of the first `n` test tasks."""
    keys = jax.vmap(lambda key: jax.random.split(key)[0])(split_keys("test", 0, n))
    sample = eqx.filter_jit(lambda tasks, keys: jax.vmap(tasks.sample)(keys))
    drawn = jax.tree.map(np.asarray, sample(tasks, keys))
    found = []
    for x, y, new, wanted in zip(*drawn.support, *drawn.query, strict=True):
        found.append(np.mean(UNTRAINED[method](x, y, new).argmax(axis=1) == wanted))
    return np.array(found)


def write_vectors(zips: Sequence[Path], data: Path) -> None:
    """Signed roots of the vectors of pictures, in 8 bits: at most 120 classes of a set, and 20
    pictures of a class, or 40 where there are few classes."""
    learner, parts = PhotoLearner(), []
    for path in zips:
        with open_source(path) as listed:
            usable = [c for c, images in listed.classes.items() if len(images) >= 10]
            picked = np.linspace(0, len(usable) - 1, min(120, len(usable))).round().astype(int)
            each = 20 if len(usable) >= MANY else 40
            own = [listed.classes[usable[i]][:each] for i in picked]
            roots = unit_roots(learner.embed([image.read() for images in own for image in images]))
        small = np.rint(roots / np.abs(roots).max() * 127).astype(np.int8)
        parts.append((small, [len(images) for images in own]))
    np.savez_compressed(
        data,
        vectors=np.concatenate([vectors for vectors, _ in parts]),
        counts=np.concatenate([counts for _, counts in parts]),
        classes=[len(counts) for _, counts in parts],
        names=[path.stem for path in zips],
    )


# --- results

PHOTOGRAPHS = ["stamps", "foods", "clothing"]


def difference(a: np.ndarray, b: np.ndarray | float = 0.0) -> list[float]:
    """The mean of `a - b` `[trainings, tasks]` with half of its 95% interval, over trainings and
    tasks: Eq. (1) of `arml.results.comparisons`, where a single training counts as exact."""
    b = np.zeros_like(a[:1]) if isinstance(b, float) else b
    gaps = a.mean(axis=0) - b.mean(axis=0)
    error, degrees = error_of(gaps, [m.mean(axis=1) for m in (a, b) if len(m) > 1])
    return [round(float(x), 5) for x in (gaps.mean(), stdtrit(degrees, 0.975) * error)]


def collect(folder: Path) -> None:
    """Write `results/contexts.json`: means with half of their 95% intervals, and differences; those
    to HSML and to the paper's ARML are to the study's own runs. The folder also has the
    `methods.json` that `benchmarks/maml.py` wrote on the same machine."""
    read = {path.stem: np.load(path) for path in sorted(folder.glob("*.npz"))}
    about = {name: json.loads(str(file["about"])) for name, file in read.items()}
    of_study = load(RESULTS / "laptop").table("regression2d")
    assert of_study is not None
    known = {row.label: np.stack([s.values for s in row.scores.values()]) for row in of_study.rows}
    ours, rows = read["regression-arml-70000"]["test"], dict[str, Any]()
    photographs: dict[str, dict[str, Any]] = {}
    for name, file in read.items():
        kind, method, which = name.split("-")
        if kind == "regression":
            test = file["test"].astype(float)
            rows[f"{method}, {int(which):,} steps"] = {
                **{key: about[name][key] for key in ("steps", "rate", "validation")},
                "seeds": test.mean(axis=1).round(4).tolist(),
                "mse": difference(test),
                "less arml": difference(test, ours) if method != "arml" else None,
                "less HSML": difference(test, known["HSML"]),
                "less ARML, paper's text": difference(test, known["ARML, paper's text"]),
            }
            continue
        plain, names = read[f"photos-class means-{which}"], np.array(about[name]["names"])
        own: dict[str, Any] = {"rates": about[name].get("rates")}
        for kind in ("classes", "sets"):
            own[f"held-out {kind}"] = parts = {}
            groups = {n: [n] for n in names}
            groups |= {
                "photographs": PHOTOGRAPHS,
                "other": [n for n in names if n not in PHOTOGRAPHS],
            }
            for group, members in groups.items():
                some = np.isin(names, members)
                a, b = (
                    np.concatenate(list(f[kind][some].astype(float)), axis=1) for f in (file, plain)
                )
                parts[group] = [
                    difference(a),
                    *([difference(a, b)] if method != "class means" else []),
                ]
        photographs.setdefault(f"{which}-shot", {})[method] = own
    # Measured on one core of the machine of the trainings.
    times = json.loads((folder / "methods.json").read_text(encoding="utf-8"))["results"]
    seconds = {pair["pair"][1]: pair["theirs_seconds"] for pair in times}
    content = {"seconds a step": seconds, "regression": rows, "photographs": photographs}
    (RESULTS / "contexts.json").write_text(json.dumps(content) + "\n", encoding="utf-8")


def main() -> None:
    """Carry out one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("regression", "vectors", "photos", "collect"))
    parser.add_argument("given", nargs="*", help="a method, or zips")
    parser.add_argument("--out", type=Path, default=Path("runs/contexts"))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--data", type=Path, help="the file of vectors")
    got = parser.parse_args()
    warnings.simplefilter("ignore")
    if got.what == "regression":
        regression(got.given[0], got.steps or 70_000, got.out, got.seeds or 5, (1_000, 4_000))
    elif got.what == "vectors":
        write_vectors([Path(one) for one in got.given], got.data)
    elif got.what == "photos":
        photos(got.given[0], got.shots, got.data, got.out, got.steps or 2_000, got.seeds or 3, 200)
    else:
        collect(got.out)


if __name__ == "__main__":
    main()
