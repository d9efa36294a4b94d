"""Where a method is another one: MAML, or ProtoNet with a scale."""

from typing import Any

import jax
import pytest

from arml.algorithms.alfa import ALFAOptions
from arml.algorithms.arml import ARMLOptions
from arml.algorithms.arml_extensions import HEAD_SCALE, ExtendedARMLOptions
from arml.algorithms.hsml import HSMLOptions
from arml.algorithms.llama import LLAMAOptions
from arml.algorithms.maml import MAMLOptions
from arml.algorithms.mt_net import MTNetOptions
from arml.algorithms.mumomaml import MUMOMAMLOptions
from arml.algorithms.platipus import PLATIPUSOptions
from arml.algorithms.proto_maml import ProtoMAMLOptions
from arml.algorithms.protonet import ProtoNetOptions
from arml.algorithms.tadam import TADAMOptions
from arml.nn.networks import layers
from small import KEY, REGRESSION, VECTORS, close, doubled, filled, meta, network, predictions, task

pytestmark = pytest.mark.usefixtures("float64")
STEPS: dict[str, Any] = {"inner_rate": 2**-4, "inner_steps": 2}
CODE: dict[str, Any] = {"width": 5, **STEPS}
ARML: dict[str, Any] = {"vertices": 3, "mu_1": 0.0, "mu_2": 0.0, **CODE}


def bias(learner: Any) -> Any:
    return learner.modulate.dense.bias


def units(learner: Any) -> Any:
    return learner.modulate.layers


# The options of a method, and the values of parts for which it is MAML.
MAML = {
    "Meta-SGD, equal rates": (MAMLOptions(**STEPS, learn_rates=True), {}),
    "MAML++, equal rates": (MAMLOptions(**STEPS, step_rates=True), {}),
    "MT-Net, all units drawn": (MTNetOptions(**STEPS), {lambda m: m.logits: 100.0}),
    "MT-Net, learned rates": (
        MTNetOptions(**STEPS, learn_rates=True),
        {lambda m: m.logits: 100.0},
    ),
    "LLAMA without eta": (LLAMAOptions(**STEPS, eta=0.0), {}),
    "PLATIPUS without spread": (
        PLATIPUSOptions(**STEPS, samples=2, noise=0.5**0.5),
        {lambda m: (m.log_sigma, m.log_v): -40.0, lambda m: (m.gamma_p, m.gamma_q): 0.0},
    ),
    "ALFA without decays": (
        ALFAOptions(**STEPS),
        {lambda m: (m.inner.rate.net.layers[-1], m.inner.rate.decays): 0.0},
    ),
    "HSML, open gate": (HSMLOptions(**CODE, embedding=4, mu=0.0), {bias: 100.0}),
    "MUMOMAML, FiLM of zero": (MUMOMAMLOptions(**CODE, modulation="film"), {units: 0.0}),
    "ARML, open sigmoid": (ARMLOptions(**ARML), {bias: 100.0}),
    "ARML, open tanh": (ARMLOptions(**ARML, gate="tanh"), {bias: 100.0}),
    "ARML, FiLM of zero": (
        ARMLOptions(**ARML, gate="film"),
        {lambda m: (m.modulate.scale, m.modulate.shift): 0.0},
    ),
    "ARML, FiLM of zero on units": (
        ARMLOptions(**ARML, gate="film", granularity="unit"),
        {units: 0.0},
    ),
}


@pytest.mark.parametrize("name", MAML)
def test_it_is_maml(name):
    """The same predictions, outer loss, and gradient of the network."""
    options, parts = MAML[name]
    on, net = doubled(task()), network()
    ours = options.build(net, REGRESSION, key=KEY)
    for where, value in parts.items():
        ours = filled(ours, where, value)
    ours, maml = doubled((ours, MAMLOptions(**STEPS).build(net, REGRESSION, key=KEY)))
    close(predictions(ours, on), predictions(maml, on))
    (loss, gradient), (theirs, expected) = meta(ours, on), meta(maml, on)
    close(loss, theirs)
    close(layers(gradient.net), layers(expected.net))


SCALED: dict[str, Any] = {
    "Proto-MAML without steps": ProtoMAMLOptions(scale=0.25, inner_steps=0),
    "TADAM at its start": TADAMOptions(scale=0.25, metric="squared"),
    "ARML with empty templates": ExtendedARMLOptions(head="prototypes", inner_steps=0, mu=0.0),
}


@pytest.mark.parametrize("name", SCALED)
def test_it_is_the_scaled_protonet(name):
    """The same probabilities, outer loss, and gradient of the body."""
    options, on, net = SCALED[name], doubled(task(VECTORS)), network(VECTORS)
    scale = getattr(options, "scale", HEAD_SCALE)
    ours = options.build(net, VECTORS, key=KEY)
    ours, protonet = doubled(
        (ours, ProtoNetOptions(scale=scale, learn_scale=True).build(net, VECTORS, key=KEY))
    )
    close(*(jax.nn.softmax(predictions(m, on)) for m in (ours, protonet)))
    (loss, gradient), (theirs, expected) = meta(ours, on), meta(protonet, on)
    close(loss, theirs)
    close(getattr(gradient, "net", gradient).body, expected.body)
