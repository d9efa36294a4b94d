"""Look inside the learner of a run folder, and write what was found.

`explain` writes `explain.json` and figures. For ARML it also measures, by intervention, how the
loss of each family changes without a vertex.
"""

from pathlib import Path
from typing import Protocol, runtime_checkable

from jaxtyping import PyTree

from arml.algorithms import ALGORITHMS
from arml.algorithms.arml_extensions import ExtendedARML
from arml.core.checks import Options
from arml.core.episodes import TaskDistribution
from arml.core.learner import MetaLearner
from arml.experiment.running import Run
from arml.explain.graph import found_in, nearest
from arml.explain.interventions import interventions
from arml.explain.looks import IMAGES_AT_ONCE, Found, codes, masks, tree
from arml.report.curves import save
from arml.report.graphs import captioned
from arml.results.files import RunError, plain, write_bytes, write_json
from arml.results.folder import FORMAT


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
    # The extension reads the features of a support set, not single images.
    if isinstance(learner, ExtendedARML) or len(tasks.problem.features) != 3:
        return found, {}
    entries, strips = nearest(encoder, tasks, n=n, chunk=chunk)
    names = [f"nearest-V{i}.png" for i in range(len(strips))]
    found["nearest"] = {"images": entries, "files": names}
    return found, dict(zip(names, strips, strict=True))


LOOKS: dict[str, Look] = {"graph": graph, "tree": tree, "codes": codes, "masks": masks}


def explain(folder: Path, out: Path, *, tasks: int = 200) -> list[Path]:
    """Explain the run in `folder` on its first `tasks` test tasks; write the findings to `out`.

    The files are `explain.json`, and figures as PNG and SVG. The report of the run shows them too
    if `out` is the folder `explain` in it.

    - **ARML** (`kind` is graph): `links` (the prototype-to-vertex heat map of one task of each
      family), `links-average` (mean and standard deviation over a family's tasks),
      `knowledge-graph` (the links between vertices), `effects` (the loss of each family without a
      vertex) and, for images, a strip `nearest-V0.png` for each vertex.
      `explain.json` holds `families`; `vertices`; `tasks` and `tasks_by_family`;
      `prototype_names`; `example` (each family's `[prototypes, vertices]`, rows sum to one);
      `average` (each family's `mean` and `sd`); `vertex_links` (`[vertices, vertices]`, in [0, 1],
      zero diagonal); `threshold`; `vertex_links_reach_tasks`, false if the links between vertices
      cannot change the reading of any task; `vertex_links_effect`, the mean over tasks of how far
      the prototypes move, relative to their norm, when these links are removed; `interventions`
      and `nearest`, which the functions of these names describe.
    - **HSML** (tree), **MUMOMAML** (codes), **MT-Net** (masks): the entries that `explain.others`
      describes, and the figure of that name.
    - Any other method: the lists, tables and arrays that its own function returns
      (`Method.inside`), and a figure of each.

    **Returns** the files written, `explain.json` first.

    **Raises** `RunError` in one line for a folder that is not a trained run, a learner with nothing
    inside to show, too few tasks to have one of each family, and a folder that cannot be written.
    """
    if tasks < 1:
        raise RunError(f"expected one or more tasks, got {tasks}; raise --tasks")
    trained = Run(folder)
    recipe, test = trained.experiment.recipe, trained.splits.test
    look = looked(trained.experiment.algorithm, recipe)
    images = len(test.problem.features) == 3
    chunk = min(trained.experiment.chunk, tasks, IMAGES_AT_ONCE if images else tasks)
    found, strips = look(trained.learner, test, n=tasks, chunk=chunk)
    explained = {
        "format": FORMAT,
        "recipe": recipe,
        "step": trained.step,
        "families": list(test.families),
        "tasks": tasks,
        **found,
    }
    figures = captioned(explained)
    files = [out / "explain.json"]
    for name, strip in strips.items():
        write_bytes(out / name, strip)
        files.append(out / name)
    for name, figure, _, _ in figures:
        files += save(figure, out / name)
    # Last: if it is there, the other files are.
    write_json(files[0], explained)
    return files


def looked(options: Options, recipe: str) -> Look:
    """How to look inside a learner with these options of its method.

    **Raises** `RunError` in one line for a method with nothing inside to show.
    """
    known = ALGORITHMS.of(options)
    if not known.inside:
        others = ", ".join(m.name for m in ALGORITHMS.values() if m.inside)
        more = "" if known.source is None else ", or give arml.register a function as `inside`"
        raise RunError(
            f"expected a method with something inside to show, got {recipe}, which has nothing; "
            f"name a run of {others}{more}"
        )
    if isinstance(known.inside, str):
        if known.inside not in LOOKS:
            raise RunError(
                f"expected the inside of {known.name} to be a function or one of "
                f"{', '.join(LOOKS)}, got {known.inside!r}: change its entry"
            )
        return LOOKS[known.inside]
    own = known.inside

    def look(learner: MetaLearner, tasks: TaskDistribution, *, n: int, chunk: int) -> Found:
        try:
            found = plain(own(learner, tasks, n=n, chunk=chunk))
        except TypeError as error:
            raise RunError(
                f"the inside of {known.name}: {error}: change the function `inside` of its entry"
            ) from error
        if not isinstance(found, dict):
            raise RunError(
                f"expected the inside of {known.name} as a dictionary, got {type(found).__name__}: "
                "return names with their numbers"
            )
        return {"kind": "own", **found}, {}

    return look
