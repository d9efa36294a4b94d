"""ANIL adapts the head alone."""

import numpy as np

from arml.algorithms.anil import ANILOptions
from small import KEY, REGRESSION, network, predictions, task


def test_the_head_after_adaptation_in_closed_form():
    """On fixed features the head's descent is linear regression's."""
    options, on = ANILOptions(inner_rate=0.05, inner_steps=3), task()
    net = network()

    def with_ones(x: np.ndarray) -> np.ndarray:
        return np.concatenate([net.body(x), np.ones((len(x), 1))], axis=1)

    support, query = with_ones(on.support.x), with_ones(on.query.x)
    head = np.concatenate([net.head.weight[:, 0], net.head.bias])
    for _ in range(3):
        head = head - 0.05 * 2 * support.T @ (support @ head - np.asarray(on.support.y)[:, 0]) / 6
    predicted = predictions(options.build(net, REGRESSION, key=KEY), on)
    np.testing.assert_allclose(predicted[:, 0], query @ head, rtol=1e-4, atol=1e-5)
