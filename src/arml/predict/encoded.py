"""Learners of a few labelled inputs, each of which a frozen model turns into a vector.

Nothing is trained. Each input becomes a vector once, and a formula computes the classifier from the
vectors of the examples: see `arml.predict.head`.
"""

import copy
import hashlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Float32

from arml.datasets.decode import LOG
from arml.datasets.folders import default_folder
from arml.predict.base import BY_LEARNER, L, Predictor, TaskLearner, softmax
from arml.predict.files import (
    PREDICTOR_FORMAT,
    SUPPORT_FILE,
    check_free,
    read_checked,
    write_checked,
)
from arml.predict.head import fit_head, unit_roots
from arml.predict.inputs import (
    PRIOR_EQUAL,
    PRIOR_OF_EXAMPLES,
    Bad,
    OnItem,
    Prior,
    checked_array,
    checked_labels,
    checked_prior,
    each,
    weighted,
)
from arml.predict.kinds import Inputs, check_parts, named_kind
from arml.predict.scikit import check_weights, facts_of, learned_by, remade
from arml.results.files import (
    Json,
    RunError,
    atomically,
    checksum,
    digest_of,
    read_arrays,
    write_arrays,
)

if TYPE_CHECKING:
    from arml.core.episodes import Problem


class EncodedLearner(TaskLearner):
    """Learns a user's own classes from a few inputs of each.

    Inputs are a list of files (paths), of open files, or of other objects that the kind accepts.
    Their vectors `[n, d]`, as `read` returns them, are accepted, too.
    """

    path: Path | str | None = None
    """The file of the frozen model that makes the vectors, if it does not ship with the package."""

    def __init__(self, kind: Inputs) -> None:
        self._kind, self.families, self.predictor = kind, (), EncodedPredictor
        if type(self) is EncodedLearner:
            check_parts(kind)

    @property
    def kind(self) -> Inputs:
        return self._kind

    def __reduce__(self) -> tuple[object, ...]:
        return learner_of, (self.kind.name, self.facts, self.path)

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        return self.kind.dimension

    @property
    def facts(self) -> Json:
        """Everything on which the vectors depend, as plain data."""
        return self.kind.facts

    def with_estimator(self: L, estimator: object, kind: str = "classification") -> L:
        return super().with_estimator(estimator, kind)

    def encode(self, content: object, where: str, doubts: list[str]) -> Float32[np.ndarray, " d"]:
        """The vector of one input; remarks about it are added to `doubts`. **Raises** `ValueError`
        with the name `where` if the input cannot be read."""
        vector = np.asarray(self.kind.vector(content, where), np.float32)
        fits = vector.shape == (self.dimension,)
        if not fits or not np.all(np.isfinite(vector)):
            got = "NaN or infinity" if fits else f"shape {list(vector.shape)}"
            raise ValueError(
                f"{where}: expected {self.dimension} finite numbers from "
                f"{type(self.kind).__name__}.vector, got {got}"
            )
        return vector

    @property
    def problem(self) -> "Problem":  # type: ignore[override]
        """The kind of tasks: classification of vectors, with any number of classes."""
        from arml.core.episodes import Problem  # it loads JAX, which takes a second

        return Problem("classification", (self.dimension,), 5, 5, 15)

    def adapt(  # type: ignore[override]
        self,
        x: object,
        y: object,
        sample_weight: object = None,
        *,
        groups: object = None,
        prior: object = None,
    ) -> "EncodedPredictor":
        """Learn a task from labelled inputs.

        **Arguments**

        - `sample_weight`: how much each input counts `[n]`. With a weight of 2 it counts as if it
          came twice, and with 0 it is left out.
        - `groups`: a value for each input, such as the animal that it shows. Wherever examples are
          left out, inputs with the same value are left out together.
        - `prior`: the frequencies of the classes among new inputs, if they differ from the default
          of the kind: see `EncodedPredictor.with_prior`.

        **Raises** `ValueError` for inputs that cannot be read, and for labels of fewer than two
        classes.
        """
        vectors, labels, weight, groups = weighted(self.read(x), y, sample_weight, groups)
        if weight is not None and self.estimator is not None:
            check_weights(self.estimator)
        if not len(vectors):
            raise ValueError(f"no {self.kind.many} were given as examples")
        classes, places = checked_labels(labels, len(vectors))
        found = self.predictor(self, vectors, places, classes, weight, groups)
        return found if prior is None else found.with_prior(prior)

    def read(
        self, x: object, what: str = "", progress: OnItem | None = None, bad: Bad | None = None
    ) -> Float32[np.ndarray, "n d"]:
        """The vectors of inputs, computed on all cores and cached by the content of files. `bad`
        gets the problems of inputs that cannot be read; their vectors are 0.

        **Raises** `ValueError` for an input that cannot be read, if `bad` is None.
        """
        shape: tuple[int, ...] = getattr(x, "shape", ())
        cells = np.asarray(x)[:1].ravel() if hasattr(x, "columns") else ()  # of a data frame
        if len(shape) == 2 and not any(isinstance(cell, str) for cell in cells):
            named = what or f"{self.kind.many}, or their vectors,"
            return checked_array(x, (self.dimension,), named).astype(np.float32)
        blank = np.zeros(self.dimension, np.float32)
        return each(self._vector, self.kind.items(x), blank, progress, bad, self.kind.many)

    def _vector(self, item: object, place: int) -> Float32[np.ndarray, " d"]:
        where, content = self.kind.content(item, place)
        kept, doubts = None, list[str]()
        if isinstance(content, bytes | str):
            data = content if isinstance(content, bytes) else content.encode()
            name = f"{hashlib.sha256(data).hexdigest()}.npy"
            kept = None if self.cache is None else self.cache / name
        if kept is not None:
            with suppress(OSError, ValueError, EOFError):  # missing or damaged: compute it
                vector = np.load(kept, allow_pickle=False)
                if vector.shape == (self.dimension,) and vector.dtype == np.float32:
                    return vector
        vector = self.encode(content, where, doubts)
        for doubt in doubts:
            LOG.warning(doubt)
        if kept is not None and not doubts:  # doubts are repeated
            with suppress(OSError, RunError):  # a missing cache costs only time
                kept.parent.mkdir(parents=True, exist_ok=True)
                atomically(kept, lambda file: np.save(file, vector))
        return vector

    @cached_property
    def cache(self) -> Path | None:
        """The folder of cached vectors. None for a kind that a notebook defines, because its code
        may change without a sign."""
        facts = self.facts
        if self.kind.source is not None:
            try:
                facts = {**facts, "code": digest_of(Path(inspect.getfile(type(self.kind).vector)))}
            except (TypeError, OSError):
                return None
        return default_folder() / self.kind.name / checksum(facts)[:16]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind.many})"


