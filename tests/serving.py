"""The page of `arml app`, served in a thread for the tests."""

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from arml.app import server


class Site(NamedTuple):
    """A page that is served."""

    port: int
    token: str

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"


@contextmanager
def serving(served: server.Served) -> Iterator[Site]:
    """The page with these learners, which ends with the block."""
    token = secrets.token_urlsafe(8)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = server.server(served, token)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Site(listening.getsockname()[1], token)
        finally:
            running.should_exit = True
            thread.join()
