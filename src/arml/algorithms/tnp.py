"""TNP: an in-context learner. A transformer reads the labelled examples of a task and answers its
queries in one forward pass; nothing is adapted. In regression it predicts a Gaussian for each
query; in classification it reads an embedding, and predicts the classes.

[1] Nguyen and Grover, Transformer Neural Processes: Uncertainty-Aware Meta Learning via Sequence
    Modeling, ICML 2022: TNP-D, with independent predictions of the queries. Code:
    tung-nd/TNP-pytorch.
[2] Müller, Hollmann, Pineda Arango, Grabocka and Hutter, Transformers Can Do Bayesian Inference,
    ICLR 2022: the trained network approximates the posterior predictive distribution.

Differences
- Tokens: one linear layer reads [f(x), y] of an example, another f(x) of a query. In [1] one
  network of four layers reads both [x, y] and [x, 0].
- Blocks: 4, where [1] has 6, of the same width and heads. Layer normalisation stands before
  attention and before the dense layers, and has no parameters; in [1] it stands after them, and has
  a scale and an offset. The maps to queries, keys and values have no biases. As in the code of [1],
  a query attends only to the support set: a prediction does not depend on other queries.
- Prediction: a normalisation and one linear layer, where [1] has two layers. The standard deviation
  is .01 plus a softplus; in [1] it is an exponential, or .05 plus .95 times a softplus.
- In [1] a step has 16 tasks of 3 to 46 examples, and the rate falls from 5e-4 as a cosine. Here all
  tasks have as many examples as at test.
- Classification, which [1] does not have: labels are one-hot vectors, the body of the base network
  embeds pictures, and the outputs are logits. The order of a task's classes is random, so the
  transformer learns to ignore it. In regression the base network is not used: f(x) is x.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from msgspec import Meta

from arml.algorithms.method import Method
from arml.core.checks import Options, Size
from arml.core.episodes import Examples, Problem, Task
from arml.core.learner import Adapted, Embedding, Learner, Network
from arml.nn.heads import units
from arml.nn.networks import MLP, Body, Linear, glorot, he, linear, mlp, with_body
from arml.nn.normalisation import standardised

_Tokens = Float[Array, "_ width"]


@dataclass(frozen=True, kw_only=True)
class TNPOptions(Options):
    """TNP: a transformer that reads the support set and answers the queries."""

    width: Size = 64
    """Numbers of a token."""
    layers: Annotated[int, Meta(ge=1, le=100)] = 4
    """Blocks of attention."""
    heads: Size = 4
    """Heads of attention, which divide the width."""

    def check(self) -> None:
        super().check()
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads ({self.heads}), got {self.width}")

    def build(self, net: Network, problem: Problem, *, key: PRNGKeyArray) -> "TNP":
        pictures = problem.spatial
        body = with_body(net, "TNP").body if pictures else Body(blocks=(), normalisation="none")
        size = units(body, problem.features)
        numbers = problem.outputs * (2 if problem.kind == "regression" else 1)
        key_examples, key_query, key_head, *keys = jax.random.split(key, 3 + self.layers)
        return TNP(
            body=body,
            embed_examples=linear(size + problem.outputs, self.width, key=key_examples),
            embed_query=linear(size, self.width, key=key_query),
            blocks=tuple(_Block.drawn(self, key=k) for k in keys),
            head=linear(self.width, numbers, key=key_head),
            problem=problem,
        )


class _Block(eqx.Module):
    """Attention to the support set, then two dense layers; both with skip connections."""

    query: Float[Array, "d d"]
    key: Float[Array, "d d"]
    value: Float[Array, "d d"]
    out: Linear
    dense: MLP
    options: TNPOptions = eqx.field(static=True)

    @classmethod
    def drawn(cls, options: TNPOptions, *, key: PRNGKeyArray) -> "_Block":
        """Weights of a block; the dense layers are twice as wide inside."""
        *keys, key_out, key_dense = jax.random.split(key, 5)
        width = options.width
        query, key_, value = (glorot(k, (width, width), jnp.float32) for k in keys)
        dense = mlp((width, 2 * width, width), init=he, key=key_dense)
        return cls(query, key_, value, linear(width, width, key=key_out), dense, options)

    def __call__(self, tokens: _Tokens, support: _Tokens) -> _Tokens:
        """The tokens after they attended to those of the support set."""
        x, context = (standardised(t, axis=-1) for t in (tokens, support))
        heads = self.options.heads
        q = (x @ self.query).reshape(len(x), heads, -1)
        k, v = ((context @ w).reshape(len(context), heads, -1) for w in (self.key, self.value))
        weights = jax.nn.softmax(jnp.einsum("mhe,nhe->hmn", q, k) * q.shape[-1] ** -0.5, axis=-1)
        tokens = tokens + self.out(jnp.einsum("hmn,nhe->mhe", weights, v).reshape(x.shape))
        return tokens + self.dense(standardised(tokens, axis=-1))


class TNP(Learner):
    """Tokens of [f(x), y] for the support set, and of f(x) for the queries; f is the body on
    pictures, and the identity elsewhere."""

    body: Body
    embed_examples: Linear
    """Embeds the features and the label of an example."""
    embed_query: Linear
    """Embeds the features of a query."""
    blocks: tuple[_Block, ...]
    head: Linear
    """The outputs; in regression a mean and a scale for each target."""

    def adapt(self, support: Examples, *, key: PRNGKeyArray) -> Adapted:
        answer = self.answers(support)
        return Adapted(lambda x: answer(x)[:, : self.problem.outputs])

    def meta_loss(self, task: Task, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """The negative log-likelihood of the queries, in regression without its constant."""
        found, y = self.answers(task.support)(task.query.x), task.query.y
        if self.problem.kind == "classification":
            return self.loss(found, y)
        mean, raw = jnp.split(found, 2, axis=1)
        scale = 0.01 + jax.nn.softplus(raw)
        return jnp.mean(jnp.log(scale) + jnp.square((y - mean) / scale) / 2)

    def answers(self, support: Examples) -> Callable[[Array], Float[Array, "m outputs"]]:
        features, embed = self.body.embedded(support.x)
        labels = support.y
        if self.problem.kind == "classification":
            labels = jax.nn.one_hot(labels, self.problem.outputs, dtype=features.dtype)
        read = [self.embed_examples(jnp.concatenate([features, labels], axis=1))]
        for layer in self.blocks[:-1]:
            read.append(layer(read[-1], read[-1]))

        def answer(x: Float[Array, "m *features"]) -> Float[Array, "m outputs"]:
            tokens = self.embed_query(embed(x))
            for layer, context in zip(self.blocks, read, strict=True):
                tokens = layer(tokens, context)
            return self.head(standardised(tokens, axis=-1))

        return answer

    def embedding(self) -> Callable[[Array], Embedding]:
        return self.body.given


METHODS = (
    Method(
        name="tnp",
        about="TNP: a transformer reads the examples in context and answers the queries.",
        options_class=TNPOptions,
        paper="Nguyen and Grover, ICML 2022",
        tune=("width", "layers"),
        descends=False,
    ),
)
