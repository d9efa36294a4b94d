"""`arml app`: a page on this machine to try a learner."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tyro.conf import Positional

from arml.cli.console import parse, tell
from arml.predict.files import SUPPORT


@dataclass(frozen=True)
class AppOptions:
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
    """Serve a page on this machine to try a learner"""
    options = parse(AppOptions, arguments, prog="arml app")
    if not 0 <= options.port < 2**16:
        raise ValueError(f"port must be from 0 to 65535, got {options.port}")
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
        serve(served(options.learner, options.model), port=options.port, ready=ready)
    except KeyboardInterrupt:
        tell("stopped")
    except OSError as error:
        problem = error.strerror or error
        raise ValueError(f"port {options.port}: {problem}; give another --port") from None
    return 0
