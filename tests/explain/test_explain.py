"""Looking inside ARML: what is written, what it adds up to, and what is refused."""

from dataclasses import asdict, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arml.algorithms.arml import ARMLOptions, ClassMeans
from arml.algorithms.maml import MAMLOptions
from arml.core.episodes import Problem
from arml.experiment.options import to_json
from arml.experiment.recipes import recipe, started
from arml.experiment.running import Clocked, Run
from arml.explain.explaining import (
    by_family,
    default_threshold,
    explain,
    inside,
    prototype_names,
)
from arml.explain.interventions import code_of, equal, other_codes, silenced, without
from arml.nn.networks import MLPOptions
from arml.results.files import RunError, read_json, write_json
from arml.tasks.functions import FAMILY_NAMES, functions_2d
from arml.training import checkpoint
from arml.training.evaluate import concatenated, looks, score_tasks

VERTICES, TASKS = 5, 60
KEPT = jnp.arange(1, VERTICES)
TINY = replace(
    recipe("regression2d/arml-official"),
    algorithm=ARMLOptions(
        vertices=VERTICES, width=4, inner_steps=1, summary="mlp", normalise="row"
    ),
    network=MLPOptions(hidden=(4,)),
    chunk=25,
)
PROBLEM = Problem("regression", (2,), 1, shots=10, queries=10)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "arml"
    # The initial weights as a checkpoint: to look inside, a run need not have trained.
    splits = TINY.tasks.build(folder / "split.json")
    value = {"recipe": TINY.recipe, "experiment": to_json(TINY), "sources": {}}
    value |= {"problem": asdict(splits.train.problem), "families": list(splits.train.families)}
    write_json(folder / "config.json", value)
    now = Clocked(started(TINY, splits.train.problem), np.zeros(()))
    checkpoint.save(folder / "checkpoints", 2, now)
    return folder


@pytest.fixture(scope="module")
def trained(run: Path) -> Run:
    return Run(run)


@pytest.fixture(scope="module")
def files(run: Path) -> list[Path]:
    return explain(run, run / "explain", tasks=TASKS)


def learner(options):
    net = MLPOptions(hidden=(4,)).build(PROBLEM, key=jax.random.key(0))
    return options.build(net, PROBLEM, key=jax.random.key(1))


def losses(run, changed):
    """What each task loses by a change of the run's learner."""
    scored = [
        score_tasks(one, run.splits.test, split="test", n=TASKS, chunk=25)
        for one in (changed, run.learner)
    ]
    return scored[0].values - scored[1].values, scored[0].families


def test_all_files_are_written_and_returned(run, files):
    names = ["explain.json"]
    for figure in ("knowledge-graph", "links", "effects"):
        names += [f"{figure}.png", f"{figure}.svg"]
    assert [path.relative_to(run / "explain").as_posix() for path in files] == names
    assert all(path.stat().st_size > 1000 for path in files)
    assert {path.name for path in (run / "explain").iterdir()} == {*names}


def test_the_numbers_are_links(files):
    found = read_json(files[0])
    assert found["families"] == list(found["average"])
    assert found["prototype_names"] == ["cluster 0", "cluster 1"]
    assert found["vertices"] == VERTICES
    assert found["tasks"] == TASKS == sum(found["tasks_by_family"].values())
    for family in found["families"]:
        average = found["average"][family]
        assert np.shape(average["mean"]) == (2, VERTICES)
        assert np.min(average["mean"]) >= 0
        np.testing.assert_allclose(np.sum(average["mean"], 1), 1, rtol=1e-5)
        assert np.shape(average["sd"]) == (2, VERTICES)
        assert 0 <= np.min(average["sd"]) <= np.max(average["sd"]) < 1
    links = np.array(found["vertex_links"])
    assert links.shape == (VERTICES, VERTICES)
    np.testing.assert_array_equal(links, links.T)
    np.testing.assert_array_equal(np.diag(links), 0)
    between = links[np.triu_indices(VERTICES, 1)]
    assert 0 < between.min() < between.max() < 1
    assert (between >= found["threshold"]).sum() == len(between) / 2


