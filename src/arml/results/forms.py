"""The types of the JSON files of runs, studies and explanations. msgspec checks a file against them
when it is read; a file may have more fields.

`check_explained` also compares the sizes within an explanation, because figures are drawn from its
rows and columns.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from arml.results.files import Json, JsonView, RunError
from arml.results.schema import matching, read_as

Count = Annotated[int, Meta(ge=0, le=2**53)]
Positive = Annotated[int, Meta(ge=1, le=2**53)]
Number = Annotated[float, Meta(ge=-1e30, le=1e30)]
"""A number in a figure: sums of such numbers are finite."""
Share = Annotated[float, Meta(ge=0, le=1.001)]
"""From 0 to 1, with a tolerance for rounding."""
Text = Annotated[str, Meta(max_length=10_000)]
Digest = Annotated[str, matching("^[0-9a-f]{64}$", "a SHA-256")]
FileName = Annotated[str, matching(r"^[^/\\\x00]+$", "the name of a file", 255)]
Within = Annotated[str, matching(r"^(?!.*\.\.)[\w.+-]+(/[\w.+-]+)*$", "a path below the folder")]


class Written(TypedDict):
    """One file of a manifest."""

    bytes: Count
    sha256: Digest


class Manifest(TypedDict):
    """`manifest.json`."""

    format: Literal[1]
    files: dict[FileName, Written]
    checkpoints: NotRequired[dict[Text, Digest]]


class Configuration(TypedDict):
    """`config.json` of a run. `experiment.from_json` checks the experiment in it."""

    recipe: NotRequired[Text]
    experiment: NotRequired[Json]
    sources: NotRequired[Json | None]
    made: NotRequired[Json | None]


class Row(TypedDict):
    """A row of a study's table."""

    label: Text
    run: Within
    paper: Text
    note: Text
    scored: Annotated[str, matching("^[a-z0-9 -]+$", "letters, digits and spaces")]
    seeds: list[Count]
    steps: Count
    expected: float | None
    minutes: Annotated[float, Meta(ge=0, le=1e9)]
    command: Text


class Table(TypedDict):
    """A table of a study."""

    title: Text
    about: Text
    reference: Text
    paper: Text
    rows: list[Row]


class Study(TypedDict):
    """`study.json`."""

    scale: Text
    tables: dict[Text, Table]


class Failure(TypedDict):
    """`failure.json`: why a run of a study failed."""

    error: Text


class Effect(TypedDict):
    """The cost of an intervention for the tasks of a family, or for all tasks."""

    mean: Number | None
    ci95: Number | None
    n: NotRequired[Count]
    p: NotRequired[Share | None]
    adjusted: NotRequired[Share | None]
    median: NotRequired[Number | None]
    worse: NotRequired[Share | None]
    p_sign: NotRequired[Share | None]
    adjusted_sign: NotRequired[Share | None]


class Interventions(TypedDict):
    """The results of `explain.interventions`."""

    tasks: Positive
    metric: Literal["mse", "accuracy"]
    links: dict[str, Effect]
    vertices: list[dict[str, Effect]]
    use: NotRequired[dict[str, dict[str, Effect]]]


class Near(TypedDict):
    """A picture that reads a vertex strongly."""

    family: Text
    link: Number


class Nearest(TypedDict):
    """The pictures nearest to each vertex, and the file that shows them."""

    images: list[list[Near]]
    files: list[FileName]


class Training(TypedDict):
    """One training of `benchmarks/divergence.py`."""

    recipe: Text
    options: Text
    seed: Count
    steps: Positive
    first_bad_step: Positive | None


class Divergence(TypedDict):
    """`divergence.json`."""

    results: list[Training]


Matrix = list[list[Number]]


class Rows(TypedDict):
    """Mean and standard deviation of a table of numbers over the tasks of a family."""

    mean: list[list[Share]]
    sd: list[list[Share]]


class Values(TypedDict):
    """Mean and standard deviation of a list of numbers over the tasks of a family."""

    mean: list[Share]
    sd: list[Share]


