"""Options as data: what is refused, when, and what a refusal leaves behind."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import arml
import small_pictures
from arml.algorithms.arml_extensions import ExtendedARMLOptions
from arml.core.checks import check_options
from arml.core.episodes import Problem
from arml.experiment.options import Experiment, absolute, fingerprint, from_json, to_json
from arml.experiment.recipes import build, recipe
from arml.experiment.running import check_claim, run
from arml.nn.networks import MLPOptions, linear
from arml.results.files import RunError, write_json
from arml.tasks.functions import functions_2d
from arml.tasks.options import FoldersOptions
from arml.training.fit import fit
from small import one_line


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    return small_pictures.pictures(tmp_path / "colours", 0, classes=10)


def episodes(*data: Path, **change: int) -> FoldersOptions:
    usual = {"shots": 1, "queries": 2, "ways": 2, "size": 16}
    return FoldersOptions(data=tuple(map(str, data)), **{**usual, **change})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ways": 1}, "ways must be at least 2, got 1"),
        ({"shots": 0}, "shots must be at least 1, got 0"),
        ({"queries": 0}, "queries must be at least 1, got 0"),
        ({"size": 8}, "size must be from 16 to 1024 px, got 8"),
        ({"data": ()}, "give --data"),
        ({"ways": 9}, "for 9-way tasks"),
        ({"train_ways": 9}, "for 9-way tasks"),
        ({"train_ways": 1}, "train_ways must be 0 or at least the 2 ways, got 1"),
        ({"queries": 4}, r"at least 5 examples of each class .*, got 4 in 'class0'"),
        ({"data": ("none",)}, "none: expected a folder or an archive"),
    ],
)
def test_image_options_are_refused_before_any_image_is_decoded(
    pictures, tmp_path, monkeypatch, change, said
):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr("arml.datasets.folders.decoded", refuse)
    with pytest.raises(ValueError, match=said):
        dataclasses.replace(episodes(pictures), **change).build(tmp_path / "split.json")
    assert not (tmp_path / "split.json").exists()


def test_training_tasks_may_have_more_ways(pictures, tmp_path):
    splits = episodes(pictures, train_ways=3).build(tmp_path / "split.json")
    ways = [part.problem.outputs for part in (splits.train, splits.validation, splits.test)]
    assert ways == [3, 2, 2]


def test_a_split_with_another_seed_is_refused(pictures, tmp_path):
    split = tmp_path / "split.json"
    first = episodes(pictures, split_seed=1).build(split)
    before = split.read_bytes()
    assert json.loads(before)["seed"] == 1
    again = episodes(pictures, split_seed=1).build(split)
    assert again.sources == first.sources
    np.testing.assert_array_equal(again.test.pixels, first.test.pixels)
    with pytest.raises(ValueError, match="with the seed 2, got one with 1; give that split seed"):
        episodes(pictures, split_seed=2).build(split)
    assert split.read_bytes() == before


def described(change: dict[str, Any]) -> Any:
    """A whole configuration, as read from JSON, `part.name` set or (None) removed."""
    value = json.loads(json.dumps(to_json(recipe("regression2d/arml"))))
    for path, new in change.items():
        *parts, name = path.split(".")
        inside = value[parts[0]] if parts else value
        if new is None:
            del inside[name]
        else:
            inside[name] = new
    return value


def test_what_json_holds_is_read_back():
    for name in ("regression2d/arml", "folders/arml"):
        value = json.loads(json.dumps(to_json(recipe(name))))
        assert from_json(value, "c") == recipe(name)
    # A whole number serves for a float, and what is not there has its default.
    found = from_json(described({"tasks.noise": 1, "seed": None}), "c")
    assert (found.tasks.noise, found.seed) == (1, 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"recipe": None}, "experiment: Object missing required field `recipe`;"),
        ({"steps": True}, "experiment: Expected `int`, got `bool` - at `$.steps`;"),
        ({"outer": 3}, "expected outer to be one of adam, got 3"),
        ({"network": [1]}, "expected network to be one of mlp, conv4, resnet12, "),
        ({"tasks.kind": ["a"]}, "expected tasks to be one of functions, folders, "),
        ({"tasks.noise": "loud"}, "tasks: Expected `float`, got `str` - at `$.noise`;"),
        ({"network.hidden": [8, "x"]}, "network: Expected `int`, got `str` - at `$.hidden[1]`;"),
        ({"network.hidden": [10**9]}, "network: Expected `int` <= 100000 - at `$.hidden[0]`;"),
        ({"network.init": "odd"}, "network: Invalid enum value 'odd' - at `$.init`"),
        ({"algorithm.odd": 1}, "algorithm: Object contains unknown field `odd`;"),
    ],
)
def test_a_configuration_that_is_none_is_one_line(change, said):
    with pytest.raises(RunError, match=one_line(re.escape(f"config.json: {said}"))):
        from_json(described(change), "config.json")
    with pytest.raises(RunError, match="expected an experiment, found none"):
        from_json([], "config.json")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("outer.optimiser", "Adam", "optimiser must be one of 'adam', 'adamw', .*'Adam'"),
        ("outer.encoder_factor", -1.0, "encoder_factor must be 0 or more, got -1.0"),
        ("outer.momentum", 0.9, "the optimiser adam has no momentum: .* rmsprop or sgd"),
        ("outer.outer_rate", "0.1", "outer_rate must be a finite number, got '0.1'"),
        ("outer.outer_rate", math.nan, "outer_rate must be a finite number"),
        ("outer.outer_rate", 0.0, "outer_rate must be above 0, got 0"),
        ("outer.clip", math.inf, "clip must be a finite number, got inf"),
        ("algorithm.inner_steps", 2.5, "inner_steps must be a whole number, got 2.5"),
        ("algorithm.first_order", "no", "first_order must be True or False, got 'no'"),
        ("network.init", "odd", "init must be one of 'authors', 'he', got 'odd'"),
        ("network.hidden", [40, 40], r"hidden must be a tuple, got \[40, 40\]"),
        ("network.hidden", (40, 0.5), "hidden must be a tuple, each a whole number, got"),
        ("network.hidden", (8, -1), r"hidden must be a tuple, each at least 1, got \(8, -1\)"),
        ("tasks.noise", math.nan, "noise must be a finite number, got nan"),
        (".batch", True, "batch must be a whole number, got True"),
        (".seed", -1, "seed must be 0 or more, got -1"),
        (".seed", 2**32, "seed must be at most 4,294,967,295"),
    ],
)
def test_options_are_checked_wherever_they_enter(path, value, said, tmp_path):
    experiment = recipe("regression2d/maml")
    tasks, (part, _, name) = experiment.tasks, path.partition(".")
    inside = dataclasses.replace(getattr(experiment, part) if part else experiment)
    object.__setattr__(inside, name, value)  # without the tests' own check of types
    experiment = dataclasses.replace(experiment, **{part: inside}) if part else inside
    with pytest.raises(ValueError, match=one_line(said)):
        run(experiment, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    if part in ("network", "outer"):
        with pytest.raises(ValueError, match=said):
            build(experiment, tasks)
    if part == "outer":
        with pytest.raises(ValueError, match=said):
            fit(build("maml", tasks), tasks, steps=1, outer=inside)


def test_a_bound_holds_for_a_float_too():
    with pytest.raises(ValueError, match=r"mu must be at most 1,000, got 5000\.0"):
        check_options(ExtendedARMLOptions(mu=5000.0))


def test_data_are_told_by_absolute_paths(pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    whole = Experiment("r", tasks=episodes(pictures))
    for given in ("~/colours", "colours", "./x/../colours"):
        assert absolute(dataclasses.replace(whole, tasks=episodes(Path(given)))) == whole
    write_json(tmp_path / "config.json", {"experiment": to_json(whole)})
    check_claim(dataclasses.replace(whole, tasks=episodes(Path("colours"))), tmp_path)


def test_a_fingerprint_is_of_all_options_but_seed_and_place(pictures):
    one = Experiment("r", tasks=episodes(pictures))
    same = dataclasses.replace(one, seed=5, tasks=episodes(Path("elsewhere")))
    assert fingerprint(one) == fingerprint(same)
    for other in (
        dataclasses.replace(one, batch=5),
        dataclasses.replace(one, network=MLPOptions(hidden=(3,))),
        dataclasses.replace(one, tasks=episodes(pictures, shots=2)),
    ):
        assert fingerprint(one) != fingerprint(other)


SHORT = dict.fromkeys(("interval", "checkpoint_every", "validate_every", "batch"), 1)


def narrow(problem, *, key, width: int = 3):
    layer = linear(problem.features[0], width, key=key)
    return arml.network([layer], linear(width, problem.outputs, key=key))


@pytest.mark.usefixtures("optax_promotes")
def test_a_mapping_changes_options_of_any_part(tmp_path):
    name, tasks = "regression2d/maml", functions_2d(shots=3)
    parts = {"algorithm": {"inner_rate": 0.01}, "outer": {"clip": 1.0}, "network": {"hidden": (3,)}}
    made = run(name, tmp_path, steps=1, tasks={"shots": 3}, validation_tasks=2, **SHORT, **parts)
    own = made.experiment
    for part, options in parts.items():
        usual = getattr(recipe(name), part)
        assert getattr(own, part) == dataclasses.replace(usual, **options)
    assert (own.tasks.shots, own.algorithm.inner_steps, own.recipe) == (3, 5, name)
    learner = build("maml", tasks, network={"hidden": (3,)})
    assert learner.net.head.weight.shape == (3, 1)
    assert build("protonet", Problem("classification", (4,), 3, 1, 1), network=narrow).scale == 1
    assert fit(learner, tasks, steps=1, outer={"clip": 2.0}).options.outer.clip == 2.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"network": {"width": 3}}, "MLPOptions has no option 'width': expected hidden or init"),
        ({"network": "resnet"}, "unknown network 'resnet'; did you mean 'resnet12'"),
        ({"network": narrow}, "got NarrowOptions: call arml.register"),
        ({"outer": {"rate": 0.1}}, "OuterOptions has no option 'rate'; did you mean 'outer_rate'"),
        ({"tasks": {"shotz": 1}}, "regression2d/maml has no option 'shotz'; did you mean 'shots'"),
        ({"inner_rate": 0.1}, "unknown option 'inner_rate': give algorithm={'inner_rate': 0.1}"),
        ({"shots": 3}, "unknown option 'shots': give tasks={'shots': 3}"),
        ({"callbacks": [lambda: True]}, "expected callbacks=.FUNCTION, .*, each a function of"),
    ],
)
def test_what_no_part_can_be_is_one_line_before_any_work(options, said, tmp_path):
    with pytest.raises(ValueError, match=one_line(said)):
        run("regression2d/maml", tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_what_is_not_options_is_named():
    module = linear(1, 1, key=jax.random.key(0))
    for wrong, name in ((MLPOptions, "MLPOptions"), (module, "Linear"), ({}, "dict"), ("", "str")):
        with pytest.raises(ValueError, match=f"a mapping that changes the usual ones, got {name}"):
            check_options(wrong)


def test_the_shape_of_a_recipe_is_all_that_its_function_changes():
    for odd in ("ways", "inner_rate"):
        with pytest.raises(ValueError, match=f"expected queries or shots, got {odd}: arml.run set"):
            recipe("regression2d/maml", **{odd: 3})
