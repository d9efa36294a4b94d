"""A table: how often a rule for verdicts finds a difference although there is none."""

from typing import TypedDict

from arml.report.study import Study
from arml.report.table import line_of
from arml.results.forms import Share, Text
from arml.results.schema import read_checked

RATES = "false-positives.json"
TWICE = "2"
"""Standard deviations of a run."""
ByRule = dict[Text, Share]
ByRuns = TypedDict("ByRuns", {"1": ByRule, "3": ByRule, "5": ByRule})
Power = TypedDict("Power", {"1": Share, "2": Share, "4": Share})


class Found(TypedDict):
    """Rates of each rule for a table, by the number of runs; the power by the difference, too."""

    equal: ByRuns
    retrained: ByRuns
    power: dict[Text, Power]


class Rates(TypedDict):
    """`false-positives.json` of `benchmarks/verdicts.py`."""

    tables: dict[Text, Found]


def rates(study: Study) -> str:
    """The rates of false positives, which `benchmarks/verdicts.py` found by simulation."""
    path = study.folder / RATES
    if not path.is_file():
        return "*Not simulated.*"
    found = read_checked(path, Rates, "make it again with `benchmarks/verdicts.py`")["tables"]
    rules = list(dict.fromkeys(rule for entry in found.values() for rule in entry["equal"]["3"]))
    lines = [
        ["Table", "Truth", "Runs of each", *rules],
        ["---", "---", *["---:"] * (1 + len(rules))],
    ]
    truths = {"retrained": "one method, trained again", "equal": "two methods, equal in the mean"}
    for name, entry in found.items():
        for kind, truth in truths.items():
            for runs, rate in entry[kind].items():
                # With one run the rule gives no verdict.
                silent = [r for r in rules if r not in rate or (runs == "1" and not rate[r])]
                cells = ["–" if r in silent else f"{rate[r]:.0%}" for r in rules]
                lines.append([f"`{name}`", truth, runs, *cells])
    power = "; ".join(
        f"`{name}` "
        + ", ".join(f"{p[TWICE]:.0%} with {runs} runs" for runs, p in entry["power"].items())
        for name, entry in found.items()
    )
    return (
        "\n".join(map(line_of, lines))
        + "\n\nHow often the verdicts' rule finds a difference of two standard deviations of a "
        f"run: {power}."
    )
