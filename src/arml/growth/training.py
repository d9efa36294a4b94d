"""A training that was stopped goes on from its last record, bit for bit.

The state of a training is one file: the arrays, with the history as metadata. It is replaced as a
whole, so a file that was written in part is never read.
"""

import json
from pathlib import Path

import numpy as np

from arml.core.episodes import TaskDistribution
from arml.core.learner import MetaLearner
from arml.results.files import RunError, plain, read_bytes, write_bytes
from arml.training.checkpoint import filled, named
from arml.training.fit import FitOptions, Fitted, Moment, fit, start


def trained(
    learner: MetaLearner | Fitted,
    tasks: TaskDistribution,
    options: FitOptions,
    *,
    seed: int,
    validation: TaskDistribution | None = None,
    file: Path | None = None,
) -> Fitted:
    """`arml.fit` with these options, which keeps its state in `file` after each interval, and goes
    on from there.

    **Raises** `RunError` for a damaged file.
    """
    from safetensors.numpy import save

    if file is not None and file.exists():
        learner = _restored(learner, tasks, options, seed, file)
    before = learner.history if isinstance(learner, Fitted) else ()
    history = [*before]
    if isinstance(learner, Fitted) and learner.step >= options.steps:
        return learner

    def keep(now: Moment) -> None:
        history.append({"step": now.step, **now.record})
        if file is not None:
            arrays = {name: np.asarray(leaf, order="C") for name, leaf in named(now.state).items()}
            write_bytes(file, save(arrays, {"history": json.dumps(plain(history))}))

    return fit(
        learner,
        tasks,
        steps=options.steps,
        seed=seed,
        outer=options.outer,
        batch=options.batch,
        interval=options.interval,
        validate_every=options.validate_every,
        validation=validation,
        validation_tasks=options.validation_tasks,
        callbacks=[keep],
    )


def _restored(
    begun: MetaLearner | Fitted, tasks: TaskDistribution, options: FitOptions, seed: int, file: Path
) -> Fitted:
    """The training as far as `file` has it."""
    from safetensors.numpy import load

    learner = begun.learner if isinstance(begun, Fitted) else begun
    blank = start(learner, options.outer.build(options.steps))
    data = read_bytes(file)
    try:
        arrays = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        history = tuple(json.loads(header["__metadata__"]["history"]))
        if {n: a.shape for n, a in arrays.items()} != {n: a.shape for n, a in named(blank).items()}:
            raise ValueError("it has the weights of another learner")
    except Exception as error:  # safetensors' own type, and those of JSON
        raise RunError(
            f"{file} is damaged ({error}); delete {file.parent} to train anew"
        ) from error
    state = filled(blank, arrays)
    return Fitted(state.learner, history, state, options, seed, tasks.problem, tasks.families)
