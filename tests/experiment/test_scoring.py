"""What is said of a score."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import arml
from arml.experiment.options import Experiment
from arml.experiment.scoring import protocol
from arml.tasks.functions import functions_2d

TASKS = functions_2d(shots=3, queries=4)
pytestmark = pytest.mark.usefixtures("optax_promotes")


class Centred(eqx.Module):
    """Centres the outputs of all inputs that it gets together."""

    layer: arml.Linear

    def __call__(self, x):
        y = jax.vmap(self.layer)(x)
        return y - jnp.mean(y, axis=0)


@dataclass(frozen=True)
class Normed:
    """A network of a user's own, which normalises by the inputs that it gets, or does not."""

    batch: bool = True

    def check(self) -> None: ...

    def build(self, problem, *, key):
        layer = arml.linear(problem.features[0], problem.outputs, key=key)
        return Centred(layer) if self.batch else arml.network([], layer)


@pytest.mark.parametrize(("batch", "said"), [(True, "transductive"), (False, "noise 0.3")])
def test_whether_a_network_of_ones_own_is_transductive_is_measured(batch, said):
    network = Normed(batch)
    experiment = Experiment("own", network=network)
    learner = arml.build("maml", TASKS, network=network)
    found = protocol(experiment, learner, TASKS)
    assert found.endswith(said)
    assert "support statistics" not in found
