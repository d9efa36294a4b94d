"""Your own task family, network and method, in one script outside the package."""

import equinox as eqx
import jax
import jax.numpy as jnp

import arml
from arml.core.losses import loss_of
from arml.nn import Linear, linear


class Waves(arml.TaskDistribution):
    shots: int = 5
    families = ("slow", "fast")
    problem = property(lambda self: arml.Problem("regression", (1,), 1, self.shots, queries=10))

    def sample(self, key):
        keys, n = jax.random.split(key, 3), self.shots
        family = jax.random.bernoulli(keys[0]).astype(jnp.int32)
        x = jax.random.uniform(keys[1], (n + 10, 1), minval=-3.0, maxval=3.0)
        y = jnp.sin(jnp.array([1.0, 3.0])[family] * x + jax.random.uniform(keys[2]))
        return arml.Task(arml.Examples(x[:n], y[:n]), arml.Examples(x[n:], y[n:]), family)


class Residual(eqx.Module):
    layer: Linear

    def __call__(self, x):
        return x + self.layer(jax.nn.relu(x))


def residual(problem, *, key, width: int = 32):
    a, b, c = jax.random.split(key, 3)
    first, block = linear(problem.features[0], width, key=a), linear(width, width, key=b)
    return arml.network([first, Residual(block)], linear(width, problem.outputs, key=c))


class Rescale(arml.MetaLearner):
    net: eqx.Module
    inner: arml.GradientDescent
    loss: arml.Loss = eqx.field(static=True)

    def adapt(self, support, *, key):
        h, head = self.net.body(support.x), self.net.head
        scale = self.inner(lambda s: self.loss(head(s * h), support.y), jnp.ones(h.shape[1]))
        return arml.Adapted(lambda x: head(scale * self.net.body.given(support.x)(x)))


def rescale(net, problem, *, key, inner_rate: float = 0.05, inner_steps: int = 5):
    return Rescale(net, arml.GradientDescent(inner_rate, inner_steps), loss_of(problem))


arml.register("network", "residual", residual)
arml.register("tasks", "waves", Waves, network="residual", about="Slow and fast sine waves.")
arml.register("method", "rescale", rescale, about="A task adapts one scale for each feature.")
if __name__ == "__main__":
    scores = []
    for name in ("waves/rescale", "waves/maml"):
        fitted = arml.fit(arml.build(name, Waves(), seed=0), Waves(), steps=400, seed=0)
        scores.append(arml.evaluate(fitted.learner, Waves(), n=500))
        arml.run(name, f"runs/{name}", steps=400, checkpoint_every=400, validate_every=400)
    print(*scores, arml.compare(*scores), sep="\n")
