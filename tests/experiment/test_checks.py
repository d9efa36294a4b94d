"""`arml check`: randomness of the host, and an outer loss that adapts to the queries."""

import pytest

from arml.algorithms.maml import MAML
from arml.experiment.contract import SETUPS, Case, make, queries_seen

SPOILED = """
import arml, jax, numpy as np, jax.numpy as jnp

class Drifting(arml.TaskDistribution):
    problem: arml.Problem = arml.Problem("regression", (1,), 1, 5, 5)
    families = ("drift",)

    def sample(self, key):
        x = jax.random.normal(key, (10, 1)) {}
        return arml.Task(arml.Examples(x[:5], x[:5]), arml.Examples(x[5:], x[5:]), jnp.int32(0))

arml.register("tasks", "drifting{}", Drifting)
"""


class Seer(MAML):
    def meta_loss(self, task, *, key):
        adapted = self.adapt(task.query, key=key)
        return self.loss(adapted.predict(task.query.x), task.query.y)


def test_an_outer_loss_that_adapts_to_the_queries_is_noted():
    for kind in ("regression", "vectors"):
        fair = make("maml", SETUPS[kind])

        def build(key, fair=fair) -> MAML:
            learner = fair.build(key)
            return Seer(net=learner.net, inner=learner.inner, problem=learner.problem)

        assert not queries_seen(fair)
        assert "saw the queries" in queries_seen(Case(build, fair.tasks))


@pytest.mark.parametrize(("noise", "name"), [("+ np.random.normal()", "-far"), ("", "")])
def test_randomness_of_the_host_is_found_in_a_fresh_process(tmp_path, command, alone, noise, name):
    file = tmp_path / "own.py"
    file.write_text(SPOILED.format(noise, name))
    said, _ = command("check", file, code=1 if noise else 0)
    assert ("differs in a fresh process with the same seed" in " ".join(said.split())) is bool(
        noise
    )


def test_an_executed_plugin_is_the_file_and_not_the_script_that_ran_it(tmp_path):
    file = tmp_path / "own.py"
    lines = ("from arml.algorithms.maml import MAMLOptions", "class Own(MAMLOptions):")
    file.write_text("\n".join((*lines, "    def build(self, *a, **k): ...")))
    from arml.plugins.sources import source_of

    scope = {"__name__": __name__}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    found = source_of(scope["Own"])
    assert (found.name, len(found.version)) == ("own.py", 12)
    exec(file.read_text(), scope)  # from nowhere
    assert source_of(scope["Own"]).version == ""
