"""Ways to look inside a learner, by their names in the methods' entries."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from arml.core.episodes import Examples, Problem, Task, TaskDistribution
from arml.core.learner import the_inputs
from arml.explain.graph import found_in
from arml.explain.interventions import code_of, interventions
from arml.explain.nearest import nearest
from arml.explain.others import Found, codes, masks, tree
from arml.explain.tasks import by_family, finite
from arml.nn.prototypes import units
from arml.results.files import RunError
from arml.training.evaluate import looks, together


@runtime_checkable
class Look(Protocol):
    """A function that looks inside a learner on its first `n` test tasks, `chunk` at once."""

    def __call__(
        self, learner: PyTree, tasks: TaskDistribution, *, n: int, chunk: int
    ) -> Found: ...


def graph(learner: PyTree, tasks: TaskDistribution, *, n: int, chunk: int) -> Found:
    """ARML's meta-knowledge graph, with interventions on it and, for images, the nearest ones."""
    encoder = learner.encode
    if encoder.graph is None:
        raise RunError(
            "expected a meta-knowledge graph of one or more vertices, got a run with vertices 0; "
            "name a run of ARML that was trained with vertices"
        )
    seen = tasks if learner.look is the_inputs else as_features(learner, tasks)
    found = found_in(encoder, encoder.graph, seen, n=n, chunk=chunk)
    if learner.choose is not None:  # a task does not read by places alone
        codes, families = together(looks(code_of, learner, tasks, split="test", n=n, chunk=chunk))
        read = np.asarray(codes)[:, None, : len(encoder.graph.vertices)]
        finite("readings", read)
        found |= by_family(read, np.asarray(families), tasks.families)
        found["prototype_names"] = ["the task"]
    found["interventions"] = interventions(learner, tasks, n=n, chunk=chunk)
    if len(seen.problem.features) != 3:
        return found, {}
    entries, strips = nearest(encoder, tasks, n=n, chunk=chunk)
    names = [f"nearest-V{i}.png" for i in range(len(strips))]
    found["nearest"] = {"images": entries, "files": names}
    return found, dict(zip(names, strips, strict=True))


class Seen(TaskDistribution):
    """The tasks with the support sets that the encoder of a learner reads: features in place of
    pictures."""

    families: tuple[str, ...] = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)
    tasks: TaskDistribution
    look: Callable[[PyTree, Examples], Examples]
    net: PyTree

    def sample(self, key: PRNGKeyArray) -> Task:
        task = self.tasks.sample(key)
        return task._replace(support=self.look(self.net, task.support))


def as_features(learner: PyTree, tasks: TaskDistribution) -> Seen:
    """The tasks for a learner whose encoder reads the features of its network."""
    width = units(learner.net.body, tasks.problem.features)
    problem = replace(tasks.problem, features=(width,))
    return Seen(tasks.families, problem, tasks, learner.look, learner.net)


LOOKS: dict[str, Look] = {"graph": graph, "tree": tree, "codes": codes, "masks": masks}
