"""A headless Chromium that tests drive: a page that it opens runs, is clicked, and tells what it has to complain about.

It speaks the DevTools protocol through a pair of pipes: messages in JSON, each ended by a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = f"none of {', '.join(NAMES)} is installed: make cross (apt-get install chromium)"
TURNS, TURN_MILLISECONDS = 1200, 50  # in which what is waited for comes, on any machine
SECONDS = 120  # in which a browser answers, or ends


def browser() -> str | None:
    """The command of the browser; None if there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """An open page. ``complaints`` are the errors that its console shows, and exceptions that nothing caught."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._unread, self._number, self._session, self._loaded = b"", 0, "", False
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._back], [], [], SECONDS)
            read = os.read(self._back, 1 << 20) if ready else b""
            if not read:
                raise RuntimeError("the browser has ended" if ready else "the browser does not answer")
            self._unread += read
        message, self._unread = self._unread.split(b"\0", 1)
        return dict(json.loads(message))

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        said = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.exceptionThrown":
                details = said["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description", details["text"]))
            case "Runtime.consoleAPICalled" if said["type"] in ("error", "warning", "assert"):
                self.complaints.append(str([a.get("value", a.get("description")) for a in said["args"]]))
            case "Log.entryAdded" if said["entry"]["level"] in ("error", "warning"):
                self.complaints.append(said["entry"]["text"])

    def open(self, address: str, *, width: int = 1000, height: int = 900, dark: bool = False) -> None:
        """Load a page, in a window of so many pixels."""
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        self._ask("Page.navigate", url=address)
        while not self._loaded:
            self._note(self._message())

    def value(self, script: str) -> Any:
        """The value of an expression in the page.

        Raises:
            RuntimeError: it threw something.
        """
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"].get("description", script))
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression in the page is true.

        Raises:
            RuntimeError: it does not become true.
        """
        never = json.dumps(f"never: {condition}")
        self.value(
            f"new Promise((done, fail) => {{ let left = {TURNS}; (function look() {{ if ({condition}) done(); "
            f"else if (left--) setTimeout(look, {TURN_MILLISECONDS}); else fail(new Error({never})); }})(); }})"
        )

    def click(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """Click an element, at fractions of its width and height."""
        box = self.value(
            f"(() => {{ const clicked = document.querySelector({json.dumps(selector)}); "
            "clicked.scrollIntoView({ block: 'center' }); "
            "const { x, y, width, height } = clicked.getBoundingClientRect(); return [x, y, width, height]; })()"
        )
        place = {"x": box[0] + across * box[2], "y": box[1] + down * box[3], "button": "left", "clickCount": 1}
        for what in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=what, **place)

    def picture(self, path: Path) -> None:
        """Write the window's pixels as PNG."""
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """A tab of a browser of its own, whose profile lies in a folder; both end with the block."""
    command = browser()
    assert command is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
    told, to = os.pipe()
    back, answered = os.pipe()
    line = f'exec "$0" "$@" 3<&{told} 4>&{answered}'  # the descriptors that the browser reads and writes
    process = subprocess.Popen(
        ["bash", "-c", line, command, *flags, f"--user-data-dir={folder / 'profile'}", "about:blank"],
        pass_fds=(told, answered), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(told)
    os.close(answered)
    try:
        yield Tab(to, back)
    finally:
        os.close(to)  # at which the browser ends
        os.close(back)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
