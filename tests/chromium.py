"""A real browser for tests: headless Chromium, spoken to through its debugging pipe."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FOUND = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
"""The browser, or None where there is none."""

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-sync", "--disable-background-networking", "--disable-component-update"),
    *("--disable-dev-shm-usage", "--disable-extensions", "--force-color-profile=srgb"),
    *("--hide-scrollbars", "--remote-debugging-pipe"),
)


class Tab:
    """One page of the browser."""

    def __init__(self, to: Any, of: Any) -> None:
        self.to, self.of, self.number, self.session = to, of, 0, None
        self.complaints: list[str] = []
        """What the console and the page's policy said, and what was thrown."""
        self.asked: list[str] = []
        """Everything that the page loaded."""
        self.events: list[str] = []

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Carry out a command of the DevTools protocol; returns its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.to.write(json.dumps(message).encode() + b"\0")
        self.to.flush()
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self.of.read(1)) != b"\0":
            assert byte, "the browser has gone"
            data += byte
        answer = json.loads(data)
        method, said = answer.get("method", ""), answer.get("params", {})
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(said["exceptionDetails"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(said["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
            self.complaints.append(str(said["args"]))
        elif method == "Network.requestWillBeSent":
            self.asked.append(said["request"]["url"])
        return answer

    def open(self, page: Path, *, width: int = 1200, height: int = 900) -> None:
        """Show a file in a window of that size, and wait until it has loaded."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.resize(width, height)
        self.events.clear()
        self.send("Page.navigate", url=page.resolve().as_uri())
        while "Page.loadEventFired" not in self.events:
            self._receive()

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def centre(self, selector: str) -> tuple[float, float]:
        """Where the first such element is in the window, after scrolling to it."""
        script = (
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        x, y = self.ask(script)
        return x, y

    def hover(self, selector: str) -> None:
        """Move the pointer over the first such element."""
        x, y = self.centre(selector)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Press and release the left button there."""
        x, y = self.centre(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press and release a key, such as `Tab` or `ArrowRight`."""
        codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37}
        for kind in ("rawKeyDown", "keyUp"):
            code = {"windowsVirtualKeyCode": codes[key]}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, **code)

    def screenshot(self, path: Path) -> None:
        """Write what the window shows as PNG."""
        data = self.send("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        """The page as it would be printed."""
        return base64.b64decode(self.send("Page.printToPDF")["data"])


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """A browser with a profile of its own, which ends with the block."""
    assert FOUND is not None
    reads, to = os.pipe()
    of, writes = os.pipe()

    def wire() -> None:
        # The browser reads from 3 and writes to 4; the two may be in each other's place.
        spare_in, spare_out = os.dup(reads), os.dup(writes)
        os.dup2(spare_in, 3)
        os.dup2(spare_out, 4)

    command = [FOUND, *FLAGS, f"--user-data-dir={profile}"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        command, stdout=quiet, stderr=quiet, close_fds=False, preexec_fn=wire
    )
    os.close(reads)
    os.close(writes)
    with open(to, "wb") as sender, open(of, "rb", buffering=0) as receiver:
        try:
            yield Tab(sender, receiver)
        finally:
            process.kill()
            process.wait()
