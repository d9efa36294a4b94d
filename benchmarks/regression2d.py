"""One outer step on 2-D regression: MAML against PyTorch (an eager loop over tasks, `torch.func`,
and `higher` and `learn2learn` where they are installed), and ARML against MAML.

25 tasks, 10 support and 10 query points, 2-40-40-1, 5 inner steps, second order, Adam, float32.
Ours draws its tasks inside the step; PyTorch's are ready in memory.
"""

import sys

from common import OPPONENTS, Worker, arguments, contest, machine, opponents, write

DISPATCH = 50


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--arml", nargs="*", default=["arml-official", "arml-paper", "arml"])
    parser.add_argument("--opponents", nargs="+", choices=OPPONENTS, help="these only")
    options = parser.parse_args()
    before, results = machine(), []
    rounds, seconds = (3, 0.5) if options.quick else (9, 1.0)

    def ours(name: str) -> Worker:
        return Worker(sys.executable, "arml_steps.py", "regression2d", name, DISPATCH)

    maml = ours("regression2d/maml")
    found = options.opponents or opponents(options.torch_python)
    names = [*found, *(f"regression2d/{name}" for name in options.arml)]
    theirs = [Worker(options.torch_python, "torch_maml.py", name, "regression") for name in found]
    theirs += [ours(name) for name in names[len(found) :]]
    for name, result in zip(
        names, contest(maml, theirs, rounds=rounds, seconds=seconds), strict=True
    ):
        results.append({"pair": ["regression2d/maml", name], **result})
        a, b, r = (result[k] for k in ("ours_seconds", "theirs_seconds", "times_as_fast"))
        print(
            f"MAML {1e3 * a['median']:.2f} ms, {name} {1e3 * b['median']:.2f} ms: "
            f"MAML is {r['median']:.2f} times as fast ({r['min']:.2f} to {r['max']:.2f})",
            flush=True,
        )
    for worker in (maml, *theirs):
        worker.close()
    write("regression2d", results, before, quick=options.quick)


if __name__ == "__main__":
    main()
