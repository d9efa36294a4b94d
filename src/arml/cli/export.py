"""`arml export`: learners to share, and files that run without JAX."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import Display, parse, say


@dataclass(frozen=True)
class ExportOptions:
    """Write a run's learner as a folder to share, or a predictor as an ONNX file or a page.

    With --out it writes a run's learner: weights, configuration and checksums, no data. The
    temperature of its probabilities is chosen on validation tasks first. With --onnx it writes a
    predictor that `arml adapt --save` saved as one file that runs without JAX. With --html it
    writes a folder with a page, such a file and its runtime, which works offline.
    """

    source: Positional[Path]
    """Folder of the run, the learner or the predictor."""
    out: Path | None = None
    """Folder of the learner to write."""
    tasks: int = 200
    """Validation tasks for --out; 0 leaves the temperature as it is."""
    onnx: Path | None = None
    """ONNX file to write (needs the extra onnx)."""
    html: Path | None = None
    """Folder of a page to write: it predicts pictures without a server or a network."""
    model: Path | None = None
    """The frozen ONNX model of a learner on features: it becomes part of the file."""
    runtime: Path = Path("node_modules/onnxruntime-web/dist")
    """Folder dist of the npm package onnxruntime-web, for --html."""


def export_command(arguments: Sequence[str]) -> int:
    """Write a learner as a folder to share, or a predictor as an ONNX file"""
    options = parse(ExportOptions, arguments, prog="arml export")
    if options.out is None and options.onnx is None and options.html is None:
        raise ValueError("nothing to write: give --out FOLDER, --onnx FILE or --html FOLDER")
    if options.tasks < 0:
        raise ValueError(f"tasks must be 0 or more, got {options.tasks}")
    if options.html is not None:
        # Before JAX is imported, which takes a second or two.
        from arml.app.standalone import check_runtime
        from arml.predict.files import check_predictor

        check_predictor(options.source)
        check_runtime(options.runtime)
    if options.out is not None:
        _learner(options.source, options.out, options.tasks)
    if options.onnx is not None:
        _onnx(options.source, options.onnx, options.model)
    if options.html is not None:
        from arml.app.standalone import write_page
        from arml.predict.learner import load_predictor

        predictor = load_predictor(options.source, options.model)
        write_page(predictor, options.html, options.runtime, options.model)
        say(Console(), f"written to {options.html}: open its index.html in a browser")
    return 0


def _learner(run: Path, out: Path, tasks: int) -> None:
    from arml.predict.files import SUPPORT
    from arml.predict.learner import exported

    if (run / SUPPORT).is_file():
        raise ValueError(
            f"{run} is a predictor, and --out writes the learner of a run: copy its folder as it "
            "is, or give --onnx or --html"
        )
    console = Console()
    with Display(console, f"predicting {tasks:,} validation tasks" if tasks else "loading"):
        portable = exported(run, out, tasks=tasks)
    if portable.problem.kind == "classification" and tasks:
        helps = "" if portable.temperature != 1 else " (another does not help on validation tasks)"
        say(console, f"temperature of the probabilities: {portable.temperature:.3g}{helps}")
    say(console, f"written to {out}")


def _onnx(source: Path, file: Path, model: Path | None) -> None:
    from arml.predict.files import check_predictor
    from arml.predict.learner import load_predictor

    check_predictor(source)
    predictor = load_predictor(source, model)
    if len(predictor.problem.features) == 2:
        raise ValueError(
            f"{source} predicts rows of tables, whose cells an ONNX file cannot read: copy the "
            "folder as it is, and use `arml predict` there"
        )
    predictor.to_onnx(file, model)
    say(Console(), f"written to {file} ({file.stat().st_size / 1000:.0f} kB)")
