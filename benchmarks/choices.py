"""What each choice is worth: one outer step as it is against the same with one choice made
otherwise, in turns.

Each choice is a piece of the sources and what would stand there in its place; the other side runs
with a copy of the sources that has the change. The first dispatch is timed too, for some choices
are made for the sake of compilation.
"""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from common import HERE, Worker, arguments, duel, machine, write

MAML, ARML, OFFICIAL = (
    ("regression2d", f"regression2d/{name}", 50) for name in ("maml", "arml", "arml-official")
)
IMAGES = ("conv4", 28, 1)
Change = tuple[str, str, str]
"""A file, what stands there once, and what stands there in its place."""

LOOP = "if any(array.ndim > 2 for array in jax.tree.leaves(part)):"
SCANNED = 'return eqx.filter_jit(looped, donate="all-except-first")'
STATE = "return TrainState(learner, optimiser.init(trained), jnp.zeros((), jnp.int32))"
STEPS = "benchmarks/arml_steps.py"
INNER, TRAIN, CONVOLUTION, SUMMARIES = (
    f"src/arml/{name}.py"
    for name in ("core/inner", "training/step", "nn/convolution", "nn/summaries")
)


@dataclass(frozen=True)
class Choice:
    """What is done, what might be done in its place, of which step, and how that is written."""

    done: str
    otherwise: str
    case: tuple[object, ...]
    changes: tuple[Change, ...]


CHOICES = (
    Choice("2-D inner steps unrolled", "a compiled loop", MAML, ((INNER, LOOP, "if True:"),)),
    Choice(
        "inner steps of images in a compiled loop",
        "unrolled",
        IMAGES,
        ((INNER, LOOP, "if False:"),),
    ),
    Choice(
        "50 steps a dispatch",
        "5",
        MAML,
        (
            (
                STEPS,
                "name, dispatch = rest[0], int(rest[1])",
                "name, dispatch = rest[0], 5",
            ),
        ),
    ),
    Choice(
        "a seed a program",
        "four seeds in one by `vmap`; time a seed",
        MAML,
        (
            (
                TRAIN,
                SCANNED,
                "many = eqx.filter_vmap(looped, in_axes=(None, eqx.if_array(0)))\n"
                '        return eqx.filter_jit(many, donate="all-except-first")',
            ),
            (
                TRAIN,
                STATE,
                STATE.replace("return", "state =")
                + "\n    four = lambda a: jnp.stack([a] * 4) if eqx.is_array(a) else a"
                "\n    return jax.tree.map(four, state)",
            ),
            (STEPS, "each=dispatch", "each=4 * dispatch"),
        ),
    ),
    Choice(
        "random numbers by Threefry",
        "by XLA's own generator (`unsafe_rbg`)",
        MAML,
        (
            (
                STEPS,
                "    kind, *rest = sys.argv[1:]",
                '    jax.config.update("jax_default_prng_impl", "unsafe_rbg")\n'
                "    kind, *rest = sys.argv[1:]",
            ),
        ),
    ),
    Choice(
        "XLA's fusion emitters for loops of small steps",
        "its older ones",
        MAML,
        ((TRAIN, SCANNED, SCANNED.replace("eqx.filter_jit(looped", "jit(looped, LARGE")),),
    ),
    Choice(
        "XLA's older emitters for images",
        "its fusion emitters",
        IMAGES,
        ((TRAIN, "jit(step, LARGE, ", "jit(step, {}, "),),
    ),
    Choice(
        "the state's memory is reused",
        "not",
        ARML,
        ((TRAIN, SCANNED, SCANNED.replace("all-except-first", "none")),),
    ),
    Choice(
        "the GRU's products of its inputs before its loop",
        "inside",
        OFFICIAL,
        (
            (
                SUMMARIES,
                "self.encoder(projected, state)",
                "self.encoder(self.encoder.project(projected), state)",
            ),
            (SUMMARIES, "zeros, self.encoder.project(sequence)", "zeros, sequence"),
        ),
    ),
    Choice(
        "our convolution",
        "XLA's",
        IMAGES,
        ((CONVOLUTION, 'if jax.default_backend() == "cpu" and odd:', "if not odd:"),),
    ),
    Choice(
        "products with patches for few channels, shared by the inner steps",
        "the same convolution for all",
        IMAGES,
        ((CONVOLUTION, "FEW_CHANNELS = 8", "FEW_CHANNELS = 0"),),
    ),
    Choice(
        "pooling by slices",
        "XLA's window",
        IMAGES,
        (
            (
                CONVOLUTION,
                "return _pool(x, _Windows(x.shape, window, window, (0, 0), out))",
                "window = (1, window, window, 1)\n"
                '    return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")',
            ),
        ),
    ),
    Choice(
        "a task on each core",
        "one after another with all cores",
        IMAGES,
        ((STEPS, '"jax_num_cpu_devices", cores()', '"jax_num_cpu_devices", 1'),),
    ),
    Choice(
        "one task at once on a core",
        "two",
        IMAGES,
        ((STEPS, "batch=4, dispatch=1, chunk=1", "batch=4, dispatch=1, chunk=2"),),
    ),
)


def texts(changes: tuple[Change, ...]) -> dict[str, str]:
    """The files that these changes change, as they are afterwards."""
    made: dict[str, str] = {}
    for file, old, new in changes:
        text = made.get(file) or (HERE.parent / file).read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{file} has {text.count(old)} times, not once: {old}")
        made[file] = text.replace(old, new)
    return made


def changed(folder: Path, changes: tuple[Change, ...]) -> Path:
    """A copy of the sources with these changes."""
    for name in ("src", "benchmarks"):
        shutil.copytree(HERE.parent / name, folder / name, dirs_exist_ok=True)
    for file, text in texts(changes).items():
        (folder / file).write_text(text, encoding="utf-8")
    return folder


def main() -> None:
    parser = arguments(__doc__ or "")
    names = [choice.done for choice in CHOICES]
    parser.add_argument("--only", nargs="+", choices=names, help="these choices", metavar="CHOICE")
    options = parser.parse_args()
    before, results = machine(), []
    rounds, seconds = (5, 1.0) if options.quick else (9, 3.0)
    for choice in CHOICES:
        if choice.done not in (options.only or names):
            continue
        with TemporaryDirectory() as folder:
            sides = [
                Worker(
                    sys.executable,
                    str(tree / STEPS),
                    *choice.case,
                    env={**os.environ, "PYTHONPATH": str(tree / "src")},
                )
                for tree in (HERE.parent, changed(Path(folder), choice.changes))
            ]
            result = duel(sides[0], sides[1], rounds=rounds, seconds=seconds)
            for side in sides:
                side.close()
        facts = {"done": choice.done, "otherwise": choice.otherwise, "case": choice.case}
        results.append({**facts, **result})
        gain = result["times_as_fast"]
        first, other = (result[s]["compile_and_first_step_seconds"] for s in ("ours", "theirs"))
        print(
            f"{choice.done} (or {choice.otherwise}): {gain['median']:.2f} times as fast "
            f"({gain['min']:.2f} to {gain['max']:.2f}); first dispatch {first:.1f} s, "
            f"{other:.1f} s",
            flush=True,
        )
        write("choices", results, before, quick=options.quick)


if __name__ == "__main__":
    main()
