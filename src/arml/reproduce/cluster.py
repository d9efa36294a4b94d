"""Units carried out on a Ray cluster: one actor a worker, in the place of one process.

`$RAY_ADDRESS` names the cluster; without it Ray is started on this machine. The study's folder and
the data must be where every node finds them under the same path.
"""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def ray() -> Any:
    """The package.

    **Raises** `ValueError` if it is not installed.
    """
    try:
        import ray as package
    except ImportError:
        raise ValueError(
            "expected the package ray for --on ray, found none: install 'arml[ray]'"
        ) from None
    return package


class Hand:
    """What an actor does: one unit after another, as a stream of messages."""

    def __init__(self, out: str) -> None:
        self.out, self.stopping = Path(out), threading.Event()

    def work(self, unit: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Carry one unit out."""
        from arml.reproduce.worker import carried_out

        said: queue.Queue[dict[str, Any]] = queue.Queue()
        arguments = (unit, self.out, said.put, self.stopping.is_set)
        threading.Thread(target=carried_out, args=arguments, daemon=True).start()
        while True:
            message = said.get()
            yield message
            if "end" in message:
                return

    def stop(self) -> None:
        """Save what is in hand, and end."""
        self.stopping.set()


def hire() -> Callable[..., "Member"]:
    """Connect to the cluster; returns what makes a member of a crew.

    **Raises** `ValueError` if Ray is not installed or cannot be reached.
    """
    package = ray()
    if not package.is_initialized():
        address = os.environ.get("RAY_ADDRESS")
        try:
            package.init(address, include_dashboard=False, log_to_driver=False)
        except Exception as error:
            first = str(error).strip().splitlines()[0][:200]
            raise ValueError(
                f"expected a Ray cluster at {address or 'this machine'}, got: {first}; check "
                "RAY_ADDRESS"
            ) from error
    return Member


def places() -> int:
    """How many members the cluster has room for: one an accelerator, or else one a core."""
    found = ray().cluster_resources()
    return max(1, int(found.get("GPU", 0) or found.get("CPU", 1)))


class Member:
    """An actor, and the thread that listens to it: the same to a crew as a process."""

    def __init__(
        self, index: int, out: Path, cores: str, device: dict[str, str], news: "queue.Queue[Any]"
    ) -> None:
        package = ray()
        self.index, self.born, self.news = index, time.monotonic(), news
        # An accelerator each, where the cluster has them.
        wants = {"num_gpus": 1} if package.cluster_resources().get("GPU") else {}
        made = package.remote(Hand).options(num_cpus=1, max_concurrency=2, **wants)
        self.actor = made.remote(str(out.resolve()))

        self.listener: threading.Thread | None = None

    def give(self, unit: dict[str, Any]) -> None:
        """Hand it a unit."""
        stream = self.actor.work.options(num_returns="streaming").remote(unit)
        self.listener = threading.Thread(target=self._listen, args=(stream,), daemon=True)
        self.listener.start()

    def _listen(self, stream: Any) -> None:
        try:
            for reference in stream:
                self.news.put((self, ray().get(reference)))
        except ray().exceptions.RayError:
            self.news.put((self, None))

    def dismiss(self) -> None:
        """Ask it to save and stop."""
        if self.listener is None or not self.listener.is_alive():
            ray().kill(self.actor)  # At once, for the next one may wait for its place.
            return
        with contextlib.suppress(ray().exceptions.RayError):
            self.actor.stop.remote()

    def gone(self) -> int:
        """Its exit status, after its last word."""
        if self.listener is not None:
            self.listener.join()
        ray().kill(self.actor)
        return 1