class EncodedPredictor(Predictor):
    """A task that was learned from vectors. `x` holds the vectors `[n, d]` of the examples."""

    classes: np.ndarray
    learner: EncodedLearner
    fit_head: ClassVar[Callable[..., Any]] = staticmethod(fit_head)
    """Fits the classifier. The classifier has `logits` and `answers` like `Head`."""
    prior: Prior = PRIOR_EQUAL
    """The frequencies of the classes among new inputs: see `with_prior`."""

    def with_prior(self, prior: object) -> "EncodedPredictor":
        """The same predictor for new inputs with these frequencies of the classes: "equal",
        "examples" (as among the examples), or a share for each class, by label or in the order of
        `classes`. Frequent classes get higher probabilities. **Raises** `ValueError` for an invalid
        prior."""
        checked, other = checked_prior(prior, self.classes), copy.copy(self)
        if self.learner.estimator is not None and checked != self.prior:
            raise ValueError("an estimator cannot use a prior: leave the prior out")
        for name in ("head", "_function", "_reliability"):
            vars(other).pop(name, None)
        other.prior = checked
        return other

    @property
    def prior_in_words(self) -> str:  # type: ignore[override]
        said = "equally frequent (--prior examples: as frequent as among the examples)"
        if isinstance(self.prior, dict):
            said = ", ".join(f"{label} {share:.3g}" for label, share in self.prior.items())
        elif self.prior == PRIOR_OF_EXAMPLES:
            said = "as frequent as among the examples (--prior equal: equally frequent)"
        if self.learner.estimator is not None or (
            isinstance(self.prior, str) and np.ptp(np.bincount(self.y)) == 0
        ):
            return ""
        return f"answers assume that the classes of new inputs are {said}"

    def add(self, x: object, y: object, groups: object = None) -> Predictor:
        """As `Predictor.add`. It also **raises** `ValueError` for a new class without a share in
        the prior."""
        new = {*np.ravel(np.asarray(y)).tolist()} - {*self.classes.tolist()}
        if isinstance(self.prior, dict) and new:
            raise ValueError(
                f"the prior has no share for the new class {min(new, key=str)!r}: use "
                '.with_prior("equal") before add, and with_prior with all classes after it'
            )
        return super().add(x, y, groups).with_prior(self.prior)

    @cached_property
    def head(self) -> Any:
        """The classifier of vectors."""
        return self._fitted(np.arange(len(self.y)))

    def _fitted(self, kept: np.ndarray) -> Any:
        """The classifier of some of the examples."""
        more = self.sample_weight, self._same, self.groups
        weight, same, groups = (None if part is None else part[kept] for part in more)
        # Large folds keep one temperature: choosing it costs ten fits, and does not change labels
        # unless a prior is added.
        plain = self.prior == type(self).prior
        left_out = len(kept) == len(self.y) or len(kept) <= 200 or not plain
        given = self.x[kept], self.y[kept], len(self.classes), weight, same, groups
        return self.fit_head(*given, left_out=left_out, prior=self.prior)

    def _learned(self, kept: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """The function from vectors to log-odds that is learned from some of the examples."""
        if self.learner.estimator is None:
            return (self.head if len(kept) == len(self.y) else self._fitted(kept)).logits
        weight = None if self.sample_weight is None else self.sample_weight[kept]
        prepare = self._prepared(kept)
        given = prepare(self.x[kept]), self.y[kept], weight
        learned = learned_by(self.learner.estimator, len(self.classes), *given)
        return lambda vectors: learned(prepare(vectors))

    def _prepared(self, kept: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """From vectors to the inputs of an estimator; it may learn from the examples `kept`."""
        return lambda vectors: vectors

    @cached_property
    def _function(self) -> Callable[[np.ndarray], np.ndarray]:
        return self._learned(np.arange(len(self.y)))

    def _outputs(self, inputs: np.ndarray) -> Float[np.ndarray, "n classes"]:
        return np.asarray(self._function(inputs))

    def _refit(self, train: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
        parts = {self.model: self._learned(train)}
        if self.learner.estimator is not None:
            parts[BY_LEARNER] = self._fitted(train).logits
        return {name: softmax(f(self.x[test]).astype(np.float64)) for name, f in parts.items()}

    def outside(self, x: object, chances: np.ndarray) -> Bool[np.ndarray, " n"]:
        """Whether each input may belong to none of the classes: its novelty is above 1."""
        return self.novelty(x) > 1

    def embedding(self, x: object) -> Float[np.ndarray, "n d"] | None:
        """The vectors by which the head compares inputs."""
        return np.asarray(unit_roots(self.learner.read(x)))

    def novelty(self, x: object, errors: str = "raise") -> Float[np.ndarray, " n"]:
        """How far each input is from all classes: see `arml.predict.head`. Above 1 it may lie
        outside of them all; so do about 5% of inputs of known classes. `errors` as in `predict`."""
        inputs, bad = self._reading(x, errors)
        found = np.array(self.head.answers(inputs)[1])
        found[bad] = np.nan
        return found

    def _traced(self) -> Callable[[Any], Any]:
        import jax.numpy as jnp

        return lambda x: self.head.answers(x, jnp)

    def save(self, folder: Path | str) -> None:
        """Write a folder with the vectors and labels of its examples, but without the inputs.

        **Raises** `RunError` if it cannot be written, or if the folder holds something else.
        """
        folder = Path(folder)
        task = {"classes": self.classes.tolist()}
        if self.columns:  # for a table
            task |= {"columns": self.columns, "target": self.target}
        what = PREDICTOR_FORMAT + self.learner.kind.name
        check_free(folder, predictor=True, task={**task, "what": what})
        content = {
            **task,
            "extractor": self.learner.facts,
            "support": write_arrays(folder / SUPPORT_FILE, self.support),
            "prior": self.prior,
        }
        if self.learner.estimator is not None:
            content["estimator"] = facts_of(self.learner.estimator)
        write_checked(folder, what, content)

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.classes[:5])) + (", ..." if len(self.classes) > 5 else "")
        named = f"{len(self.x)} {self.learner.kind.many} of {len(self.classes)} classes"
        return f"{type(self).__name__}({named}: {shown})"


def learner_of(kind: str, facts: Json, model: Path | str | None = None) -> EncodedLearner:
    """The learner of a kind with the facts of a saved predictor. **Raises** `ValueError` if the
    facts have changed."""
    known = named_kind(kind)
    learner = known.remade(facts, model) or EncodedLearner(known)
    assert isinstance(learner, EncodedLearner)
    return learner


def load_encoded(folder: Path, kind: str, model: Path | str | None = None) -> EncodedPredictor:
    """Load a saved predictor. `model` is its ONNX model, if this does not ship with the package.

    **Raises** `RunError` if it is not a predictor or was altered; `ValueError` for another model.
    """
    content = read_checked(folder, PREDICTOR_FORMAT + kind)
    arrays: Any = read_arrays(folder / SUPPORT_FILE, content["support"])
    learner = learner_of(kind, content["extractor"], model)
    if "estimator" in content:
        learner = learner.with_estimator(remade(content["estimator"]))
    found = learner.predictor(learner, classes=np.asarray(content["classes"]), **arrays)
    found.columns, found.target = tuple(content.get("columns", ())) or None, content.get("target")
    try:
        return found.with_prior(content.get("prior", found.prior))
    except ValueError as error:
        raise RunError(f"{folder}: {error}; save it again") from error
