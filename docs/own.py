"""A task family, a network and a method of one's own, in one script outside the package."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp

import arml


class Waves(arml.TaskDistribution):
    """y = a sin(w x): slow and fast waves."""

    problem: arml.Problem = eqx.field(static=True)
    families: tuple[str, ...] = eqx.field(static=True, default=("slow", "fast"))

    def sample(self, key):
        keys, n = jax.random.split(key, 3), self.problem.support
        family = jax.random.bernoulli(keys[0]).astype(jnp.int32)
        x = jax.random.uniform(keys[1], (n + self.problem.query, 1), minval=-3.0, maxval=3.0)
        height = jax.random.uniform(keys[2], minval=0.5, maxval=2.0)
        y = height * jnp.sin(x * jnp.array([1.0, 3.0])[family])
        return arml.Task(arml.Examples(x[:n], y[:n]), arml.Examples(x[n:], y[n:]), family)


@dataclass(frozen=True)
class WavesOptions(arml.Options):
    """Sine waves of two families."""

    shots: int = 5

    def build(self, split=None, *, progress=None):
        return Waves(arml.Problem("regression", (1,), 1, shots=self.shots, queries=10))


class Residual(eqx.Module):
    """x + W2 relu(W1 x)."""

    first: arml.Linear
    second: arml.Linear

    def __call__(self, x):
        return x + self.second(jax.nn.relu(self.first(x)))


@dataclass(frozen=True)
class ResidualOptions(arml.Options):
    """Two residual blocks."""

    width: int = 32

    def build(self, problem, *, key):
        sizes = [problem.features[0], *[self.width] * 5, problem.outputs]
        shapes = zip(sizes[:-1], sizes[1:], jax.random.split(key, 6), strict=True)
        first, a, b, c, d, head = (arml.linear(i, o, key=k) for i, o, k in shapes)
        return arml.network([first, Residual(a, b), Residual(c, d)], head)


class Rescale(arml.MetaLearner):
    """A task adapts one scale a feature, from one; all tasks share the network."""

    net: eqx.Module
    inner: arml.GradientDescent
    loss: arml.Loss = eqx.field(static=True)

    def adapt(self, support, *, key):
        body, head = self.net.body, self.net.head
        features = body(support.x)
        start = jnp.ones(features.shape[1])
        scale = self.inner(lambda s: self.loss(head(s * features), support.y), start)
        return arml.Adapted(lambda x: head(scale * body.given(support.x)(x)))


@dataclass(frozen=True, kw_only=True)
class RescaleOptions(arml.InnerOptions):
    """A task rescales the features."""

    inner_rate: float = 0.05

    def build(self, net, problem, *, key):
        return Rescale(net, self.descent(jnp.ones(len(net.head.weight))), arml.loss_of(problem))


arml.register("network", "residual", ResidualOptions)
arml.register("tasks", "waves", WavesOptions, network="residual")
arml.register("method", "rescale", RescaleOptions)

if __name__ == "__main__":
    tasks, scores = WavesOptions().build(), {}
    for name in ("rescale", "maml"):
        learner = arml.build(f"waves/{name}", tasks, seed=0)
        fitted = arml.fit(learner, tasks, steps=400, seed=0)
        scores[name] = arml.evaluate(fitted.learner, tasks, n=500)
        short = {"steps": 400, "checkpoint_every": 200, "validate_every": 200}
        arml.run(replace(arml.recipe(f"waves/{name}"), **short), f"runs/{name}")
    print(scores, arml.compare(scores["rescale"], scores["maml"]), sep="\n")