def test_a_removed_vertex_costs_what_it_costs_and_links_that_reach_nobody_cost_nothing(
    trained, files
):
    found = read_json(files[0])["interventions"]
    assert len(found["vertices"]) == VERTICES
    assert set(found["links"]) == {"all", *FAMILY_NAMES}
    # One row-normalised layer: the prototypes cannot see the links between vertices.
    assert found["links"]["all"]["mean"] == pytest.approx(0, abs=1e-5)
    removed = eqx.tree_at(
        lambda m: m.encode.graph, trained.learner, without(trained.learner.encode.graph, KEPT)
    )
    loss, families = losses(trained, removed)
    assert found["vertices"][0]["all"]["mean"] == pytest.approx(loss.mean(), rel=1e-2, abs=1e-6)
    counts = [found["vertices"][0][name]["n"] for name in FAMILY_NAMES]
    assert counts == [(families == i).sum() for i in range(len(FAMILY_NAMES))]
    rows = [*found["vertices"], found["links"], *found["use"].values()]
    entries = [entry for row in rows for entry in row.values() if entry["p"] is not None]
    ps, adjusted = ([entry[name] for entry in entries] for name in ("p", "adjusted"))
    assert min(adjusted) == pytest.approx(min(1, min(ps) * len(ps)), rel=1e-6)


def test_another_code_costs_what_it_costs(trained, files):
    """By another route: an encoder that gives the same code to all."""
    found = read_json(files[0])["interventions"]["use"]
    assert set(found) == {"equal_vertices", "mean", "own_family", "other_family"}
    learner, test = trained.learner, trained.splits.test
    codes = concatenated(looks(code_of, learner, test, split="test", n=TASKS, chunk=25))[0]
    mean = jnp.asarray(codes.mean(0))
    same = eqx.tree_at(lambda m: m.encode, learner, lambda support: (mean, 0.0))
    loss, _ = losses(trained, same)
    entry = found["mean"]["all"]
    assert entry["mean"] == pytest.approx(loss.mean(), rel=1e-2, abs=1e-6)
    assert entry["median"] == pytest.approx(np.median(loss), rel=1e-2, abs=1e-6)


def test_a_code_is_replaced_by_the_next_tasks() -> None:
    codes, families = np.arange(5.0)[:, None], np.array([0, 1, 0, 0, 1])
    found = other_codes(codes, families)
    np.testing.assert_array_equal(found["mean"], np.full((5, 1), 2.0))
    assert found["own_family"].ravel().tolist() == [2, 4, 3, 0, 1]
    assert found["other_family"].ravel().tolist() == [1, 2, 4, 4, 0]
    assert set(other_codes(codes, np.zeros(5))) == {"mean", "own_family"}


def test_all_vertices_kept_is_the_graph_itself(trained):
    graph = trained.learner.encode.graph
    np.testing.assert_array_equal(without(graph, jnp.arange(VERTICES)).vertices, graph.vertices)
    assert np.max(silenced(graph).connect(graph.vertices)) == 0
    # Equal vertices are read alike.
    links = equal(graph).links(graph.vertices)
    np.testing.assert_allclose(links, 1 / VERTICES, rtol=1e-5)


def test_prototypes_are_named_and_the_median_is_taken_between_different_vertices():
    assert prototype_names(ClassMeans(2), 2) == ["class 0", "class 1"]
    assert default_threshold(np.array([[0, 0.1, 0.2], [0.1, 0, 0.9], [0.2, 0.9, 0]])) == 0.2
    assert default_threshold(np.zeros((1, 1))) == 0.5


def test_one_task_of_a_family_has_no_deviation_and_none_is_refused():
    links, families = np.arange(6.0).reshape(1, 2, 3), np.zeros(1, int)
    one = by_family(links, families, ("only",))["average"]["only"]
    assert np.max(one["sd"]) == 0
    assert one["mean"] == links[0].tolist()
    with pytest.raises(RunError, match=r"none of 1 tasks is of the family 'other'; raise --tasks"):
        by_family(links, families, ("only", "other"))


def test_a_learner_without_a_graph_is_refused():
    def looked(options):
        return inside(options, "r", learner(options), functions_2d(), n=1, chunk=1)

    with pytest.raises(RunError, match="r has no explanation to show; name a run of"):
        looked(MAMLOptions())
    with pytest.raises(RunError, match="a run with vertices 0 has no meta-knowledge graph"):
        looked(ARMLOptions(vertices=0, width=4))


def test_what_is_no_run_or_no_number_of_tasks_is_refused(run, tmp_path):
    with pytest.raises(RunError, match="expected a run folder"):
        explain(tmp_path / "none", tmp_path / "out")
    with pytest.raises(RunError, match="expected one or more tasks, got 0; raise --tasks"):
        explain(run, tmp_path / "out", tasks=0)
    assert not (tmp_path / "out").exists()
