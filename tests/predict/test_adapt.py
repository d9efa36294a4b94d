"""One call learns a task, whatever the learner is."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arml
from arml.core.losses import loss_of

pytestmark = pytest.mark.usefixtures("optax_promotes")


class Waves(arml.TaskDistribution):
    problem = arml.Problem("regression", (1,), 1, shots=5, queries=5)
    families = ("wave",)

    def sample(self, key):
        x = jnp.linspace(0.0, 5.0, 10)[:, None]
        y = jnp.sin(x + jax.random.uniform(key))
        support, query = arml.Examples(x[::2], y[::2]), arml.Examples(x[1::2], y[1::2])
        return arml.Task(support, query, jnp.array(0))


X, Y = np.linspace(0, 5, 6)[:, None], np.cos(np.linspace(0, 5, 6))


@pytest.fixture(scope="module")
def fitted(optax_promotes):
    return arml.fit(arml.build("maml", Waves(), seed=3), Waves(), steps=2, batch=5, chunk=5)


def test_a_fitted_learner_predicts_saves_and_is_opened(fitted, tmp_path):
    predictor = arml.adapt(fitted, X, Y)
    predictor.save(tmp_path / "kept")
    arml.load(fitted).save(tmp_path / "learner")
    for other in (
        arml.load_predictor(tmp_path / "kept"),
        pickle.loads(pickle.dumps(predictor)),
        arml.adapt(tmp_path / "learner", X, Y),
        arml.adapt(arml.load(fitted), X, Y),
    ):
        np.testing.assert_array_equal(other.predict(X), predictor.predict(X))
    added = arml.adapt(fitted, X[:4], Y[:4]).add(X[4:], Y[4:])
    np.testing.assert_allclose(added.predict(X), predictor.predict(X), rtol=1e-5)
    assert added.reliability().targets.shape == (6, 1)


def test_a_run_a_folder_and_a_built_learner_are_learners(tmp_path):
    learner = arml.build("maml", Waves(), seed=3)
    np.testing.assert_array_equal(
        arml.adapt(learner, X, Y).predict(X),
        arml.FewShotRegressor(learner).fit(X, Y).predictor_.using("learner").predict(X),
    )
    arml.run("maml", tmp_path / "run", tasks=Waves(), steps=1, batch=1, chunk=1)
    run = arml.Run(tmp_path / "run")
    np.testing.assert_array_equal(
        arml.adapt(run, X, Y).predict(X), arml.adapt(tmp_path / "run", X, Y).predict(X)
    )
    with pytest.raises(ValueError, match="expected a learner that"):
        arml.adapt(Waves(), X, Y)


class Constant(arml.MetaLearner):
    """Answers the mean; nothing builds it."""

    level: jax.Array
    loss: arml.Loss

    def adapt(self, support, *, key):
        mean = jnp.mean(support.y, axis=0) + self.level
        return arml.Adapted(lambda x: jnp.zeros((len(x), 1)) + mean)


def test_a_learner_of_ones_own_class_predicts_but_is_not_saved(tmp_path):
    learner = Constant(jnp.zeros(()), loss_of(Waves.problem))
    fitted = arml.fit(learner, Waves(), steps=1, batch=1, chunk=1)
    predictor = arml.adapt(fitted, X, Y)
    np.testing.assert_allclose(predictor.predict(X), np.mean(Y), atol=1e-2)
    with pytest.raises(ValueError, match="was not made by"):
        predictor.save(tmp_path / "kept")
