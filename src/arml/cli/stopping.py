"""Ctrl-C: a command answers at once, and ends without losing its work."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

INTERRUPTED = 130
"""The exit status of a command that was interrupted."""
SHOW_CURSOR = "\x1b[?25h"
AGAIN = "press Ctrl-C again to stop at once"


def leave() -> None:
    """End the program at once."""
    if sys.stderr.isatty():
        sys.stderr.write(SHOW_CURSOR)  # a progress bar hides it
    sys.stderr.flush()
    os._exit(INTERRUPTED)


class Stop:
    """Asks the command to stop at the first Ctrl-C or SIGTERM; the second ends the program.

    Python calls a signal's handler between two of its own instructions, so not while XLA compiles
    or computes. The handler in C writes a byte to a pipe meanwhile, and a thread that reads the
    pipe answers at once.
    """

    def __init__(
        self, message: str = "stopping after the step in hand", *, idle: Callable[[], str] = str
    ) -> None:
        self.asked, self.message = False, message
        self.idle = idle
        """Returns why nothing is lost if the program ends at once, or the empty string."""

    def __call__(self) -> bool:
        return self.asked

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def _answer(self, pipe: int) -> None:
        """The thread: each byte is a signal's number, and zero ends the thread."""
        presses = 0
        while (number := os.read(pipe, 1)) not in (b"", b"\0"):
            if number[0] not in (signal.SIGINT, signal.SIGTERM):
                continue
            self.asked = True
            presses += 1
            why = self.idle()
            if presses > 1 or why:
                print(f"\narml: {why or 'stopped'}", file=sys.stderr, flush=True)
                leave()
            print(f"\narml: {self.message}; {AGAIN}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen for the two signals; outside the main thread, where that is impossible, do
        nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        read, write = os.pipe()
        os.set_blocking(write, False)
        thread = threading.Thread(target=self._answer, args=(read,), daemon=True)
        thread.start()
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._handle) for number in numbers]
        woken = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
            os.write(write, b"\0")
            thread.join()
            os.close(read)
            os.close(write)
