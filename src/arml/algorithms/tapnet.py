"""TapNet: every class has a learned reference vector. Each task has a subspace in which its class
means and their references agree: the null space of their differences. It is computed, not learned,
and no gradient passes through it. A query belongs to the class of the nearest reference within the
subspace.

[1] Yoon, Seo and Moon, TapNet: Neural Network Augmented with Task-Adaptive Projection for Few-Shot
    Learning, ICML 2019.
[2] The authors' code, istarjun/TapNet (Chainer).

Differences
- The projection is x - Q Q^T x, where a QR decomposition gives Q, an orthonormal basis of the
  differences. It has the same distances as a basis of the null space, whose D - N columns need a
  full singular value decomposition. If differences happen to be linearly dependent, they still
  remove N dimensions, as in the authors' code.
- Classes that a task does not have take no reference vector and no dimension.
- The embedding is the base network without its head, not a ResNet-12 with dropout.
- The distances may have a scale, constant or learned, as in ProtoNet.
- The authors train on 20 ways with 8 queries, decay the weights by 5e-4 and divide the rate by ten
  after 40,000 episodes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from arml.algorithms.method import Method
from arml.algorithms.protonet import DistanceOptions
from arml.core.checks import classes_only
from arml.core.compilation import unbatched
from arml.core.episodes import Examples, Problem, Task
from arml.core.learner import Adapted, Network
from arml.core.losses import single
from arml.nn.heads import Embedded, class_means, mask_absent, squared_distances, units
from arml.nn.networks import Body, with_body

Vectors = Float[Array, "ways d"]
"""One for each class."""
Present = Bool[Array, " ways"]
"""Whether a task has each class."""


class TapNet(Embedded):
    """logits_k = -s ||(f(x) - phi_k) M||^2, with M a basis of the null space of the differences
    between the references and the class means."""

    body: Body
    references: Vectors
    """Phi: one vector for each class of a training task."""
    scale: float | Float[Array, ""]
    """s."""

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        """At test each class takes the nearest free reference, beginning with class 0. A reference
        was not trained for a particular class, and there may be more references than classes."""
        return self._classify(support, match)

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """In training, reference k belongs to class k of the task."""
        adapted = self._classify(task.support, lambda means, *_: jnp.arange(len(means)))
        return self.loss(adapted.predict(task.query.x), task.query.y)

    def _classify(
        self, support: Examples, choose: Callable[[Vectors, Vectors, Present], Int[Array, " ways"]]
    ) -> Adapted:
        features, embed = self.body.embedded(support.x)
        means, present = class_means(features, support.y, len(self.references))
        references = self.references[choose(means, self.references, present)]
        project = projection(_differences(references, means, present), present)
        centres = project(references)

        def predict(x: Float[Array, "m *features"]) -> Float[Array, "m ways"]:
            return mask_absent(present, -self.scale * squared_distances(project(embed(x)), centres))

        return Adapted(predict)


def match(means: Vectors, references: Vectors, present: Present) -> Int[Array, " ways"]:
    """The reference of each class: class by class, the nearest one that is not taken yet."""
    distances = squared_distances(means, references)

    def choose(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        chosen, taken = carry
        nearest = jnp.argmin(jnp.where(taken, jnp.inf, distances[k])).astype(chosen.dtype)
        return chosen.at[k].set(nearest), taken.at[nearest].set(taken[nearest] | present[k])

    start = jnp.zeros(len(means), jnp.int32), jnp.zeros(len(references), bool)
    found: Array = jax.lax.fori_loop(0, len(means), choose, start)[0]
    return found


def _differences(references: Vectors, means: Vectors, present: Present) -> Vectors:
    """e_k = Phi~_k / |Phi~_k| - c_k / |c_k|, with Phi~_k = N phi_k - sum_l phi_l over the N classes
    that are present; zero for the others."""
    weights = present.astype(references.dtype)
    away = jnp.sum(weights) * references - weights @ references  # Phi~: away from the others
    return weights[:, None] * (_normalised(away) - _normalised(means))


def _normalised(x: Float[Array, "n d"]) -> Float[Array, "n d"]:
    unit: Array = x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-6)
    return unit


def projection(errors: Vectors, present: Present) -> Callable[[Array], Float[Array, "n d"]]:
    """x -> x M M^T, with M an orthonormal basis of the null space of the errors of the classes that
    are present. No gradient reaches the errors."""
    # Column k of Q depends on the rows up to k only: absent classes go last, so that their columns
    # can be left out.
    ordered = jax.lax.stop_gradient(errors)[jnp.argsort(~present)]
    basis = jax.lax.stop_gradient(unbatched(jnp.linalg.qr)(single(ordered.T))[0])
    basis = basis.astype(errors.dtype)
    basis = jnp.where(jnp.arange(len(errors)) < jnp.sum(present), basis, 0)
    return lambda x: x - (x @ basis) @ basis.T


@dataclass(frozen=True, kw_only=True)
class TapNetOptions(DistanceOptions):
    """TapNet: the nearest reference vector in a subspace computed for the task. Its references have
    as many numbers as the base network has features. The paper has no scale."""

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> TapNet:
        """The learner with the body of `net`; references are drawn with variance 1/D, as the
        weights of a linear layer are, as in the authors' code."""
        classes_only("TapNet", problem)
        body = with_body(net, "TapNet").body
        ways, d = problem.outputs, units(body, problem.features)
        if d <= ways:
            raise ValueError(
                f"TapNet needs features of more dimensions than there are classes, got {d} for "
                f"{ways} classes: widen the network, or lower the ways"
            )
        references = jax.nn.initializers.lecun_normal()(key, (d, ways), jnp.float32).T
        return TapNet(body=body, references=references, scale=self.first_scale, problem=problem)


METHODS = (
    Method(
        name="tapnet",
        options_class=TapNetOptions,
        paper="Yoon, Seo and Moon, ICML 2019",
        kinds=("classification",),
        descends=False,
    ),
)
