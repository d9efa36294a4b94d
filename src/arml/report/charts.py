"""Charts that the page draws itself, so that they fit every screen: the positions of their parts.

A *forest* has a row for each method: its mean, interval and the paper's figure on one scale.
*Curves* are small multiples: a panel for each method, all on the same axes. `templates/blocks.html`
draws them.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from arml.report.curves import series_of
from arml.report.tables import interval
from arml.results.files import Json, JsonView
from arml.results.folder import RunFiles


def ticks(low: float, high: float, *, logarithmic: bool, most: int = 5) -> list[float]:
    """Round numbers from `low` to `high`."""
    if logarithmic:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            found = [f * 10.0**d for d in decades for f in factors]
            found = [value for value in found if low <= value <= high]
            if len(found) <= most + 1:
                return found
        return found[:: math.ceil(len(found) / most)]
    step = 10 ** math.floor(math.log10((high - low) / most or 1.0))
    step = next(step * f for f in (1, 2, 5, 10) if (high - low) / (step * f) <= most)
    first = math.ceil(low / step)
    return [float(step * i) for i in range(first, math.floor(high / step) + 1)]


class Scale:
    """Maps numbers to positions between `start` and `end`. Errors that span more than a factor of
    four have a logarithmic scale."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, mse: bool) -> None:
        known = [v for v in values if math.isfinite(v) and (v > 0 or not mse)] or [1.0]
        low, high = min(known), max(known)
        self.logarithmic = mse and high / low > 4
        if self.logarithmic:
            self.low, self.high = low / 1.15, high * 1.15
        else:
            room = 0.06 * (high - low or abs(high) or 1.0)
            self.low, self.high = low - room, high + room
        self.start, self.end, self.mse = start, end, mse

    def at(self, value: float) -> float:
        """The position of a number, within the ends."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int = 5) -> list[Json]:
        """Positions and texts of round numbers."""
        found = ticks(self.low, self.high, logarithmic=self.logarithmic, most=most)
        text = (lambda v: f"{v:g}") if self.mse else (lambda v: f"{100 * v:g}%")
        return [{"at": self.at(value), "text": text(float(f"{value:.6g}"))} for value in found]


def forest(rows: Sequence[JsonView], metric: str, caption: str) -> Json:
    """A block of rows with `label`, `mean`, `ci95`, `paper` and `kind`. All accuracies are shares,
    not percentages."""
    mse = metric == "mse"
    known: list[float] = []
    for row in rows:
        half = row["ci95"] or 0.0
        known += [row["mean"] - half, row["mean"] + half] if row["mean"] is not None else []
        known += [row["paper"]] if row["paper"] is not None else []
    scale = Scale(known, 0.0, 100.0, mse=mse)
    drawn = []
    for row in rows:
        mean, half = row["mean"], row["ci95"] or 0.0
        place: Json = {"at": None, "low": None, "width": None}
        if mean is not None:
            low, high = scale.at(mean - half), scale.at(mean + half)
            place = {"at": scale.at(mean), "low": low, "width": round(high - low, 1)}
        drawn.append(
            {
                **place,
                "label": row["label"],
                "kind": row["kind"],
                "paper": None if row["paper"] is None else scale.at(row["paper"]),
                "text": interval(mean, row["ci95"], metric),
            }
        )
    return {"macro": "forest", "rows": drawn, "ticks": scale.ticks(), "caption": caption}


def curves(
    named: Mapping[str, Sequence[RunFiles]], reference: str, metric: str, caption: str
) -> Json | None:
    """A panel for each name with a line for each of its runs, and the reference behind each; None
    if there is nothing to draw."""
    series: dict[str, list[np.ndarray]] = {}
    for name, runs in named.items():
        found = [series_of(run.metrics, "validation") for run in runs]
        finite = [one[np.isfinite(one[:, 1])] for one in found]
        if some := [one for one in finite if len(one)]:
            series[name] = some
    if not series:
        return None
    whole = np.concatenate([s for some in series.values() for s in some])
    # The scale fits 98% of the scores, so spikes are cut off.
    span = np.quantile(whole[:, 1], [0.0, 0.98]).tolist()
    y = Scale(span, 114.0, 6.0, mse=metric == "mse")
    last = float(whole[:, 0].max())

    def points(one: np.ndarray) -> str:
        return " ".join(f"{38 + 178 * step / last:.1f},{y.at(score)}" for step, score in one)

    panels = [
        {
            "label": name,
            "lines": [points(one) for one in some],
            "last": "last validation scores "
            + ", ".join(interval(float(one[-1, 1]), None, metric) for one in some),
        }
        for name, some in series.items()
    ]
    steps = [{"at": 38, "text": "0"}, {"at": 216, "text": f"{last:,.0f} steps"}]
    behind = [points(one) for one in series.get(reference, [])]
    return {
        "macro": "curves",
        "panels": panels,
        "reference": behind,
        "ticks": y.ticks(4),
        "steps": steps,
        "caption": caption,
    }
