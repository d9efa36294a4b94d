"""`arml export` writes learners to share, and files that run without JAX; `arml app` serves a page
on this machine to try a learner."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from arml.cli.console import Display, ModelOptions, parse, say, tell
from arml.results.machine import extra


@dataclass(frozen=True)
class ExportOptions:
    """Write a run's learner as a folder to share, or a predictor as an ONNX file or a page.

    With --out it writes a run's learner: weights, configuration and checksums, no data. The
    temperature of its probabilities is chosen on validation tasks first. With --onnx it writes a
    predictor of `arml adapt --save` as one file that runs without JAX. With --html it writes a
    folder with an offline page, the ONNX file and its runtime.
    """

    source: Positional[Path]
    """Folder of the run, or of the predictor."""
    out: Path | None = None
    """Folder of the learner to write."""
    tasks: int = 200
    """Validation tasks for --out; 0 keeps the temperature."""
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
    source, out, onnx, html = options.source, options.out, options.onnx, options.html
    if out is None and onnx is None and html is None:
        raise ValueError("nothing to write: give --out FOLDER, --onnx FILE or --html FOLDER")
    if options.tasks < 0:
        raise ValueError(f"tasks must be 0 or more, got {options.tasks}")
    from arml.app.standalone import check_runtime, write_offline_page
    from arml.predict.files import SUPPORT_FILE, check_predictor

    if out is not None and (source / SUPPORT_FILE).is_file():
        raise ValueError(
            f"{source} is a predictor, and --out writes the learner of a run: copy its folder as "
            "it is, or give --onnx or --html"
        )
    if onnx is not None or html is not None:
        check_predictor(source)
    if html is not None:
        check_runtime(options.runtime)  # before the work
    console = Console()
    if out is not None:
        from arml.predict.learner import exported

        said = f"predicting {options.tasks:,} validation tasks" if options.tasks else "loading"
        with Display(console, said):
            learner = exported(source, out, tasks=options.tasks)
        if learner.problem.kind == "classification" and options.tasks:
            same = " (others are not better on validation tasks)" * (learner.temperature == 1)
            say(console, f"temperature of the probabilities: {learner.temperature:.3g}{same}")
        say(console, f"written to {out}")
        return 0
    from arml.predict.loading import load_predictor

    predictor = load_predictor(source, options.model)
    if onnx is not None:
        predictor.to_onnx(onnx)
        say(console, f"written to {onnx} ({onnx.stat().st_size / 1000:.0f} kB)")
    if html is not None:
        write_offline_page(predictor, html, options.runtime)
        say(console, f"written to {html}: open its index.html in a browser")
    return 0


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
    for package in ("starlette", "uvicorn"):
        extra(package, "app", "the page")
    from arml.predict.files import SUPPORT_FILE

    if options.learner is not None and (options.learner / SUPPORT_FILE).is_file():
        tell(
            f"{options.learner} is a predictor: the page uses only its learner, and you give the "
            "examples of your classes there"
        )
    from arml.app.server import serve, served

    learners = served(options.learner, options.model, **options.given())

    def ready(address: str) -> None:
        tell(f"the page is {address} (Ctrl-C stops it)")

    try:
        serve(learners, port=options.port, ready=ready)
    except OSError as error:
        problem = error.strerror or error
        raise ValueError(f"port {options.port}: {problem}; give another --port") from None
    return 0
