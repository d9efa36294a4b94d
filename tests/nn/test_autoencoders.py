"""The perceptron autoencoder; golden numbers and `test_paper.py` hold the recurrent one."""

import jax
import jax.numpy as jnp
import numpy as np

from arml.nn.autoencoders import MLPAutoencoder
from small import close


def test_mlp_summary_is_the_mean_of_single_codes():
    summary = MLPAutoencoder.drawn(3, 4, key=jax.random.key(4))
    sequence = jax.random.normal(jax.random.key(0), (5, 3))
    codes, losses = zip(*(summary(x[None]) for x in sequence), strict=True)
    close(summary(sequence), (np.mean(codes, axis=0), np.mean(losses)), rtol=1e-5)
    total = MLPAutoencoder(summary.encoder, summary.decoder, jnp.sum)(sequence)[1]
    np.testing.assert_allclose(total, 15 * np.mean(losses), rtol=1e-5)
