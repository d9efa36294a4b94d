"""More classes than in meta-training, and examples that are added later."""

import jax.numpy as jnp
import numpy as np
import pytest

from untrained import untrained


def corners(classes: int, each: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Classes in their own corners of a cube."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), each)
    signs = np.array([[1 if k >> bit & 1 else -1 for bit in range(4)] for k in range(classes)])
    return 3 * signs[y] + rng.normal(0, 0.3, (len(y), 4)), y


def test_three_references_refuse_seven_classes():
    x, y = corners(7)
    few = untrained("tapnet", 4)
    few.adapt(x[:12], y[:12]).predict(x)
    with pytest.raises(ValueError, match="7 classes are more than the 3 that this learner"):
        few.adapt(x, y)


@pytest.mark.parametrize("algorithm", ["anil", "meta-sgd"])
def test_a_head_that_adapts_begins_more_classes_at_its_mean(algorithm):
    few = untrained(algorithm, 4, inner_steps=200, inner_rate=0.3)
    net = few.of_classes(7).net
    mean = np.asarray(few.learner.net.head.weight).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(net.head.weight, np.tile(mean, 7), rtol=1e-5)
    x, y = corners(7)
    assert np.mean(few.adapt(x, y).predict(x) == y) > 0.6


def test_more_classes_of_protonet_are_nearest_class_means():
    few = untrained("protonet", 4)
    x, y = corners(7)
    embedded = np.asarray(few.learner.body(jnp.asarray(x, jnp.float32)))
    means = np.stack([embedded[y == k].mean(axis=0) for k in range(7)])
    logits = -np.square(embedded[:, None] - means).sum(axis=-1)
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(few.adapt(x, y).predict_proba(x), chances, rtol=1e-3, atol=1e-6)


def test_examples_and_classes_are_added():
    few = untrained("protonet", 4)
    x, y = corners(5)
    names = np.array(["ash", "elm", "fir", "oak", "yew"])[y]
    first = few.adapt(x[:12], names[:12])
    before = first.predict_proba(x)
    both = first.add(x[12:14], names[12:14]).add(x[14:], list(names[14:]))
    assert list(both.classes) == ["ash", "elm", "fir", "oak", "yew"]
    np.testing.assert_allclose(
        both.predict_proba(x), few.adapt(x, names).predict_proba(x), rtol=1e-5
    )
    assert list(first.classes) == ["ash", "elm", "fir"]
    np.testing.assert_array_equal(first.predict_proba(x), before)
    with pytest.raises(ValueError, match="all texts or all numbers"):
        first.add(x[:1], [7])
    with pytest.raises(ValueError, match="a label for each of 1 inputs, got 2 of them"):
        first.add(x[:1], ["ash", "elm"])
