"""How many steps fit in some minutes, and how far a training is."""

import time
from collections.abc import Callable

from arml.core.learner import MetaLearner
from arml.grow.options import GrowthOptions
from arml.grow.stage import Shown
from arml.tasks.mixture import Mixture
from arml.training.fit import Moment, fit

Say = Callable[[str], None]


def steps_for(
    learner: MetaLearner, train: Mixture, options: GrowthOptions, minutes: float
) -> tuple[int, float]:
    """Outer steps that take about so many minutes, of which a tenth is for the rest of the work;
    and the seconds of a step."""
    moments: list[float] = []
    fit(
        learner,
        train,
        steps=6,
        seed=options.seed,
        outer=options.outer,
        batch=options.batch,
        interval=2,
        callbacks=[lambda moment: moments.append(time.monotonic())],
        progress=False,
    )
    # The first interval compiles.
    each = max((moments[-1] - moments[0]) / 4, 1e-4)
    return max(10, int(0.9 * 60 * minutes / each)), each


def in_words(seconds: float) -> str:
    """`40 s` or `3.1 min`."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"


def progress(say: Say) -> Shown:
    """Says every ten seconds at most how far each training is."""
    last = time.monotonic()
    firsts: dict[str, tuple[int, float]] = {}

    def shown(name: str, moment: Moment) -> None:
        nonlocal last
        now, done = time.monotonic(), moment.step
        step, at = firsts.setdefault(name, (done, now))
        if now - last > 10 and done > step:
            last = now
            left = (moment.steps - done) * (now - at) / (done - step)
            say(f"step {done:,} of {moment.steps:,}, about {in_words(left)} left")

    return shown
