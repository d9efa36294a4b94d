"""A learner grows by one stage of a stream: propose a vertex, train it, accept it, prune.

- **Propose** a vertex if the median log loss of fresh tasks, after adaptation, lies above the
  reference band, the interval of that median over all known families; or if the support sets are
  novel.
- **Train** two learners for a part of the stage's steps. The candidate has a new vertex, which
  starts from the part that fits fresh tasks best and learns from fresh tasks only. In its rival the
  part that fresh tasks read most learns, with a stated share of replayed tasks of the known
  families that read this part. Everything else stays as it is in both.
- **Accept** the vertex only if it gains on held-out tasks of the new families, paired task by task,
  with an interval that excludes zero: against the rival, or against the learner before if the rival
  harms known families. The winner trains on for the other steps.
- **Guard:** the stage is undone if a known family loses more than `bound` on held-out tasks, or if
  the new families gain nothing.
- **Prune** a vertex whose removal hurts no known family.

A learner whose vertices own no modulation trains all weights with replay, and so does any learner
without the option `grow`. Each decision is a record with its numbers. No decision depends
on test tasks.
"""

from pathlib import Path
from typing import Any, cast

from arml.algorithms.arml_extensions import ExtendedARML
from arml.core.episodes import Task
from arml.core.learner import MetaLearner
from arml.grow.judging import signatures, unneeded
from arml.grow.options import Growth, GrowthOptions, begun
from arml.grow.stage import Runs, Shown, vertex_stage
from arml.grow.streams import Mixture, Stage
from arml.grow.vertices import own_vertices, owns_weights, without_vertex
from arml.results.files import Json

__all__ = ["Growth", "GrowthOptions", "begun", "grown"]


def grown(
    before: Growth,
    train: Mixture,
    held: Mixture,
    stage: Stage,
    options: GrowthOptions,
    *,
    memory: Task | None = None,
    folder: Path | None = None,
    shown: Shown = lambda name, moment: None,
) -> Growth:
    """The learner after one stage.

    **Arguments**

    - `train`, `held`: all families, for training and for decisions.
    - `folder`: keeps the trainings of this stage; the same call goes on there.
    - `memory`: kept tasks of each family (`streams.kept`), of which those of known families are
      replayed. If None, replayed tasks are drawn anew from `train`.
    - `shown`: called with the name of each training and its moments.
    """
    options.check()
    records: list[Json] = []

    def note(decision: str, **numbers: Any) -> None:
        records.append({"stage": before.stages, "decision": decision, **numbers})

    learner, names, made = before.learner, before.names, before.made
    seed = options.seed * 1_000 + before.stages
    run = Runs(options, seed, train, held, stage, memory, before.known, folder, shown)
    grows = owns_weights(learner) if options.grow is None else options.grow
    if own_vertices(learner) is None or not before.known or not grows:
        done = run.all(learner, before.known)
    else:
        done = vertex_stage(before, run, note)
    learner = done.learner
    if done.accepted:
        names, made = (*names, f"V{made}"), made + 1
    known = tuple(dict.fromkeys((*before.known, *stage)))
    if options.prune and grows:
        learner, names = _pruned(learner, names, held, known, options, note)
    if own_vertices(learner) is not None:
        reads = {
            name: signatures(
                cast(ExtendedARML, learner), held.only(name), split="validation", n=options.tasks
            )[1].mean(axis=0)
            for name in known
        }
        note("read", vertices=names, families={k: v.round(4).tolist() for k, v in reads.items()})
    note(
        "trained",
        stage_shares=dict(stage),
        tasks=done.tasks,
        replayed=done.replayed,
        losses=[[record["step"], record["loss"]] for record in done.history],
        curve=[
            {"tasks": int(r["step"] or 0) * options.batch, "score": r["validation"]}
            for r in done.history
            if "validation" in r
        ],
    )
    return Growth(
        learner,
        known,
        before.stages + 1,
        names,
        made,
        before.tasks + done.tasks,
        before.replayed + done.replayed,
        (*before.records, *records),
    )


def _pruned(
    learner: MetaLearner,
    names: tuple[str, ...],
    held: Mixture,
    known: tuple[str, ...],
    options: GrowthOptions,
    note: Any,
) -> tuple[MetaLearner, tuple[str, ...]]:
    """The learner without the vertices that no family needs; they are removed one at a time."""
    while own_vertices(learner) is not None:
        graph = cast(ExtendedARML, learner)
        vertex, effects = unneeded(graph, held, known, n=options.tasks)
        if effects:
            lost = {
                name: {family: e["mean"] for family, e in row.items()}
                for name, row in zip(names, effects, strict=True)
            }
            note("test", lost=lost)
        if vertex is None:
            break
        note("prune", vertex=names[vertex])
        learner = without_vertex(graph, vertex)
        names = (*names[:vertex], *names[vertex + 1 :])
    return learner, names