class Explained(TypedDict):
    """The fields that every kind of `explain.json` has."""

    families: list[Text]
    tasks: Positive


class Graph(Explained):
    """`explain.json` of ARML."""

    vertices: Annotated[int, Meta(ge=1, le=10_000)]
    prototype_names: list[Text]
    example: dict[str, Matrix]
    average: dict[str, Rows]
    vertex_links: Matrix
    threshold: Number
    vertex_links_reach_tasks: NotRequired[bool]
    vertex_links_effect: NotRequired[Number | None]
    interventions: NotRequired[Interventions | None]
    nearest: NotRequired[Nearest | None]


class Tree(Explained):
    """`explain.json` of HSML."""

    average: dict[str, Values]
    flows: list[list[list[Share]]]


class Codes(Explained):
    """`explain.json` of MUMOMAML."""

    points: list[tuple[Number, Number, Count]]
    variance: tuple[Share, Share]
    between_families: Share
    modulation: dict[str, list[Number]]


class Layer(TypedDict):
    """The masks of one layer of MT-Net."""

    name: Text
    mean: Share
    rates: list[Share]


class Masks(Explained):
    """`explain.json` of MT-Net."""

    layers: list[Layer]


ADVICE = "restore the file, or make it again with `arml explain`"


def check_explained(value: JsonView, path: Path) -> None:
    """Check that figures can be drawn from an explanation. If a user's own method made it, only the
    families and the number of tasks are checked.

    **Raises** `RunError` in one line if they cannot.
    """
    kind = value.get("kind", "graph")
    known: dict[Any, tuple[Any, Callable[[Any], Any]]] = {
        "graph": (Graph, _graph_fits),
        "tree": (Tree, _tree_fits),
        "codes": (Codes, _codes_fit),
        "masks": (Masks, lambda found: bool(found["layers"])),
    }
    form, fits = known.get(kind if isinstance(kind, str) else None, (Explained, lambda _: True))
    read_as(form, value, str(path), ADVICE)
    if not fits(value):
        raise RunError(
            f"{path}: expected rows and columns for its families and parts, got others; {ADVICE}"
        )


def _sized(matrix: Any, rows: int, columns: int) -> bool:
    return len(matrix) == rows and all(len(row) == columns for row in matrix)


def _graph_fits(value: Any) -> bool:
    n, names = value["vertices"], value["families"]
    prototypes = len(value["prototype_names"])
    drawn = [*value["example"].values()]
    drawn += [matrix for both in value["average"].values() for matrix in both.values()]
    every = {*names} == {*value["average"]} == {*value["example"]} and names
    found, nearest = value.get("interventions"), value.get("nearest")
    effects = (
        [] if not found else [found["links"], *found["vertices"], *found.get("use", {}).values()]
    )
    return (
        bool(every)
        and prototypes > 0
        and all(_sized(matrix, prototypes, n) for matrix in drawn)
        and _sized(value["vertex_links"], n, n)
        and (not found or len(found["vertices"]) in (0, n))
        and all({"all", *names} <= {*effect} for effect in effects)
        and (not nearest or len(nearest["images"]) == len(nearest["files"]) == n)
    )


def _tree_fits(value: Any) -> bool:
    rows = [values for both in value["average"].values() for values in both.values()]
    leaves = {len(row) for row in rows}
    flows = value["flows"]
    sizes = [len(flow[0]) if flow else 0 for flow in flows]
    return (
        bool(value["families"])
        and {*value["families"]} <= {*value["average"]}
        and len(leaves) == 1
        and 0 not in leaves
        and bool(flows)
        and 0 not in sizes
        and all(
            _sized(flow, size if level else len(flow), sizes[level])
            for level, (flow, size) in enumerate(zip(flows, [1, *sizes[:-1]], strict=True))
        )
    )


def _codes_fit(value: Any) -> bool:
    blocks = {len(row) for row in value["modulation"].values()}
    return (
        bool(value["families"])
        and {*value["families"]} <= {*value["modulation"]}
        and len(blocks) == 1
        and 0 not in blocks
        and bool(value["points"])
    )
