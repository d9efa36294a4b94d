"""The paper's tables and further ones: a function for each kind of table.

[1] Yao, Wu, Tao, Li, Ding, Li and Li, Automated Relational Meta-learning, ICLR 2020.

Differences: the starter sets of the package stand in for Plain-Multi (three families) and Art-Multi
(nine), so that every table can be run anywhere. Ablations and the further tables vary the method
whose entry names the kind `side`: ARML as in the paper's text.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import NamedTuple

from arml.algorithms import ALGORITHMS
from arml.experiment.parts import REGRESSION
from arml.experiment.recipes import shape_of
from arml.report.claims import INERT
from arml.report.paper import names
from arml.reproduce.places import PLACES, experiment, frozen, known, varied
from arml.reproduce.plan import Row, Table
from arml.reproduce.scales import SCALES, Scale
from arml.results.files import JsonView

SIDE = "side"
"""The method that the side tables vary."""
FROZEN = "Frozen features, nearest class mean"
REPEATED = "repeated"
"""Methods whose training on the starter pictures at 1 shot is repeated: those of the paper's main
claim, and the simplest method that the paper does not mention. Of the slow methods, these are
repeated in all tables."""
SLOW = 0.015
"""A method whose step of 2-D regression takes more seconds than this is trained once on a laptop,
if it is not one of those that are repeated: 70,000 such steps take 18 minutes."""


def compared(kind: str) -> list[str]:
    """The methods and variants whose entries name this kind of table: methods of the paper in its
    order, other methods, variants."""
    rows = list(names())
    place = {row: i for i, row in enumerate(rows)}
    methods = sorted(ALGORITHMS.values(), key=lambda one: place.get(one.row, len(rows)))
    entries = [(one.name, one.compared) for one in methods]
    entries += [(name, v.compared) for one in methods for name, v in one.variants.items()]
    return [name for name, words in entries if kind in words.split()]


def subject() -> str:
    """The method that the side tables vary, and that the others are compared with."""
    (name,) = compared(SIDE)
    return name


def method(place: str, algorithm: str, scale: Scale, seeds: int = 0) -> Row:
    """The row of one algorithm in a main table."""
    found, made = known(place, algorithm), experiment(place, algorithm, scale)
    # A shortened run has no score to expect.
    expected = found.expected if made.recipe == found.name else None
    paper = "" if found.variant else found.method.row
    explain = bool(found.method.inside)
    return Row(found.title, made, paper, explain=explain, seeds=seeds, expected=expected)


class Rows(NamedTuple):
    """The rows of a table, and how they are read."""

    rows: Sequence[Row]
    about: str
    reference: str = ""
    """Label of the row that the others are compared with; the first row's if empty."""
    paper: str = ""
    """Key of the paper's table in `paper.json`."""


def main(place: str, scale: Scale) -> Rows:
    """The paper's comparison of methods at a place."""
    algorithms = compared("smoke" if scale.name == "smoke" else PLACES[place].kind)
    # The slow methods would take three quarters of the table's time.
    few = [name for name in algorithms if scale.name == "laptop" and _trained_once(place, name)]
    seeds = dict.fromkeys(few, 1)
    again = compared(REPEATED)
    if place != "starter-1shot":
        again = [name for name in again if name in few]
    seeds |= dict.fromkeys(again, scale.repeated_seeds)
    rows = [method(place, a, scale, seeds=seeds.get(a, 0)) for a in algorithms]
    if PLACES[place].problem == "starter":
        note = "Nothing is trained here: a model made the features, and it saw the training classes"
        rows.insert(0, Row(FROZEN, frozen(place), note=note))
    about = "The methods of the paper's comparison, and ARML as text, code and we have it."
    return Rows(rows, about, ALGORITHMS[subject()].title, place)


def _trained_once(place: str, name: str) -> bool:
    found = known(place, name).method
    return found.cost(found.options(REGRESSION)).step > SLOW


