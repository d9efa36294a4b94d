"""The contract of every predictor. `arml check` runs it on a registered kind of inputs, and the
contract of methods on a method, a network or a kind of tasks."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from arml.experiment.contract import Finding, check_part, found_by, require
from arml.predict.base import CAPABILITIES, Predictor, TaskLearner
from arml.predict.kinds import named_kind
from arml.predict.loading import load, load_predictor
from arml.predict.reliability import Evaluation
from arml.results.files import brief

Labels = list[Any]
"""The labels of examples, or their numbers."""


def check(part: str, name: str) -> Iterator[Finding]:
    """Run the contract on a registered method, network, kind of tasks or kind of inputs.

        from arml.predict.contract import check

        [finding for finding in check("tasks", "functions") if not finding.passed]

    A method is checked on small tasks of each kind that it is made for. A network is checked with
    MAML on the kinds of tasks that it can read; grouped convolutions give a warning. For a kind of
    tasks, a hundred tasks are drawn and inspected. A kind of inputs learns its `examples`. The
    findings come one by one, because each check compiles a program.

    **Arguments**

    - `part`: `method`, `network`, `tasks` or `inputs`.

    **Raises** `ValueError` for a name that is not registered.
    """
    if part != "inputs":
        yield from check_part(part, name)
        return
    kind = named_kind(name)
    if kind.trained:
        raise ValueError(
            f"the learners of {name} are meta-trained: check one of them with "
            "arml.predict.contract.check_predictor"
        )
    yield from check_predictor(f"inputs {name}", load(name), *kind.examples())


def check_predictor(subject: str, learner: TaskLearner, x: object, y: Labels) -> Iterator[Finding]:
    """Run the contract on the predictor that a learner makes of these examples: numbers, or two or
    more classes with at least four examples each. All examples must be different."""
    try:
        predictor = learner.adapt(x, y)
    except Exception as error:  # a user's own code runs here
        yield Finding(subject, "learns_its_examples", brief(error), False)
        return
    for one in CHECKS:
        yield found_by(subject, one.__name__.removeprefix("check_"), partial(one, predictor, x, y))


def _some(x: Any, places: Sequence[int]) -> Any:
    """The examples with these indices, as the user gave them."""
    if isinstance(x, dict):
        return {name: [cells[i] for i in places] for name, cells in x.items()}
    return x[list(places)] if isinstance(x, np.ndarray) else [x[i] for i in places]


def _outputs(predictor: Predictor, x: object) -> np.ndarray:
    return predictor.predict(x) if predictor.classes is None else predictor.predict_proba(x)


def check_answers_are_labels_or_numbers(predictor: Predictor, x: object, y: Labels) -> None:
    answers = predictor.predict(x)
    require(len(answers) == len(y), f"predict gives {len(answers)} answers to {len(y)} inputs")
    if predictor.classes is None:
        require(bool(np.all(np.isfinite(answers))), "a predicted number is not finite")
        return
    require({*predictor.classes.tolist()} == {*y}, "classes are not the labels of the examples")
    chances = predictor.predict_proba(x)
    require(chances.shape == (len(y), len(predictor.classes)), f"probabilities are {chances.shape}")
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-5)
    require(
        bool(np.all(predictor.classes[chances.argmax(axis=1)] == answers)),
        "predict does not give the most probable class",
    )


def check_each_query_is_answered_by_itself(predictor: Predictor, x: object, y: Labels) -> None:
    whole, places = _outputs(predictor, x), [2, 0, 3]
    np.testing.assert_allclose(_outputs(predictor, _some(x, places)), whole[places], atol=1e-4)
    np.testing.assert_allclose(_outputs(predictor, _some(x, [1])), whole[[1]], atol=1e-4)


def check_it_says_how_far_to_trust_it(predictor: Predictor, x: object, y: Labels) -> None:
    found = predictor.reliability()
    names = [f"example {i + 1}" for i in range(len(y))]
    require(all("\n" not in line for line in found.lines(names)), "a line has a line break")
    marks, guesses = predictor.evaluate(x, y), predictor.predict(x)
    if isinstance(marks, Evaluation):
        own, other = marks.accuracy, float(np.mean(guesses == np.asarray(y)))
    else:
        own, other = marks.as_json()["mse"], float(np.mean((guesses - np.asarray(y)) ** 2))
    require(abs(own - other) <= 1e-5 * abs(other), "evaluate and predict differ")


def check_saved_and_loaded_is_the_same(predictor: Predictor, x: object, y: Labels) -> None:
    with TemporaryDirectory() as place:
        predictor.save(Path(place) / "kept")
        again = load_predictor(Path(place) / "kept")
        np.testing.assert_allclose(_outputs(again, x), _outputs(predictor, x), atol=1e-5)
        require(again.learner.kind.name == predictor.learner.kind.name, "its kind has changed")


def check_it_has_the_capabilities_that_it_declares(
    predictor: Predictor, x: object, y: Labels
) -> None:
    def added() -> None:
        new = y[0] + 1 if predictor.classes is None else "another class"
        other = predictor.add(_some(x, [0, 1]), [new, new])
        require(len(other.y) == len(predictor.y) + 2, "add does not add the examples")
        require(len(predictor.y) == len(y), "add changes the predictor")

    with TemporaryDirectory() as place:
        works: dict[str, Callable[[], object]] = {
            "add": added,
            "interval": lambda: np.testing.assert_array_less(*predictor.interval(x, 0.5)),
            "matter": predictor.matter,
            "novelty": lambda: require(predictor.novelty(x).shape == (len(y),), "not 1 per input"),
            "learning_curve": predictor.learning_curve,
            "to_onnx": lambda: predictor.to_onnx(Path(place) / "file.onnx"),
        }
        for what in CAPABILITIES:
            try:
                works[what]()
            except ValueError as error:
                require(not predictor.can(what) and "those of" in str(error), f"{what}: {error}")
            else:
                require(predictor.can(what), f"{what} works, but can({what!r}) is False")


CHECKS = (
    check_answers_are_labels_or_numbers,
    check_each_query_is_answered_by_itself,
    check_it_says_how_far_to_trust_it,
    check_saved_and_loaded_is_the_same,
    check_it_has_the_capabilities_that_it_declares,
)
