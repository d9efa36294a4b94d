"""The paper's claims, each judged by paired differences on the same test tasks, and never by hand.

A claim that one method is better than another is *confirmed* where the difference goes its way, is
more than chance over tasks after Holm's correction for all claims of its table, and has the same
sign for every seed. It is *not confirmed* otherwise: the figures say whether the difference goes
the other way or is too small to tell. A claim that more is no better is confirmed where the 95%
interval leaves no room for a gain that matters. Where a table's data is not here it *cannot be
tested here*, and where a run is missing it is *not yet run*.

[1] Yao, Wu, Tao, Li, Ding, Li and Li, Automated Relational Meta-learning, ICLR 2020.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from arml.report.statistics import Comparison, compare, holm
from arml.report.study import Study, StudyTable
from arml.report.study_cells import difference, probability

CONFIRMED, NOT = "confirmed", "not confirmed"
MARGIN_ACCURACY, MARGIN_ERROR = 0.01, 0.05
"""What is no better by a point of accuracy, or by a twentieth of the error, has saturated."""
CANNOT, NOT_YET = "cannot be tested here", "not yet run"
PAPER, OURS = "ARML, paper's text", "ARML, ours"


@dataclass(frozen=True)
class Claim:
    """`better` has the better score than each of `worse`."""

    group: str
    text: str
    tables: tuple[str, ...]
    better: str
    worse: str
    equal: bool = False
    """The claim is instead that `better` is no worse than `worse`: saturation."""


@dataclass(frozen=True)
class Verdict:
    """What a table says about a claim."""

    claim: Claim
    table: str
    verdict: str
    said: str
    """The figures."""
    comparison: Comparison | None = None

    @property
    def seeds(self) -> int:
        """How many both rows have."""
        return len(self.comparison.by_seed) if self.comparison else 0

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        found = self.comparison
        return {
            "group": self.claim.group,
            "claim": self.claim.text,
            "table": self.table,
            "verdict": self.verdict,
            "figures": self.said,
            "difference": None if found is None else found.mean,
            "ci95": None if found is None else found.ci95,
            "p_adjusted": None if found is None else found.adjusted,
            "tasks": None if found is None else found.tasks,
            "by_seed": None if found is None else list(found.by_seed),
        }


MAIN = ("regression2d", "starter-1shot", "starter-5shot", "starter-art-1shot")
REAL = ("plain-multi-1shot", "plain-multi-5shot", "art-multi-1shot", "art-multi-5shot")
METHODS = ("HSML", "MUMOMAML", "MT-Net", "BMAML", "Meta-SGD", "MAML")
METRIC = ("VERSA", "ProtoNet", "TapNet", "TADAM")
WITHOUT: dict[str, tuple[str, ...]] = {
    "BMAML": ("starter-art-1shot",),
    "MT-Net": ("starter-art-1shot",),
    "Meta-SGD": ("starter-art-1shot",),
    **dict.fromkeys(METRIC, ("regression2d", "starter-art-1shot")),
}
"""Tables that have no such row, or where the method's row is our extension: VERSA's head for
regression."""
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
LOCAL = (*MAIN, *ABLATIONS, *VERTICES, *EDGES)
"""Tables that need no data but what the package carries."""
INERT = "row-normalised, 1 layer (edges inert)"


def _claims() -> list[Claim]:
    found = []
    for arml in (PAPER, OURS):
        group = f"{arml}, over other methods"
        for other in (*METHODS, *METRIC):
            tables = tuple(t for t in (*MAIN, *REAL) if t not in WITHOUT.get(other, ()))
            found.append(Claim(group, f"{arml}, is better than {other}", tables, arml, other))
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
    return found


CLAIMS = tuple(_claims())


def judge(study: Study, claims: Iterable[Claim] = CLAIMS) -> list[Verdict]:
    """Every claim by every table that could tell, in order. The claims of one group that one table
    decides are corrected for their number."""
    verdicts: dict[tuple[str, str], list[Verdict]] = {}
    ordered = []
    for claim in claims:
        for name in claim.tables:
            verdict = _look(study, claim, name)
            ordered.append((claim, name))
            verdicts.setdefault((claim.group, name), []).append(verdict)
    final: dict[tuple[Claim, str], Verdict] = {}
    for some in verdicts.values():
        known = [v for v in some if v.comparison is not None]
        adjusted = holm([v.comparison for v in known if v.comparison is not None])
        for verdict, comparison in zip(known, adjusted, strict=True):
            table = study.table(verdict.table)
            assert table is not None
            final[verdict.claim, verdict.table] = _decide(verdict.claim, table, comparison)
        final |= {(v.claim, v.table): v for v in some if v.comparison is None}
    return [final[key] for key in ordered]


def _look(study: Study, claim: Claim, name: str) -> Verdict:
    """The paired difference `better - worse`, or why there is none."""
    table = study.table(name)
    better, worse = (table.row(claim.better), table.row(claim.worse)) if table else (None, None)
    if better is None or worse is None or not better.scores or not worse.scores:
        failed = [f for row in (better, worse) if row for f in row.failures.values()]
        if failed:
            return Verdict(claim, name, NOT, f"a run failed: {failed[0]}")
        if name not in LOCAL:
            return Verdict(claim, name, CANNOT, "needs `arml data prepare` and a GPU")
        return Verdict(claim, name, NOT_YET, "")
    return Verdict(claim, name, "", "", compare(better.scores, worse.scores))


def _decide(claim: Claim, table: StudyTable, found: Comparison) -> Verdict:
    first = table.first
    assert first is not None
    accuracy = first["metric"] == "accuracy"
    if found.mean is None or found.ci95 is None:
        return Verdict(claim, table.name, NOT, "a score is not finite", found)
    # By how much `better` is ahead, whichever way the metric goes.
    lead = found.mean if accuracy else -found.mean
    if found.counts:
        what = "better" if lead > 0 else "worse"
        # A claim of saturation begins with the other of the two.
        what = f"{claim.better} {what}" if claim.equal else what
    else:
        what = "the seeds disagree" if found.over_tasks else "no difference beyond chance"
    holds = found.counts and lead > 0
    if claim.equal:
        # No difference is claimed: the interval must leave no room for one that matters.
        reference = table.row(claim.better)
        mean = reference.mean if reference else None
        margin = MARGIN_ACCURACY if accuracy else MARGIN_ERROR * (mean or 0.0)
        holds = lead > -margin + found.ci95
        if not holds and not (found.counts and lead < 0):
            what = "the interval leaves room for a difference that matters"
    verdict = CONFIRMED if holds else NOT
    return Verdict(claim, table.name, verdict, f"{figures(found, accuracy)}: {what}", found)


def counted(verdicts: Iterable[Verdict]) -> str:
    """How many there are of each, as a sentence."""
    verdicts = list(verdicts)
    found = Counter(verdict.verdict for verdict in verdicts)
    alone = sum(v.verdict == CONFIRMED and v.seeds == 1 for v in verdicts)
    of_them = f" ({alone} of them by one seed)" if alone else ""
    kinds = {CONFIRMED: of_them, NOT: "", NOT_YET: "", CANNOT: ""}
    return ", ".join(f"{found[k]} {k}{more}" for k, more in kinds.items() if found[k]) + "."


def figures(found: Comparison, accuracy: bool) -> str:
    """A difference as text: mean, interval over tasks, adjusted p-value, tasks and seeds."""
    if found.mean is None:
        return "not finite"
    scale, unit, digits = (100, " points", 2) if accuracy else (1, "", 3)
    p = "" if found.adjusted is None else f", p {probability(found.adjusted)}"
    seeds = ""
    if len(found.by_seed) > 1:
        each = ", ".join(f"{scale * one:+.{digits}f}" for one in found.by_seed)
        seeds = f", by seed {each}"
    else:
        seeds = ", 1 seed"
    return f"{difference(found, accuracy)}{unit}{p}, {found.tasks:,} tasks{seeds}"
