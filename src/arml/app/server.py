"""The server behind the page. It answers this machine only, and only requests with its address.

The address holds a random token that every request must carry, and a request must name this
machine as its host, so that no other page in the browser can send one. Nothing is stored: pictures
are in memory while they are answered. The Content-Security-Policy lets the page load from this
server only.
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
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from arml.app import answers
from arml.app.functions import example_function, span, surface
from arml.app.tables import Kind, checked, columns, example, predicted
from arml.app.uploads import Limits
from arml.predict.inputs import PictureReader
from arml.predict.learner import FewShotLearner, Learner
from arml.results.files import Json, RunError

HOST = "127.0.0.1"
PATIENCE = 5.0
"""Seconds between two looks at a connection, which must have sent a whole request meanwhile."""
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


@dataclass(frozen=True)
class Served:
    """The learners of the page. A learner that is None has no tab."""

    pictures: Learner | None
    functions: FewShotLearner | None
    names: dict[str, str]
    """The names of the learners."""
    limits: Limits = field(default_factory=Limits)
    tables: Mapping[Kind, FewShotLearner] = field(default_factory=dict)
    """The learners of tables; without any there is no tab."""
    reader: PictureReader | None = None
    """How pictures become the inputs of their learner; None if these are its pixels."""
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One answer at a time: two would only take each other's cores."""


class Guard:
    """Lets requests through that carry the token, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *known]}
            await send(message)

        token = scope["path"].removeprefix("/").partition("/")[0]
        if secrets.compare_digest(token.encode(), self.token.encode()):
            await self.app(scope, receive, answer)
        else:
            refusal = Response("expected the address that `arml app` printed\n", 403)
            await refusal(scope, receive, answer)


async def _content(request: Request, limits: Limits) -> object:
    """The JSON of a request, not more of it than the limit."""
    most = limits.megabytes * 2**20
    said = f"expected at most {limits.megabytes} MiB, got more: choose fewer or smaller files"
    if int(request.headers.get("content-length", "0")) > most:
        raise HTTPException(413, said)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise HTTPException(413, said)
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "expected JSON, got something else") from None


Handler = Callable[[Request], Awaitable[Response]]


def _answering(served: Served, answer: Callable[[Any], Json]) -> Handler:
    """A route that answers a request's content in a thread, one at a time."""

    async def route(request: Request) -> Response:
        try:
            if request.method == "POST":
                content = await _content(request, served.limits)
            else:
                content = int.from_bytes(secrets.token_bytes(4))
            async with served.busy:
                if await request.is_disconnected():  # it asked again meanwhile
                    return Response(status_code=400)
                return JSONResponse(await run_in_threadpool(answer, content))
        except HTTPException as error:
            return JSONResponse({"error": error.detail}, error.status_code)
        except (RunError, ValueError) as error:
            return JSONResponse({"error": " ".join(str(error).split())}, 400)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            said = f"unexpected {type(error).__name__}; the terminal shows details"
            return JSONResponse({"error": said}, 500)

    return route


def _routes(served: Served) -> list[Route]:
    limits, pictures, functions = served.limits, served.pictures, served.functions
    reader = served.reader
    routes = [Route("/about", lambda request: JSONResponse(about(served)))]
    asked: dict[str, tuple[str, Callable[[Any], Json]]] = {}
    if pictures is not None:
        asked["/classify"] = ("POST", lambda c: answers.classified(pictures, c, limits, reader))
        asked["/trust"] = ("POST", lambda c: answers.trusted(pictures, c, limits, reader))
        asked["/keep"] = ("POST", lambda c: answers.kept(pictures, c, limits, reader))
        asked["/example-pictures"] = ("GET", lambda s: answers.example_pictures(pictures, s))
    if functions is not None:
        asked["/surface"] = ("POST", lambda c: surface(functions, c, limits))
        asked["/example-function"] = ("GET", lambda s: example_function(functions, s))
    if served.tables:
        read = served.tables
        asked["/columns"] = ("POST", lambda c: columns(c, limits))
        asked["/table"] = ("POST", lambda c: predicted(read, c, limits))
        asked["/matter"] = ("POST", lambda c: checked(read, c, limits))
        asked["/example-table"] = ("GET", example)
    for path, (method, answer) in asked.items():
        routes.append(Route(path, _answering(served, answer), methods=[method]))
    for file in (files("arml.app") / "page").iterdir():
        kind = TYPES[file.name.rpartition(".")[2]]
        path = "/" if file.name == "index.html" else f"/{file.name}"
        response = Response(file.read_bytes(), media_type=kind)
        routes.append(Route(path, lambda request, response=response: response))
    return routes


def about(served: Served) -> Json:
    """Facts that the page needs when it starts."""
    found: Json = {"limits": vars(served.limits)}
    if served.pictures is not None:
        portable = served.pictures.portable
        size = (
            served.reader.size if served.reader is not None else served.pictures.problem.features[0]
        )
        found["pictures"] = {
            "learner": served.names["pictures"],
            "size": size,
            "model": None if portable.inputs is None else portable.inputs["model"],
            "families": portable.families,
        }
    if served.functions is not None:
        low, high = span(served.functions)
        found["functions"] = {"learner": served.names["functions"], "low": low, "high": high}
    if served.tables:
        found["tables"] = {"learners": {kind: served.names[kind] for kind in served.tables}}
    return found


def application(served: Served, token: str) -> Starlette:
    """The page as an ASGI application, below `/TOKEN/`."""
    return Starlette(
        routes=[Mount(f"/{token}", routes=_routes(served))],
        middleware=[
            Middleware(Guard, token=token),
            Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"]),
        ],
    )


class Hurried(H11Protocol):
    """A connection that is closed unless a request begins within `PATIENCE` and ends within twice
    that time. Slow connections, which need no token, could otherwise keep others out. Requests come
    from this machine, so real ones take much less."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(PATIENCE, self._look, None)

    def _look(self, seen: Any) -> None:
        if self.transport.is_closing():
            return
        now = (self.cycle, self.conn.their_state)
        unfinished = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        # By its type there always is a cycle; before the first request there is none.
        if unfinished and now in ((None, h11.IDLE), seen):
            self.transport.abort()
        else:
            self.loop.call_later(PATIENCE, self._look, now)


class Ended(uvicorn.Server):
    """A server that Ctrl-C ends at once: nothing is kept, so there is nothing to wait for."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        print("stopped", file=sys.stderr, flush=True)
        os._exit(130)


def server(served: Served, token: str) -> uvicorn.Server:
    """The page's server, not started."""
    return Ended(
        uvicorn.Config(
            application(served, token),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",  # there is none, and its end would be told as a failure
            http=Hurried,
            limit_concurrency=256,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=3,
        )
    )


def serve(served: Served, *, port: int = 0, ready: Callable[[str], None]) -> None:
    """Serve until interrupted; `ready` is called with the page's address.

    **Raises** `OSError` if the port is taken; 0 takes a free one.
    """
    token = secrets.token_urlsafe(24)
    with socket.create_server((HOST, port)) as listening:
        ready(f"http://{HOST}:{listening.getsockname()[1]}/{token}/")
        server(served, token).run(sockets=[listening])
