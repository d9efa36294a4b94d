"""One outer step of second-order MAML on images, against an eager PyTorch loop over tasks.

Both: Conv-4, 32 filters, batch statistics, 3 channels, 5-way, 15 queries a class, 4 tasks, 5 inner
steps, Adam, float32.
"""

import sys

from common import Worker, arguments, duel, machine, write


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--sizes", type=int, nargs="+", default=[28, 84], help="pixels")
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 5])
    options = parser.parse_args()
    before, results = machine(), []
    rounds, seconds = (3, 1.0) if options.quick else (7, 4.0)
    for size in options.sizes:
        for shots in options.shots:
            ours = Worker(sys.executable, "arml_steps.py", "conv4", size, shots)
            theirs = Worker(options.torch_python, "torch_maml.py", "conv4", size, shots)
            result = duel(ours, theirs, rounds=rounds, seconds=seconds)
            ours.close()
            theirs.close()
            results.append({"pixels": size, "shots": shots, **result})
            a, b, r = (result[k] for k in ("ours_seconds", "theirs_seconds", "times_as_fast"))
            print(
                f"{size} px {shots}-shot: arml {a['median']:.3f} s, PyTorch {b['median']:.3f} s, "
                f"{r['median']:.2f} times as fast ({r['min']:.2f} to {r['max']:.2f})",
                flush=True,
            )
    write("conv4", results, before)


if __name__ == "__main__":
    main()
