"""One outer step of second-order MAML on images, against PyTorch: an eager loop over tasks,
`torch.func`, and `higher` and `learn2learn` where they are installed.

All: Conv-4, 32 filters, batch statistics, 3 channels, 5-way, 15 queries a class, 4 tasks, 5 inner
steps, Adam, float32.
"""

import sys

from common import OPPONENTS, Worker, arguments, contest, machine, opponents, write


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--sizes", type=int, nargs="+", default=[28, 84], help="pixels")
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--opponents", nargs="+", choices=OPPONENTS, help="these only")
    options = parser.parse_args()
    before, results = machine(), []
    rounds, seconds = (3, 1.0) if options.quick else (5, 2.0)
    names = options.opponents or opponents(options.torch_python)
    for size in options.sizes:
        for shots in options.shots:
            ours = Worker(sys.executable, "arml_steps.py", "conv4", size, shots)
            what = ("conv4", size, shots)
            theirs = [Worker(options.torch_python, "torch_maml.py", n, *what) for n in names]
            found = contest(ours, theirs, rounds=rounds, seconds=seconds)
            for worker in (ours, *theirs):
                worker.close()
            for name, result in zip(names, found, strict=True):
                results.append({"pixels": size, "shots": shots, "opponent": name, **result})
                a, b, r = (result[k] for k in ("ours_seconds", "theirs_seconds", "times_as_fast"))
                print(
                    f"{size} px {shots}-shot: arml {a['median']:.3f} s, {name} {b['median']:.3f} "
                    f"s, {r['median']:.2f} times as fast ({r['min']:.2f} to {r['max']:.2f})",
                    flush=True,
                )
            # After each: a setting may take minutes.
            write("conv4", results, before, quick=options.quick)


if __name__ == "__main__":
    main()
