"""`arml app`: a page on this machine to try a learner."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from arml.cli.console import parse, tell
from arml.predict.files import SUPPORT

if TYPE_CHECKING:
    from arml.app.server import Served

SHIPPED = {
    "pictures": "photos",
    "functions": "regression2d",
    "classes": "tables",
    "numbers": "tables-regression",
}
"""The learners of the tabs if none is named (that of tables has two); a tab without a learner is
not shown."""


@dataclass(frozen=True)
class AppOptions:
    """Serve a page on this machine to try a learner: drop pictures or a table, or draw a function's
    points.

    The tabs of other tasks use learners of the package. The page's address contains a random token,
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
    from arml.app.server import serve

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


def served(learner: Path | None, model: Path | None = None) -> "Served":
    """The page's learners: the named one, and those of the package for the other tabs.

    **Arguments**

    - `model`: the frozen model of a learner on features, if it is not the one that ships.

    **Raises** `RunError` if there is no such learner, `ValueError` for one that no tab fits.
    """
    from arml.app.answers import is_of_pictures
    from arml.app.functions import is_of_functions
    from arml.app.server import Served
    from arml.app.tables import KINDS, kind_of
    from arml.predict.files import shipped
    from arml.predict.inputs import picture_reader
    from arml.predict.learner import load

    fits = {"pictures": is_of_pictures, "functions": is_of_functions}
    found: dict[str, Any] = {}
    names: dict[str, str] = {}
    if learner is None and model is not None:
        raise ValueError("--model needs a learner: arml app LEARNER --model FILE")
    if learner is not None:
        named = load(learner)
        tabs = [tab for tab, fit in fits.items() if fit(named)]
        tabs += [kind for kind in KINDS.values() if kind == kind_of(named)]
        if not tabs:
            described = " x ".join(map(str, named.problem.features)) + " numbers"
            raise ValueError(
                f"{learner} reads {described}, and the page has pictures, tables and functions of "
                "two inputs: use `arml adapt`"
            )
        found[tabs[0]], names[tabs[0]] = named, learner.resolve().name
        model = learner if learner.suffix == ".onnx" else model
    for tab, name in SHIPPED.items():
        if tab not in found and name in shipped():
            found[tab], names[tab] = load(name), name
    tables = {kind: found[kind] for kind in KINDS.values() if kind in found}
    reader = picture_reader(found["pictures"], model) if "pictures" in found else None
    return Served(
        found.get("pictures"), found.get("functions"), names, tables=tables, reader=reader
    )