ABLATIONS: dict[str, tuple[str, JsonView]] = {
    "I": ("no prototype-based graph", {"structure": "mean", "own_values": False}),
    "II": ("no prototype", {"structure": "samples", "own_values": False}),
    "III": ("no prototype links", {"links": "none"}),
    "IV": ("no meta-knowledge graph", {"vertices": 0}),
    "V": ("no reconstruction loss", {"mu_1": 0.0, "mu_2": 0.0}),
    "VI": ("encoder and decoder as MLP", {"summary": "mlp"}),
    "VII": ("one gate a filter", {"granularity": "filter"}),
    "VIII": ("tanh", {"gate": "tanh"}),
    "IX": ("FiLM", {"gate": "film"}),
}
"""The paper's nine, each a change of ARML's options."""


def ablations(place: str, scale: Scale) -> Rows:
    """The paper's ablations."""
    base = experiment(place, subject(), scale, side=True)
    rows = [Row("ARML", base, "arml")]
    chosen = ("IV",) if scale.name == "smoke" else tuple(ABLATIONS)
    for number in chosen:
        what, options = ABLATIONS[number]
        made = varied(base, f"ablation-{number}", **options)
        rows.append(Row(f"{number}. {what}", made, number))
    about = "ARML (the paper's text) with one component removed or replaced."
    return Rows(rows, about, paper=f"ablations-{PLACES[place].problem}")


def vertices(place: str, scale: Scale) -> Rows:
    """The paper's numbers of vertices."""
    base = experiment(place, subject(), scale, side=True)
    rows = [
        Row(f"{n} vertices", varied(base, f"vertices-{n}", vertices=n), str(n))
        for n in (4, 8, 12, 16, 20)
    ]
    about = "ARML (the paper's text) by the number of vertices of its meta-knowledge graph."
    return Rows(rows, about, "8 vertices", f"vertices-{PLACES[place].problem}")


def structure(place: str, scale: Scale) -> Rows:
    """HSML's tree against ARML's graph, in the runs of the main table."""
    rows = [method(place, a, scale) for a in compared("structure")]
    about = "HSML's tree of clusters against ARML's graph; the page draws both structures."
    return Rows(rows, about, "HSML")


def evidence(place: str, scale: Scale) -> Rows:
    """Reading by evidence with one vertex, and its head alone."""
    row = method(place, "arml", scale)
    one = varied(row.experiment, "one-vertex", vertices=1)
    head = varied(row.experiment, "head-alone", vertices=1, read_by="place", gate="templates")
    rows = [row, Row("one vertex, which all tasks read", one), Row("the head alone", head)]
    about = (
        "ARML whose tasks read a vertex by how well its network explains the examples. The head "
        "alone is ridge regression on one network that no task tailors."
    )
    return Rows(rows, about)


def edges(place: str, scale: Scale) -> Rows:
    """Whether the links between vertices matter, by numbers of layers and normalisations."""
    base = experiment(place, subject(), scale, side=True)
    rows = []
    for normalise, layers in [(n, k) for n in ("row", "symmetric") for k in (1, 2, 3)]:
        made = varied(base, f"{normalise}-{layers}", normalise=normalise, layers=layers)
        label = f"{normalise}-normalised, {layers} layer{'s' if layers > 1 else ''}"
        inert = (normalise, layers) == ("row", 1)
        rows.append(Row(INERT if inert else label, made))
    about = (
        "With one row-normalised layer, as in the authors' code, the links between vertices reach "
        "no task; in the other rows they do."
    )
    return Rows(rows, about)


def propagation(place: str, scale: Scale) -> Rows:
    """Message passing by GCN, GraphSAGE and GAT."""
    base = experiment(place, subject(), scale, side=True)
    kinds = {"gcn": "GCN", "sage": "GraphSAGE", "gat": "GAT"}
    rows = [Row(name, varied(base, kind, propagation=kind)) for kind, name in kinds.items()]
    about = "The paper names the three and does not say which one its figures are of."
    return Rows(rows, about)


