"""Two distributions have one identity only if they draw the same tasks from the same keys."""

import datetime
import functools
import re
import threading
import types
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arml
from arml.plugins.identity import identity_of
from arml.results.scores import pairing
from small import one_line


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


class Plain:
    def __init__(self, held):
        self.held = held

    def method(self):
        return self.held

    @functools.cached_property
    def computed(self):
        return 2 * self.held


class Held(eqx.Module):
    held: object

    def method(self):
        return self.held


def scaled(scale, x):
    return scale * x


def with_default(by):
    def function(x, by=by):
        return by * x

    return function


def with_closure(by):
    return lambda x: by * x


def recursive(by):
    def function(x):
        return by if x == 0 else function(x - 1)

    return function


def defined(text, **scope):
    """The scope of a module of this text."""
    exec(compile(text, "own.py", "exec"), scope := {"__name__": "own", **scope})
    return scope


def of_global(value):
    text = "def function(x):\n    return jnp.sin(SCALE * x)"
    return defined(text, SCALE=value, jnp=jnp)["function"]


def of_module(value):
    """A function that reads a global of a module that it names."""
    helpers = types.ModuleType("helpers")
    helpers.scale = value
    return defined("def function(x):\n    return helpers.scale * x", helpers=helpers)["function"]


def class_of(body, doc=""):
    """A class of one name, whose sample has another body."""
    text = f"class Own:\n    def sample(self, key):\n        '''{doc}'''\n        return {body}"
    return defined(text)["Own"]()


MAKE = {
    "number": lambda n: n,
    "text": str,
    "partial": lambda n: functools.partial(scaled, n),
    "path": lambda n: Path(f"folder/{n}"),
    "lambda's constant": lambda n: eval(f"lambda x: x + {n}"),
    "lambda's body": lambda n: (lambda x: x + 1) if n == 1 else (lambda x: x * 1),
    "default": with_default,
    "closure": with_closure,
    "closure with itself": recursive,
    "jitted": lambda n: jax.jit(with_closure(n)),
    "vmapped": lambda n: jax.vmap(with_closure(n)),
    "filter_jit": lambda n: eqx.filter_jit(with_closure(n)),
    "lru_cache": lambda n: functools.lru_cache(with_closure(n)),
    "global": of_global,
    "global of a module": of_module,
    "bound method": lambda n: Plain(n).method,
    "method of a module": lambda n: Held(n).method,
    "frozenset": lambda n: frozenset({"a", "b", str(n)}),
    "date": lambda n: datetime.date(2024, 1, n),
    "decimal": lambda n: Decimal(n) / 10,
    "fraction": lambda n: Fraction(1, n),
    "range": range,
    "slice": lambda n: slice(n),
    "slots": Slotted,
    "pattern": lambda n: re.compile("a" * n),
    "object": Plain,
    "module": Held,
    "class": lambda n: (Plain, Held)[n - 1],
    "code of a class": lambda n: class_of(f"key + {n}"),
    "code inside of code": lambda n: class_of(f"[i * {n} for i in range(3)]"),
    "bytes": lambda n: bytes(n),
    "array": lambda n: jnp.arange(3) * n,
    "array of objects": lambda n: np.array([{"a": n}, None], object),
    "masked array": lambda n: np.ma.masked_equal([1, 2], n),
    "dtype": lambda n: np.dtype(("f4", "f8")[n - 1]),
    "key": jax.random.key,
    "function of JAX": lambda n: (jnp.sin, jnp.cos)[n - 1],
    "ufunc": lambda n: (jnp.add, jnp.multiply)[n - 1],
    "order of a list": lambda n: [1, 2][:: 3 - 2 * n],
    "keys of a dictionary": lambda n: {n: 1},
    "tuple": lambda n: (n,),
    "dataclass": lambda n: arml.Problem("regression", (n,), 1, 1, 1),
    "generator of numbers": np.random.default_rng,
}


@pytest.mark.parametrize("what", MAKE)
def test_another_content_is_another_identity(what):
    make = MAKE[what]
    one, same, other = (identity_of(Held(make(n))) for n in (1, 1, 2))
    assert one == same
    assert one != other


def test_kinds_of_equal_text_differ():
    values = [1, 1.0, True, "1", b"1", (1,), [1], {1}, frozenset({1}), {1: 1}, None, Decimal(1)]
    assert len({identity_of(Held(value)) for value in values}) == len(values)
    assert identity_of((1, (2, 3))) != identity_of(((1, 2), 3))


def test_what_changes_no_task_changes_no_identity():
    assert identity_of(class_of("key", "One.")) == identity_of(class_of("key", "Two."))
    plain, read = Plain(1), Plain(1)
    assert read.computed == 2
    assert identity_of(plain) == identity_of(read)


def test_functions_may_call_themselves_and_each_other():
    text = "def even(x):\n    return x == 0 or odd(x - 1)\ndef odd(x):\n    return even(x - {})"
    one, other = (identity_of(defined(text.format(n))["even"]) for n in (1, 2))
    assert one != other


CYCLIC = Plain(None)
CYCLIC.held = CYCLIC


@pytest.mark.parametrize("leaf", [threading.Lock(), (i for i in ()), CYCLIC])
def test_content_that_cannot_be_read_is_one_line(leaf):
    with pytest.raises(
        ValueError, match=one_line("Plain: expected content .* give Plain a method")
    ):
        identity_of(Plain(leaf))


def test_an_identity_is_a_text_and_not_json():
    texts = ["[not json", '["a"]', "a", "[1, 2]", "[1,2]", '[{"a": 1}]', '[{"a": 1} ]']
    assert len({pairing(text, split) for text in texts for split in ("test", "validation")}) == 14


def test_the_scores_of_two_classes_of_one_name_are_not_paired():
    class Tasks(arml.TaskDistribution):
        problem = arml.Problem("regression", (1,), 1, shots=2, queries=2)
        families = ("one",)
        make: object = eqx.field(static=True)

        def sample(self, key):
            x = self.make(jax.random.normal(key, (4, 1)))
            return arml.Task(arml.Examples(x[:2], x[:2]), arml.Examples(x[2:], x[2:]), jnp.array(0))

    learner = arml.build("maml", Tasks(jnp.sin))
    one, same, other = (
        arml.evaluate(learner, Tasks(make), n=2)
        for make in (jax.jit(jnp.sin), jax.jit(jnp.sin), jax.jit(jnp.cos))
    )
    assert arml.compare(one, same).mean == 0
    with pytest.raises(ValueError, match="differ in their tasks"):
        arml.compare(one, other)
