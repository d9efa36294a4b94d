"""How programs are compiled, and that they are kept."""

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arml.cli as cli
from arml.core.compilation import FEW_SECONDS, RUN_ONCE, _known, jit, unbatched, vmap
from arml.results.machine import cores
from small import close


def test_a_setting_that_xla_does_not_know_is_left_out():
    assert jit(lambda x: 2 * x, {"xla_cpu_no_such_setting": True})(jnp.ones(2)).sum() == 4


def test_this_xla_knows_every_setting():
    assert [
        name for name, value in (RUN_ONCE | FEW_SECONDS).items() if not _known(name, value)
    ] == []


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("JAX_COMPILATION_CACHE_DIR", *cli.JAX_CACHE_SETTINGS):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.setenv("ARML_CACHE", str(tmp_path))
    return tmp_path / "programs"


PROGRAM = """
from arml.cli import keep_compiled
keep_compiled()
import jax, jax.numpy as jnp
print(jax.jit(lambda x: jnp.sin(jnp.cumsum(x @ x.T)))(jnp.ones((7, 3))).sum())
"""


def run_program() -> tuple[str, str]:
    environment = {**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def test_programs_are_kept_and_a_truncated_one_is_compiled_anew(folder):
    first, _ = run_program()
    (kept,) = folder.glob("*/jit__lambda*")
    kept.write_bytes(kept.read_bytes()[:100])
    again, said = run_program()
    assert again == first
    assert "Error reading persistent compilation cache entry" in said


def test_jax_own_variables_are_followed(folder, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    cli.keep_compiled()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "elsewhere"


def test_each_core_is_a_device_unless_jax_is_told_otherwise(monkeypatch):
    name = "JAX_NUM_CPU_DEVICES"
    monkeypatch.setenv(name, "")  # so that it is put back
    monkeypatch.delenv(name)
    cli.cores_as_devices()  # the tests' own XLA_FLAGS say how many there are
    assert name not in os.environ
    monkeypatch.setenv("XLA_FLAGS", "")
    cli.cores_as_devices()
    assert int(os.environ[name]) == cores()
    monkeypatch.setenv(name, "3")
    cli.cores_as_devices()
    assert os.environ[name] == "3"


def test_an_empty_program_of_a_full_disk_is_removed(folder):
    first, _ = run_program()
    (kept,) = folder.glob("*/jit__lambda*")
    kept.write_bytes(b"")
    assert run_program() == (first, "")
    assert kept.stat().st_size


def test_the_oldest_programs_make_room(folder, monkeypatch):
    monkeypatch.setattr(cli, "MAX_CACHE_BYTES", 250)
    (folder / "processor").mkdir(parents=True)
    for age in range(5):
        path = folder / "processor" / str(age)
        path.write_bytes(bytes(100))
        os.utime(path, (1000 - age, 1000 - age))
    cli.keep_compiled()
    assert sorted(path.name for path in folder.glob("*/*")) == ["0", "1"]


@pytest.mark.parametrize("n", [1, 3])
def test_one_element_is_mapped_as_several_are(n):
    x = {"a": jnp.arange(2.0 * n).reshape(n, 2)}, jnp.arange(1.0 * n)
    ours, theirs = (
        mapped(lambda tree, i: (tree["a"].sum() + i, tree["a"] * 2, 3))(*x)
        for mapped in (vmap, jax.vmap)
    )
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


FUNCTIONS = {
    "solve": jnp.linalg.solve,
    "inv": lambda a, b: jnp.linalg.inv(a),
    "cholesky": lambda a, b: jnp.linalg.cholesky(a),
    "eigh": lambda a, b: jnp.linalg.eigh(a),
    "slogdet": lambda a, b: jnp.linalg.slogdet(a),
    "lstsq": lambda a, b: jnp.linalg.lstsq(a, b),  # it also returns the rank, an integer
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_one_matrix_at_a_time_has_the_derivatives_of_the_function(name, float64):
    """A batch would never end where another waits for it: no LAPACK call gets one."""

    def derivatives(function):
        def loss(a, b):
            a = a @ a.T + jnp.eye(3)
            some = [
                x for x in jax.tree.leaves(function(a, b)) if jnp.isdtype(x.dtype, "real floating")
            ]
            return sum(jnp.sum(jnp.sin(jnp.abs(x))) for x in some)

        def slope(a, b):
            return sum(jnp.sum(jnp.square(g)) for g in jax.grad(loss, (0, 1))(a, b))

        return jax.jit(jax.vmap(lambda a, b: (jax.grad(loss, (0, 1))(a, b), jax.grad(slope)(a, b))))

    keys = jax.random.split(jax.random.key(0))
    given = jax.random.normal(keys[0], (2, 3, 3)), jax.random.normal(keys[1], (2, 3))
    ours, theirs = derivatives(unbatched(FUNCTIONS[name])), derivatives(FUNCTIONS[name])
    close(ours(*given), theirs(*given), rtol=1e-6, atol=1e-8)
    assert re.search(r"@lapack", ours.lower(*given).as_text())
    assert not re.search(r"@(lapack|blas)_.*<(\d+x){3}", ours.lower(*given).as_text())
