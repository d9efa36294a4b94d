"""Ways to look inside a learner, by their names in the methods' entries."""

from typing import Protocol, runtime_checkable

from jaxtyping import PyTree

from arml.core.episodes import TaskDistribution
from arml.core.learner import the_inputs
from arml.explain.graph import found_in
from arml.explain.interventions import interventions
from arml.explain.nearest import nearest
from arml.explain.others import Found, codes, masks, tree
from arml.results.files import RunError


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
    found = found_in(learner, tasks, n=n, chunk=chunk)
    found["interventions"] = interventions(learner, tasks, n=n, chunk=chunk)
    if learner.look is not the_inputs or len(tasks.problem.features) != 3:
        return found, {}
    entries, strips = nearest(encoder, tasks, n=n, chunk=chunk)
    names = [f"nearest-V{i}.png" for i in range(len(strips))]
    found["nearest"] = {"images": entries, "files": names}
    return found, dict(zip(names, strips, strict=True))


LOOKS: dict[str, Look] = {"graph": graph, "tree": tree, "codes": codes, "masks": masks}
