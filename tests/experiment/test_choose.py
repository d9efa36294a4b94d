"""`arml train --data` without a recipe: what is chosen, what is refused, and that it runs."""

from dataclasses import replace

import pytest

from arml.datasets.splits import part_sizes
from arml.experiment.choose import SHORT_MINUTES, choose, paced
from arml.experiment.recipes import recipe
from arml.nn.networks import MLPOptions
from arml.results.folder import read_run
from small_pictures import pictures

pytestmark = pytest.mark.usefixtures("optax_promotes")


@pytest.mark.parametrize(
    ("counts", "size", "chosen"),
    [
        ([20] * 20, 40, (5, 5, 15, 32)),
        ([20] * 12 + [6], 24, (3, 1, 5, 24)),
        ([2] * 6, 9, (2, 1, 1, 16)),
        ([9, 30, 80] * 4, 64, (3, 2, 7, 32)),
    ],
)
def test_the_choice_suits_the_data(tmp_path, counts, size, chosen):
    counts = [min(count, 25) for count in counts]
    experiment, why = choose([str(pictures(tmp_path / "birds", 0, counts=counts, size=size))])
    assert experiment.recipe == "folders/protonet-turns"
    tasks = experiment.tasks
    assert (tasks.ways, tasks.shots, tasks.queries, tasks.size) == chosen
    assert min(part_sizes(len(counts), least=tasks.ways)) >= tasks.ways
    assert experiment.network.normalisation == "support"
    experiment.check()
    said = "\n".join(why)
    options = ("ways", "shots", "queries", "size", "normalisation", "average")
    for word in ("families 1", *options):
        assert word in said


def test_what_is_fixed_is_not_chosen(tmp_path):
    data = [str(pictures(tmp_path / name, 0, counts=[12] * 12)) for name in ("birds", "cars")]
    experiment, _ = choose(data, fixed={"shots": 4})
    tasks = experiment.tasks
    assert (tasks.ways, tasks.shots, tasks.queries) == (3, 4, 8)
    for fixed in ({"size": 0}, {"ways": 1}):
        with pytest.raises(ValueError, match=r"(size|ways) must be (from|at least|above)"):
            choose(data, fixed=fixed)


def test_a_short_training_has_smaller_steps(tmp_path):
    data = [str(pictures(tmp_path / "birds", 0, counts=[12] * 12))]
    long, short = (
        choose(data, minutes=minutes)[0] for minutes in (SHORT_MINUTES, SHORT_MINUTES - 0.01)
    )
    assert (long.batch, short.batch) == (4, 2)
    # Validations come after equally many tasks.
    assert long.batch * long.validate_every == short.batch * short.validate_every == 800


@pytest.mark.slow
def test_the_steps_fit_in_the_minutes_at_the_pace_of_the_first():
    small = {"batch": 2, "chunk": 2, "interval": 4, "validate_every": 80, "validation_tasks": 4}
    small |= {"scan": False, "steps": 10**7, "network": MLPOptions(hidden=(8,))}
    one = replace(recipe("regression2d/maml"), **small)
    steps = [paced(one, minutes).steps for minutes in (1.0, 1e6)]
    assert 120 <= steps[0] < steps[1] == one.steps
    assert steps[0] % one.interval == 0
    assert paced(one, 0.01).steps == one.interval
    with pytest.raises(ValueError, match="minutes must be above 0 and finite"):
        paced(one, float("inf"))


def test_data_of_which_no_task_can_be_drawn_is_refused(tmp_path):
    for name, counts, said in (
        ("few", [9] * 5, "few: expected at least 6 classes .* got 5"),
        (
            "thin",
            [9] * 8 + [1],
            "thin: expected at least 2 examples of each class .* got 1 in 'class8'",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            choose([str(pictures(tmp_path / name, 0, counts=counts))])
    with pytest.raises(ValueError, match="found nothing"):
        choose([str(tmp_path / "none")])


def test_own_data_is_trained_on_without_a_recipe(tmp_path, monkeypatch, command):
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    data = pictures(tmp_path / "birds", 0, classes=7)
    features = tmp_path / "features"
    command("features", data, "--out", features)  # by the model that ships
    small = f"""train --data {features} --run {tmp_path / "run"} --batch 1 --validation-tasks 1
    --interval 1 --checkpoint-every 1 --validate-every 1"""
    said, _ = command(small, "--steps 1")
    assert "ways 2, shots 1, queries 3: the smallest class, birds/class0, has 4 vectors" in said
    assert "vectors 28" in said
    config = read_run(tmp_path / "run").config
    assert config["experiment"]["recipe"] == "features/protonet"
    assert "method features/protonet: `arml train RECIPE` trains another" in said
    assert config["experiment"]["tasks"]["ways"] == 2
    assert "ImageNet" in config["inputs"]["saw"]
    # A run keeps the steps that it began with.
    assert "already trained for 1 steps" in command(small, "--minutes 9")[0]


def test_options_that_cannot_be_right_are_refused_before_training(tmp_path, command):
    data, run = pictures(tmp_path / "birds", 0, counts=[8] * 7), tmp_path / "run"
    (tmp_path / "full" / "photos").mkdir(parents=True)
    for words, said in (
        (f"{run} --minuts 1", "Unrecognized options: --minuts"),
        (f"{run} --minutes soon", "--minutes"),
        (f"{run} --steps -5", "steps must be at least 1, got -5"),
        (f"{run} --ways 5", "expected at least 5 validation classes for 5-way tasks"),
        (f"{run} --steps 7 --minutes 9", "--minutes and --steps exclude each other"),
        (f"{run} --batch 0", "batch must be at least 1, got 0"),
        (f"{run} --shots 0", "shots must be at least 1"),
        (f"{run} --shots 8", "expected at least 9 examples of each class"),
        (tmp_path / "full", "which holds other folders, such as photos"),
        (data / "class0" / "0.png", "expected a folder for the run, got the file"),
    ):
        assert said in command("train --data", data, "--run", words, code=2)[1]
    assert not run.exists()


def test_folders_that_state_the_split_are_trained_and_tested_on_so(tmp_path, monkeypatch):
    monkeypatch.setenv("ARML_CACHE", str(tmp_path / "cache"))
    for part, counts in (("train", [6] * 4), ("valid", [6] * 3), ("test", [6] * 2)):
        pictures(tmp_path / "data" / part, 0, counts=counts)
        for number, folder in enumerate(sorted((tmp_path / "data" / part).iterdir())):
            folder.rename(folder.with_name(f"{part} {number}"))
    (tmp_path / "data" / "train" / "train 0" / "0.xml").write_text("<annotation/>")
    experiment, why = choose([str(tmp_path / "data")])
    assert "; left out: 1 files that are not pictures" in why[0]
    assert experiment.tasks.ways == 2
    splits = experiment.tasks.build(tmp_path / "split.json")
    assert [part.problem.classes for part in splits[:3]] == [4, 3, 2]
    assert not (tmp_path / "split.json").exists()
