"""The paper's claims, each judged from the files of a study, and never by hand.

A claim that one method is better than another *holds* if the difference has the claimed sign and is
significant over training runs and tasks (`statistics.compare`), after Holm's correction for all
claims of its group that the same table decides. It *does not hold* if the difference is significant
and has the other sign. In all other cases the data *cannot tell*: the difference may be chance, a
run failed, there are too few runs (then the figures are an indication, about these trained learners
alone), nothing has run yet, or the data of the table is missing. A claim that more is no better is
tested in the same way against the smallest gain that matters.

Claims about our own presets are not claims of the paper. They have a section of their own.

[1] Yao, Wu, Tao, Li, Ding, Li and Li, Automated Relational Meta-learning, ICLR 2020.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from arml.report.paper import names, rows_of
from arml.report.statistics import SEEDS, Comparison, holm
from arml.report.study import Study, StudyTable, compared
from arml.report.wording import figures
from arml.results.files import Json

HOLDS, FAILS, UNCLEAR = "holds", "does not hold", "cannot tell"
INDICATION, CHANCE, FAILED = "too few runs", "may be chance", "a run failed"
NOT_YET, CANNOT = NONE = "not yet run", "needs the data"
SEVERAL = {
    CHANCE: "may be chance",
    INDICATION: "with too few runs",
    FAILED: "with a run that failed",
    NOT_YET: "not yet run",
    CANNOT: "for lack of the data",
}
"""The reasons why data cannot tell, in a sentence about several claims."""
TITLES = {
    HOLDS: "Claims that hold",
    FAILS: "Claims that do not hold",
    UNCLEAR: "Claims that these data cannot decide",
}
"""The heading of each group of verdicts."""
MARGIN_ACCURACY, MARGIN_ERROR = 0.01, 0.05
"""A gain of less than a point of accuracy, or a twentieth of the error, does not matter."""
PAPER, OURS, EVIDENCE = "ARML, paper's text", "ARML, ours", "ARML, evidence"


@dataclass(frozen=True)
class Claim:
    """`better` has the better score than `worse`."""

    group: str
    text: str
    tables: tuple[str, ...]
    better: str
    worse: str
    equal: bool = False
    """The claim is instead that `better` is no worse than `worse`: saturation."""

    @property
    def ours(self) -> bool:
        """Whether it is about a preset of ours, and not a claim of the paper."""
        return self.better in (OURS, EVIDENCE)


@dataclass(frozen=True)
class Verdict:
    """The verdict of a table on a claim."""

    claim: Claim
    table: str
    verdict: str
    why: str = ""
    """Why the data cannot tell."""
    said: str = ""
    """The figures."""
    comparison: Comparison | None = None

    def plain(self) -> Json:
        """As JSON."""
        found = self.comparison
        return {
            "group": self.claim.group,
            "claim": self.claim.text,
            "of_the_paper": not self.claim.ours,
            "table": self.table,
            "verdict": self.verdict,
            "why": self.why,
            "figures": self.said,
            "difference": found and found.mean,
            "ci95": found and found.ci95,
            "p_adjusted": found and found.adjusted,
            "tasks": found and found.tasks,
            "runs": found and found.runs,
            "failed": found and found.failed,
        }


MAIN = ("regression2d", "starter-1shot", "starter-5shot", "starter-art-1shot")
REAL = ("plain-multi-1shot", "plain-multi-5shot", "art-multi-1shot", "art-multi-5shot")
PARTS = {
    "I. no prototype-based graph": "a prototype-based graph",
    "II. no prototype": "prototypes, not samples, as the task's vertices",
    "III. no prototype links": "links between prototypes",
    "IV. no meta-knowledge graph": "the meta-knowledge graph",
    "V. no reconstruction loss": "the reconstruction loss",
    "VI. encoder and decoder as MLP": "recurrent encoders and decoders",
    "VII. one gate a filter": "one gate for each parameter",
    "VIII. tanh": "the sigmoid rather than tanh",
    "IX. FiLM": "the sigmoid rather than FiLM",
}
ABLATIONS = ("ablations-regression2d", "ablations-starter-1shot")
REAL_ABLATIONS = ("ablations-plain-multi-5shot", "ablations-art-multi-5shot")
VERTICES = ("vertices-regression2d", "vertices-starter-art-1shot")
EDGES = ("edges-regression2d",)
CONTROLS = ("evidence-regression2d",)
LOCAL = (*MAIN, *ABLATIONS, *VERTICES, *EDGES, *CONTROLS)
"""Tables that need no other data than those in the package."""
INERT = "row-normalised, 1 layer (edges inert)"


def _others() -> list[tuple[str, str]]:
    """The methods that the paper compares ARML with: the nearest ones of its regression first."""
    main = [row for row in reversed(rows_of(MAIN[0])) if row != "arml"]
    more = [row for row in rows_of(REAL[0]) if row not in (*main, "arml")]
    return [(row, names()[row]) for row in (*main, *more)]


def _claims() -> list[Claim]:
    found = []
    for arml, name in ((PAPER, "ARML (the paper's text)"), (OURS, "Our preset of ARML")):
        for row, other in _others():
            # If the paper's table lacks this row, ours is an extension and decides no claim.
            tables = tuple(t for t in (*MAIN, *REAL) if row in (rows_of(t) or [row]))
            text = f"{name} is better than {other}"
            found.append(Claim(f"{name} against other methods", text, tables, arml, other))
    for label, part in PARTS.items():
        number = label.partition(".")[0]
        text = f"Ablation {number}: ARML gains from {part}"
        found.append(Claim("Ablations", text, (*ABLATIONS, *REAL_ABLATIONS), "ARML", label))
    tables = (*VERTICES, "vertices-art-multi-5shot")
    group = "Saturation around 8 vertices"
    found.append(Claim(group, "8 vertices are better than 4", tables, "8 vertices", "4 vertices"))
    for more in (12, 16, 20):
        text = f"{more} vertices are no better than 8"
        found.append(Claim(group, text, tables, "8 vertices", f"{more} vertices", equal=True))
    tables = (*EDGES, "edges-plain-multi-5shot")
    group = "Links between vertices"
    for with_edges in (
        "symmetric-normalised, 1 layer",
        "row-normalised, 2 layers",
        "symmetric-normalised, 2 layers",
    ):
        text = f"Links that reach the tasks ({with_edges}) are better than links that cannot"
        found.append(Claim(group, text, tables, with_edges, INERT))
    group, name = "ARML by evidence", "ARML whose tasks read by evidence"
    for row, other in ((OURS, "our preset"), (PAPER, "ARML (the paper's text)"), ("HSML", "HSML")):
        found.append(Claim(group, f"{name} is better than {other}", MAIN[:1], EVIDENCE, row))
    for row, part in (
        ("one vertex, which all tasks read", "several vertices"),
        ("the head alone", "tailoring"),
    ):
        found.append(Claim(group, f"{name} gains from {part}", CONTROLS, EVIDENCE, row))
    return found


CLAIMS = tuple(_claims())


def judge(study: Study, claims: Iterable[Claim] = CLAIMS) -> list[Verdict]:
    """Every claim by every table that could decide it, in order. Holm's correction is over the
    claims of one group that one table decides."""
    families: dict[tuple[str, str], list[Verdict]] = {}
    ordered = []
    for claim in claims:
        for name in claim.tables:
            table = study.table(name)
            if table is not None and None in (table.row(claim.better), table.row(claim.worse)):
                continue  # a table of few methods
            ordered.append((claim, name))
            families.setdefault((claim.group, name), []).append(_look(study, claim, name))
    final: dict[tuple[Claim, str], Verdict] = {}
    for some in families.values():
        known = [(v, v.comparison) for v in some if v.comparison is not None]
        adjusted = holm([comparison for _, comparison in known])
        for (verdict, _), comparison in zip(known, adjusted, strict=True):
            table = study.table(verdict.table)
            assert table is not None
            final[verdict.claim, verdict.table] = _decide(verdict.claim, table, comparison)
        final |= {(v.claim, v.table): v for v in some if v.comparison is None}
    return [final[key] for key in ordered]


def _look(study: Study, claim: Claim, name: str) -> Verdict:
    """The comparison `better - worse`, tested against zero or the margin; or the reason why there
    is none."""
    table = study.table(name)
    better, worse = (table.row(claim.better), table.row(claim.worse)) if table else (None, None)
    if table is None or better is None or worse is None or not better.any or not worse.any:
        why = NOT_YET if name in LOCAL else CANNOT
        return Verdict(claim, name, UNCLEAR, why)
    return Verdict(
        claim, name, "", comparison=compared(better, worse).tested(_margin(claim, table))
    )


def _margin(claim: Claim, table: StudyTable) -> float:
    """The difference `better - worse` that the claim is tested against: zero, or the smallest gain
    that matters if the claim is that there is no gain."""
    first, reference = table.first, table.row(claim.better)
    if not claim.equal or first is None or reference is None:
        return 0.0
    if first["metric"] == "accuracy":
        return -MARGIN_ACCURACY
    return MARGIN_ERROR * (reference.mean or 0.0)


def _decide(claim: Claim, table: StudyTable, found: Comparison) -> Verdict:
    first = table.first
    accuracy = first is not None and first["metric"] == "accuracy"
    said = figures(found, accuracy)

    def verdict(kind: str, why: str = "", more: str = "") -> Verdict:
        return Verdict(claim, table.name, kind, why, said + more, found)

    failed, whole = found.failed
    if failed and not found.runs[0] and not whole:
        return verdict(FAILS)
    if any(found.failed):
        return verdict(UNCLEAR, FAILED)
    if found.mean is None:
        return verdict(UNCLEAR, CHANCE)
    # How far `better` is ahead of the margin; positive for a better score of either metric.
    ahead = (found.mean - _margin(claim, table)) * (1 if accuracy else -1)
    if min(found.runs) < SEEDS:
        if found.ci95 is None or abs(ahead) <= found.ci95:
            return verdict(UNCLEAR, INDICATION, "; indicates nothing")
        way = "that it holds" if ahead > 0 else "that it does not hold"
        return verdict(UNCLEAR, INDICATION, f"; indicates {way}")
    if found.counts:
        return verdict(HOLDS if ahead > 0 else FAILS)
    return verdict(UNCLEAR, CHANCE)


def counted(verdicts: Iterable[Verdict]) -> str:
    """The number of verdicts of each kind, as a sentence."""
    verdicts = list(verdicts)
    kinds = Counter(verdict.verdict for verdict in verdicts)
    whys = Counter(verdict.why for verdict in verdicts)
    parts = [f"{whys[why]} {words}" for why, words in SEVERAL.items() if whys[why]]
    of_them = f" ({', '.join(parts)})" if parts else ""
    return (
        f"{kinds[HOLDS]} hold, {kinds[FAILS]} do not, and of {kinds[UNCLEAR]} these data cannot "
        f"tell{of_them}."
    )


def without_figures(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """The tables without a figure as text, each once, by the reason; no reason without one."""
    known = {why: dict.fromkeys(v.table for v in verdicts if v.why == why) for why in NONE}
    return {why: ", ".join(f"`{name}`" for name in names) for why, names in known.items() if names}
