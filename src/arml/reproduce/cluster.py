"""Units carried out on a Ray cluster: each worker is an actor instead of a process.

`$RAY_ADDRESS` names the cluster; without it Ray is started on this machine. Every node must find
the study's folder and the data under the same path.
"""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

from arml.results.extras import extra
from arml.results.worker import Message, finished
from arml.results.workers import Hire, News


def ray() -> Any:
    """The package. **Raises** `ValueError` if it is not installed."""
    return extra("ray", "ray", "--on ray")


class Hand:
    """An actor: carries out one unit after another, each as a stream of messages."""

    def __init__(self) -> None:
        self.stopping = threading.Event()

    def work(self, job: Message) -> Iterator[Message]:
        """Carry out one unit."""
        from arml.reproduce.unit import work

        sent: queue.Queue[Message] = queue.Queue()

        def whole() -> None:
            sent.put(finished(work, job, sent.put, self.stopping.is_set))

        threading.Thread(target=whole, daemon=True).start()
        while True:
            message = sent.get()
            yield message
            if "end" in message:
                return

    def stop(self) -> None:
        """Save the unit in hand, and end."""
        self.stopping.set()


def hire() -> Hire:
    """Connect to the cluster; returns the function that makes a worker.

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
    return Actor


def places() -> int:
    """How many workers the cluster has room for: one for each accelerator, or each core."""
    found = ray().cluster_resources()
    return max(1, int(found.get("GPU", 0) or found.get("CPU", 1)))


class Actor:
    """A worker that is an actor, and the thread that reads its messages."""

    def __init__(self, index: int, news: News) -> None:
        package = ray()
        self.index, self.born, self.news = index, time.monotonic(), news
        # One accelerator for each, where the cluster has any.
        wants = {"num_gpus": 1} if package.cluster_resources().get("GPU") else {}
        made = package.remote(Hand).options(num_cpus=1, max_concurrency=2, **wants)
        self.actor = made.remote()
        self.listener: threading.Thread | None = None

    def give(self, job: Message) -> None:
        """Hand it a job."""
        stream = self.actor.work.options(num_returns="streaming").remote(job)
        self.listener = threading.Thread(target=self._listen, args=(stream,), daemon=True)
        self.listener.start()

    def _listen(self, stream: Any) -> None:
        try:
            for reference in stream:
                self.news.put((self, ray().get(reference)))
        except ray().exceptions.RayError:
            self.news.put((self, None))

    def dismiss(self) -> None:
        """Ask it to save its job and end."""
        if self.listener is None or not self.listener.is_alive():
            ray().kill(self.actor)  # At once, because the next one may wait for its place.
            return
        with contextlib.suppress(ray().exceptions.RayError):
            self.actor.stop.remote()

    def ended(self) -> str:
        """Wait until it has sent its last message, and end it."""
        if self.listener is not None:
            self.listener.join()
        ray().kill(self.actor)
        return "its actor ended; see the cluster's logs"
