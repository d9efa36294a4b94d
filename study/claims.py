"""The paper's claims, each judged from a study's results, and never by hand.

A claim that one method is better than another *holds* if the difference has the claimed sign and is
significant over training runs and tasks (`arml.compare`), after Holm's correction for all
claims that the same table decides. It *does not hold* if the difference is significant
and has the other sign. In all other cases the data *cannot tell*: the difference may be chance, a
run failed, there are too few runs (then the figures are an indication, about these trained learners
alone), or nothing was run. A claim that more is no better is tested in the same way against the
smallest gain that matters. Claims about our own presets are no claims of the paper.

[1] Yao, Wu, Tao, Li, Ding, Li and Li, Automated Relational Meta-learning, ICLR 2020.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from arml.results.comparisons import CANNOT_TELL, Comparison, holm
from study.data import Study, StudyTable, compared
from study.paper import names, rows_of
from study.plan import ABLATIONS, INERT, LOCAL, PICTURES

HOLDS, FAILS = "holds", "does not hold"
NOT_YET, CANNOT = "not run", "needs the data"
MARGIN_ACCURACY, MARGIN_ERROR = 0.01, 0.05
"""A gain of less than a point of accuracy, or a twentieth of the error, does not matter."""
PAPER, OURS, EXTENDED = "ARML, paper's text", "ARML, FiLM", "ARML, extended"


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
        return self.better in (OURS, EXTENDED)


@dataclass(frozen=True)
class Verdict:
    """The verdict of a table on a claim."""

    claim: Claim
    table: str
    verdict: str
    why: str = ""
    """Why the data cannot tell."""
    comparison: Comparison | None = None


MAIN = ("regression2d", "starter-1shot", "starter-5shot", "starter-art-1shot")
REAL = ("plain-multi-1shot", "plain-multi-5shot", "art-multi-1shot", "art-multi-5shot")
PARTS = {
    "I": "a prototype-based graph",
    "II": "prototypes, not samples, as the task's vertices",
    "III": "links between prototypes",
    "IV": "the meta-knowledge graph",
    "V": "the reconstruction loss",
    "VI": "recurrent encoders and decoders",
    "VII": "one gate for each parameter",
    "VIII": "the sigmoid rather than tanh",
    "IX": "the sigmoid rather than FiLM",
}


def _on(kind: str, *places: str) -> tuple[str, ...]:
    return tuple(f"{kind}-{place}" for place in places)


def _claims() -> list[Claim]:
    # The nearest methods of its regression first, as in the paper.
    others = [row for row in reversed(rows_of(MAIN[0])) if row != "arml"]
    others += [row for row in rows_of(REAL[0]) if row not in (*others, "arml")]
    found = []
    for arml, name in ((PAPER, "ARML (the paper's text)"), (OURS, "Our preset `arml-film`")):
        for row in others:
            # If the paper's table lacks this row, ours is an extension and decides no claim.
            tables = tuple(t for t in (*MAIN, *REAL) if row in (rows_of(t) or [row]))
            text = f"{name} is better than {names()[row]}"
            found.append(Claim(f"{name} against others", text, tables, arml, names()[row]))
    tables = _on("ablations", "regression2d", "starter-1shot", "plain-multi-5shot")
    for number, part in PARTS.items():
        text, label = f"ARML gains from {part} ({number})", f"{number}. {ABLATIONS[number][0]}"
        found.append(Claim("Ablations", text, tables, "ARML", label))
    tables, group = _on("vertices", "regression2d", "starter-art-1shot"), "Number of vertices"
    found.append(Claim(group, "8 vertices are better than 4", tables, "8 vertices", "4 vertices"))
    for more in (12, 16, 20):
        text = f"{more} vertices are no better than 8"
        found.append(Claim(group, text, tables, "8 vertices", f"{more} vertices", equal=True))
    for wiring in ("symmetric-normalised, 1", "row-normalised, 2", "symmetric-normalised, 2"):
        label = f"{wiring} layer{'s' if wiring.endswith('2') else ''}"
        text = f"Links that change what tasks read ({label}) are better than those that do not"
        found.append(Claim("Links", text, _on("edges", "regression2d"), label, INERT))
    name = "Our preset `arml`"
    for row, other in ((OURS, "`arml-film`"), (PAPER, "the paper's text"), ("HSML", "HSML")):
        found.append(Claim(name, f"{name} is better than {other}", MAIN[:1], EXTENDED, row))
    for row, part in (
        ("one vertex, which all tasks read", "several vertices"),
        ("the head alone", "tailoring"),
    ):
        tables = _on("evidence", "regression2d")
        found.append(Claim(name, f"{name} gains from {part}", tables, EXTENDED, row))
    return found


CLAIMS = tuple(_claims())


def judge(study: Study, claims: Iterable[Claim] = CLAIMS) -> list[Verdict]:
    """Every claim by every table that could decide it, in order. Holm's correction is over all
    claims that one table decides."""
    families: dict[str, list[Verdict]] = {}
    ordered = []
    for claim in claims:
        for name in claim.tables:
            table = study.table(name)
            if table is not None and None in (table.row(claim.better), table.row(claim.worse)):
                continue  # a table of few methods
            ordered.append((claim, name))
            families.setdefault(name, []).append(_look(study, claim, name))
    final: dict[tuple[Claim, str], Verdict] = {}
    for some in families.values():
        adjusted = iter(holm([v.comparison for v in some if v.comparison is not None]))
        for verdict in some:
            if verdict.comparison is not None:
                found = next(adjusted)
                said = {"better": HOLDS, "worse": FAILS}.get(found.verdict, CANNOT_TELL)
                verdict = Verdict(verdict.claim, verdict.table, said, found.why, found)
            final[verdict.claim, verdict.table] = verdict
    return [final[key] for key in ordered]


def _look(study: Study, claim: Claim, name: str) -> Verdict:
    """The comparison `better - worse`, tested against zero or the margin; or the reason why there
    is none."""
    table = study.table(name)
    pair = (table.row(claim.better), table.row(claim.worse)) if table else (None, None)
    if table is None or any(row is None or not (row.scores or row.failures) for row in pair):
        return Verdict(claim, name, CANNOT_TELL, NOT_YET if name in (*LOCAL, *PICTURES) else CANNOT)
    better, worse = pair
    assert better is not None
    assert worse is not None
    found = compared(better, worse).tested(_margin(claim, table))
    return Verdict(claim, name, "", comparison=found)


def _margin(claim: Claim, table: StudyTable) -> float:
    """The difference `better - worse` that the claim is tested against: zero, or the smallest gain
    that matters if the claim is that there is no gain."""
    reference = table.row(claim.better)
    if not claim.equal or reference is None:
        return 0.0
    return -MARGIN_ACCURACY if table.accuracy else MARGIN_ERROR * reference.mean


def counted(verdicts: Iterable[Verdict]) -> str:
    """The number of verdicts of each kind, as a sentence."""
    verdicts = list(verdicts)
    kinds = Counter(verdict.verdict for verdict in verdicts)
    whys = Counter(verdict.why for verdict in verdicts if verdict.why)
    of_them = ", ".join(f"{count} {why}" for why, count in whys.items())
    return (
        f"{kinds[HOLDS]} hold, {kinds[FAILS]} do not, and of {kinds[CANNOT_TELL]} these data "
        f"cannot tell{f' ({of_them})' if of_them else ''}."
    )