def mu(place: str, scale: Scale) -> Rows:
    """The weights of the two reconstructions."""
    base = experiment(place, subject(), scale, side=True)
    options = vars(base.algorithm)
    one, two = options["mu_1"], options["mu_2"]
    pairs = {
        "both as in the code": (one, two),
        "both x 0.1": (one / 10, two / 10),
        "both x 10": (one * 10, two * 10),
        "mu_1 = 0": (0.0, two),
        "mu_2 = 0": (one, 0.0),
    }
    rows = [
        Row(label, varied(base, f"mu-{i}", mu_1=a, mu_2=b))
        for i, (label, (a, b)) in enumerate(pairs.items())
    ]
    about = "mu_1 weighs the prototypes after reading (L_t), mu_2 before it (L_q)."
    return Rows(rows, about)


def order(place: str, scale: Scale) -> Rows:
    """The same runs with the encoder's input in reverse order. A set has no order, so an encoder of
    sets must not notice it."""
    first = subject()
    algorithms = sorted(compared("order"), key=lambda name: name != first)
    if scale.name == "smoke":
        algorithms = [name for name in algorithms if name in compared("smoke")]
    rows = []
    for algorithm in algorithms:
        row = method(place, algorithm, scale)
        again = replace(
            row, label=f"{row.label}, reversed", scored="reversed", paper="", expected=None
        )
        rows += [row, again]
    about = (
        "The support set, and on images the prototypes, reach the task encoder in reverse order. "
        "A recurrent encoder notices; one that reads element by element cannot."
    )
    return Rows(rows, about)


def normalisation(place: str, scale: Scale) -> Rows:
    """Batch statistics of the queries against those of the support set."""
    rows = []
    for algorithm in compared("normalisation"):
        row = method(place, algorithm, scale)
        made = row.experiment
        network = replace(made.network, normalisation="support")
        own = replace(made, recipe=f"{made.recipe}-inductive", network=network)
        row = replace(row, label=f"{row.label}, transductive", explain=False)
        label = f"{ALGORITHMS[algorithm].title}, inductive"
        rows += [row, replace(row, label=label, experiment=own, paper="", expected=None)]
    about = (
        "Transductive: queries are normalised by their own batch, as in the paper. Inductive: by "
        "the support set, so that a prediction depends on nothing but its own image."
    )
    return Rows(rows, about)


KINDS: dict[str, tuple[str, Callable[[str, Scale], Rows]]] = {
    "": ("", main),
    "ablations": ("Ablations: ", ablations),
    "vertices": ("Number of vertices: ", vertices),
    "structure": ("Tree or graph: ", structure),
    "evidence": ("Does ARML by evidence need its vertices? ", evidence),
    "edges": ("Do the graph's edges matter? ", edges),
    "propagation": ("Message passing: ", propagation),
    "mu": ("Weights of the reconstructions: ", mu),
    "order": ("Order of the prototypes: ", order),
    "normalisation": ("Transductive or inductive: ", normalisation),
}
"""The kinds of tables, each with the beginning of its title. The name of a table is its kind and
its place, `edges-regression2d`; that of a main table is its place."""


def table(name: str, scale: Scale) -> Table:
    """The table of that name.

    **Raises** `ValueError` for an unknown name, with the names that the scale has.
    """
    if name not in scale.tables:
        close = get_close_matches(name, scale.tables, 1, 0.4)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        elsewhere = [s.name for s in SCALES.values() if name in s.tables]
        hint = f"; --scale {' or '.join(elsewhere)} has it" if elsewhere else hint
        raise ValueError(
            f"unknown table {name!r} of scale {scale.name}: expected one of "
            f"{', '.join(scale.tables)}{hint}"
        )
    kind, _, place = ("", "", name) if name in PLACES else name.partition("-")
    title, rows_of = KINDS[kind]
    rows, about, reference, paper = rows_of(place, scale)
    images = any(len(shape_of(row.experiment.tasks).features) == 3 for row in rows)
    amounts = scale.images if images else scale.vectors
    title, reference = f"{title}{PLACES[place].title}", reference or rows[0].label
    return Table(name, title, about, tuple(rows), reference, paper, *amounts)
