"""The server of the page. It accepts only requests from this machine.

The address has a random token, which each request must contain, and a request must name this
machine as its host. Therefore no other page in the browser can send a request. Nothing is written
to a file: pictures are in memory until their request is answered. The Content-Security-Policy
allows the page to load files from this server only.
"""

import asyncio
import json
import os
import secrets
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from arml.app import picture_tab, table_tab
from arml.app.picture_tab import Limits, Tab
from arml.photographs.inputs import frame_of
from arml.predict.base import TaskLearner
from arml.predict.kinds import inputs_of, untrained
from arml.predict.loading import load
from arml.results.files import Json, brief

LOCAL_HOST = "127.0.0.1"
REQUEST_SECONDS = 5.0
"""Seconds between two checks of a connection (`TimedConnection`)."""
UPLOAD_SECONDS = 1800.0
"""The longest time that a request with the token may take to arrive."""
SECURITY_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
TABLE_LEARNERS: dict[str, str] = {"classes": "tables", "numbers": "tables-regression"}
"""The learner for each kind of prediction from tables."""
CONTENT_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


@dataclass(frozen=True)
class Served:
    """The learners of the page. A tab without a learner is not shown."""

    pictures: Tab | None
    tables: Mapping[str, TaskLearner] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a request is answered: two at once would only share the same cores."""


class Guard:
    """Refuses requests without the token, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = [(name.encode(), text.encode()) for name, text in SECURITY_HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *ours]}
            await send(message)

        token = scope["path"].removeprefix("/").partition("/")[0]
        if secrets.compare_digest(token.encode(), self.token.encode()):
            await self.app(scope, receive, answer)
        else:
            refusal = Response("expected the address that `arml app` printed\n", 403)
            await refusal(scope, receive, answer)


