"""`arml export`: learners to share, and files that run without JAX; `arml app`: a page on this
machine to try a learner."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import Display, ModelOptions, parse, say, tell


@dataclass(frozen=True)
class ExportOptions:
    """Write a run's learner as a folder to share, or a predictor as an ONNX file or a page.

    With --out it writes a run's learner: weights, configuration and checksums, no data. The
    temperature of its probabilities is chosen on validation tasks first. With --onnx it writes a
    predictor that `arml adapt --save` saved as one file that runs without JAX. With --html it
    writes a folder with a page, such a file and its runtime, which works offline.
    """

    source: Positional[Path]
    """Folder of the run, or of the predictor."""
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
    options = parse(ExportOptions, arguments, prog="arml export")
    if options.out is None and options.onnx is None and options.html is None:
        raise ValueError("nothing to write: give --out FOLDER, --onnx FILE or --html FOLDER")
    if options.tasks < 0:
        raise ValueError(f"tasks must be 0 or more, got {options.tasks}")
    if options.onnx is not None or options.html is not None:
        from arml.predict.files import check_predictor

        check_predictor(options.source)
    if options.html is not None:
        from arml.app.standalone import check_runtime

        check_runtime(options.runtime)  # before the work
    if options.out is not None:
        _learner(options.source, options.out, options.tasks)
    if options.onnx is not None:
        _onnx(options.source, options.onnx, options.model)
    if options.html is not None:
        from arml.app.standalone import write_offline_page
        from arml.predict.loading import load_predictor

        predictor = load_predictor(options.source, options.model)
        write_offline_page(predictor, options.html, options.runtime)
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
        learner = exported(run, out, tasks=tasks)
    if learner.problem.kind == "classification" and tasks:
        helps = "" if learner.temperature != 1 else " (another does not help on validation tasks)"
        say(console, f"temperature of the probabilities: {learner.temperature:.3g}{helps}")
    say(console, f"written to {out}")


def _onnx(source: Path, file: Path, model: Path | None) -> None:
    from arml.predict.loading import load_predictor

    load_predictor(source, model).to_onnx(file)
    say(Console(), f"written to {file} ({file.stat().st_size / 1000:.0f} kB)")


@dataclass(frozen=True, kw_only=True)
class AppOptions(ModelOptions):
    """Serve a page on this machine to try a learner: drop pictures or a table.

    The other tab uses learners of the package. The page's address contains a random token,
    and requests without it are refused. Nothing is stored, and no other machine is contacted.
    Ctrl-C stops it.
    """

    learner: Positional[Path | None] = None
    """A run folder, a shared learner, or an ONNX model of pictures."""
    model: Path | None = None
    """The frozen ONNX model of a learner on features, if it is not the default."""
    port: int = 0
    """Port to listen on; 0 picks a free one."""


def app_command(arguments: Sequence[str]) -> int:
    options = parse(AppOptions, arguments, prog="arml app")
    if not 0 <= options.port < 2**16:
        raise ValueError(f"port must be from 0 to 65535, got {options.port}")
    from arml.predict.files import SUPPORT

    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ValueError(f"{' and '.join(missing)} cannot be imported: pip install 'arml[app]'")
    if options.learner is not None and (options.learner / SUPPORT).is_file():
        tell(
            f"{options.learner} is a predictor: the page uses its learner alone, and you give the "
            "examples of your classes there"
        )
    from arml.app.server import serve, served

    def ready(address: str) -> None:
        tell(f"the page is {address} (Ctrl-C stops it)")

    try:
        serve(
            served(options.learner, options.model, **options.given()),
            port=options.port,
            ready=ready,
        )
    except KeyboardInterrupt:
        tell("stopped")
    except OSError as error:
        problem = error.strerror or error
        raise ValueError(f"port {options.port}: {problem}; give another --port") from None
    return 0
