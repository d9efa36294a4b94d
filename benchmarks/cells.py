"""What the cells, rows and captions of the benchmarks' tables look like."""

from collections.abc import Sequence
from typing import Any

METHODS = {
    "maml": "MAML",
    "arml": "ARML `best`",
    "arml-official": "ARML `official`",
    "arml-paper": "ARML `paper`",
    "protonet": "ProtoNet",
}
Spread = dict[str, float]


def digits(value: float) -> str:
    """Three significant ones, and no exponent."""
    places = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{places}f}" if value >= 0.1 or not value else f"{value:.2g}"


def duration(seconds: float) -> str:
    """In the unit that suits."""
    size, unit = next(
        (k, u) for k, u in ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")) if seconds >= k
    )
    return f"{digits(seconds / size)} {unit}"


def ratio(value: Spread) -> str:
    """The median with its extremes."""
    return f"{digits(value['median'])} ({digits(value['min'])} to {digits(value['max'])})"


def timed(value: Spread) -> str:
    """The same in seconds."""
    return f"{duration(value['median'])} ({duration(value['min'])} to {duration(value['max'])})"


def rows(head: Sequence[str], body: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table whose columns but the first `left` are numbers."""
    rule = [*(left * ["---"]), *((len(head) - left) * ["---:"])]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *body))


def caption(value: dict[str, Any]) -> str:
    """When, where, and with what."""
    machine = value["machine"]
    versions = {"Python": machine["python"], **machine["versions"]}
    for result in value["results"] if isinstance(value["results"], list) else ():
        for side in ("ours", "theirs"):
            if "torch" in result.get(side, {}):
                versions["torch"] = result[side]["torch"]
    fast = value.get("quick") or value["benchmark"].endswith("-quick")
    quick = " By a quick run." if fast else ""
    cores = "1 core" if machine["cores"] == 1 else f"{machine['cores']} cores"
    return (
        f"Measured {value['when'][:10]} on {machine['processor']}, {cores}, with "
        f"a load of {machine['load_before']:.1f} before it.{quick} "
        f"{', '.join(f'{name} {number}' for name, number in versions.items())}."
        + (f" {value['note'][0].upper()}{value['note'][1:]}." if "note" in value else "")
    )


def title(recipe: str) -> str:
    """A recipe's method, as the tables name it."""
    name = recipe.partition("/")[2]
    return METHODS.get(name, f"`{name}`")