async def _content(request: Request, limits: Limits) -> object:
    """The JSON of a request. **Raises** `ValueError` if it is larger than the limit."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limits.megabytes * 2**20:
            raise ValueError(f"more than {limits.megabytes} MiB: choose fewer or smaller files")
    try:
        return await run_in_threadpool(json.loads, body)  # it may be large
    except (ValueError, RecursionError):
        raise ValueError("the request is not JSON: use the page") from None


def _answering(
    served: Served, answer: Callable[[Any], Json]
) -> Callable[[Request], Awaitable[Response]]:
    """A route that answers requests in a thread, one at a time."""

    async def route(request: Request) -> Response:
        try:
            post = request.method == "POST"
            content = await _content(request, served.limits) if post else secrets.randbits(32)
            async with served.busy:
                if await request.is_disconnected():  # the page has sent a newer one
                    return Response(status_code=400)
                return JSONResponse(await run_in_threadpool(answer, content))
        except ValueError as error:
            return JSONResponse({"error": brief(error)}, 400)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            said = f"unexpected {type(error).__name__}; the terminal shows details"
            return JSONResponse({"error": said}, 500)

    return route


def _routes(served: Served) -> list[Route]:
    limits, tab, learners = served.limits, served.pictures, served.tables
    answers: dict[str, Callable[[Any], Json]] = {}
    if tab is not None:
        answers |= {
            "/classify": lambda c: picture_tab.classified(tab, c, limits),
            "/trust": lambda c: picture_tab.trusted(tab, c, limits),
            "/keep": lambda c: picture_tab.packed_predictor(tab, c, limits),
            "/open": lambda c: picture_tab.opened_predictor(tab, c),
            "/preview": picture_tab.preview,
            "/example-pictures": picture_tab.example_pictures,
        }
    if learners:
        answers |= {
            "/read-table": lambda c: table_tab.read_table(c, limits),
            "/columns": lambda c: table_tab.columns(c, limits),
            "/table": lambda c: table_tab.predicted(learners, c, limits),
            "/matter": lambda c: table_tab.checked(learners, c, limits),
            "/example-table": table_tab.example_table,
        }
    routes = [Route("/about", lambda request: JSONResponse(about(served)))]
    for path, answer in answers.items():
        method = "GET" if path.startswith("/example") else "POST"
        routes.append(Route(path, _answering(served, answer), methods=[method]))
    for file in (files("arml.app") / "page").iterdir():
        kind = CONTENT_TYPES[file.name.rpartition(".")[2]]
        path = "/" if file.name == "index.html" else f"/{file.name}"
        response = Response(file.read_bytes(), media_type=kind)
        routes.append(Route(path, lambda request, response=response: response))
    return routes


def about(served: Served) -> Json:
    """The limits, and the learner of each tab: the page reads them when it opens."""
    found: Json = {"limits": vars(served.limits)}
    if served.pictures is not None:
        tab = served.pictures
        size, families = frame_of(tab.learner)[0], list(tab.learner.families)
        found["pictures"] = {"learner": tab.name, "size": size, "families": families}
    if served.tables:
        found["tables"] = {"kinds": [*served.tables]}
    return found


def served(learner: Path | None = None, model: Path | None = None, **options: Any) -> Served:
    """The learners of the page: the named one in its tab, and the package's in the other tab.

    **Arguments**

    - `model`: the frozen model of a learner on features, or of `photos`; the package's if None.
    - `options`: options of an ONNX model: see `arml.photographs.learner.PhotoLearner`.

    **Raises** `RunError` if the learner does not exist, and `ValueError` if no tab can use it.
    """
    if model is not None and str(learner or "photos") == "photos":
        learner, model = model, None
    own = {name: name for name, kind in untrained().items() if kind.tab == "tables"}
    kinds = {kind: load(name) for kind, name in {**TABLE_LEARNERS, **own}.items()}
    if learner is not None:
        named = load(learner, model, **options)
        classes = named.problem.kind == "classification"
        if classes and inputs_of(named).tab == "pictures":
            file = learner if learner.suffix == ".onnx" else model
            return Served(Tab(named, learner.resolve().name, model=file), kinds)
        if inputs_of(named).tab != "tables":
            raise ValueError(f"{learner} reads neither pictures nor tables: use `arml adapt`")
        name = named.kind.name
        kinds[name if name in own else "classes" if classes else "numbers"] = named
    return Served(Tab(load("photos"), "photos", choose=True), kinds)


class TimedConnection(H11Protocol):
    """A connection that is closed unless a request begins within `REQUEST_SECONDS` and ends within
    twice that time. Otherwise many slow connections could block the server without the token. A
    request with the token may take `UPLOAD_SECONDS` while its data arrive, for example by SSH."""

    _came = False  # whether data came since the last check

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(REQUEST_SECONDS, self._look, None, 0.0)

    def data_received(self, data: bytes) -> None:
        self._came = True
        super().data_received(data)

    def _look(self, seen: Any, age: float) -> None:
        if self.transport.is_closing():
            return
        now = (self.cycle, self.conn.their_state)
        age = age + REQUEST_SECONDS if now == seen else 0.0
        # A request without the token is answered before its data are read. `cycle` is None before
        # the first request, although its type does not allow that.
        reading = self._came and self.cycle is not None and not self.cycle.response_complete
        late = now == (None, h11.IDLE) or age > (UPLOAD_SECONDS if reading else 0)
        self._came = False
        if late and self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self.transport.abort()
        else:
            self.loop.call_later(REQUEST_SECONDS, self._look, now, age)


class StoppableServer(uvicorn.Server):
    """A server that Ctrl-C stops at once, because it has nothing to save."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        print("stopped", file=sys.stderr, flush=True)
        os._exit(130)


def server(served: Served, token: str) -> uvicorn.Server:
    """The server of the page, not yet started. The page is at `/TOKEN/`."""
    application = Starlette(
        routes=[Mount(f"/{token}", routes=_routes(served))],
        middleware=[
            Middleware(Guard, token=token),
            Middleware(TrustedHostMiddleware, allowed_hosts=[LOCAL_HOST, "localhost"]),
        ],
    )
    return StoppableServer(
        uvicorn.Config(
            application,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",  # the application has none, and uvicorn would report an error
            http=TimedConnection,
            limit_concurrency=256,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=3,
        )
    )


def serve(served: Served, *, port: int = 0, ready: Callable[[str], None]) -> None:
    """Serve the page until interrupted. `ready` is called with its address.

    **Raises** `OSError` if the port is in use. With port 0 the system chooses a free one.
    """
    token = secrets.token_urlsafe(24)
    with socket.create_server((LOCAL_HOST, port)) as listening:
        ready(f"http://{LOCAL_HOST}:{listening.getsockname()[1]}/{token}/")
        server(served, token).run(sockets=[listening])
