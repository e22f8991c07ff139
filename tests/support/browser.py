"""A headless Chromium that tests drive: a page that it opens runs, is clicked, and tells what it has to complain about.

It speaks the DevTools protocol through a pair of pipes: messages in JSON, each ended by a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 60  # in which what is waited for comes, on any machine


def browser() -> str | None:
    """The command of the browser; None if there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """An open page. ``complaints`` are the errors that its console shows, and exceptions that nothing caught."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._unread, self._number, self._session = b"", 0, ""
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            read = os.read(self._back, 1 << 20)
            if not read:
                raise RuntimeError("the browser has ended")
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
        self._ask("Page.navigate", url=address)
        self.wait(f"location.href === {json.dumps(address)} && document.readyState === 'complete'")

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
            TimeoutError: it does not become true.
        """
        end = time.monotonic() + SECONDS
        while not self.value(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(f"never: {condition}; complaints: {self.complaints}")
            time.sleep(0.05)

    def click(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """Click an element, at fractions of its width and height."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}}); "
            "const { x, y, width, height } = e.getBoundingClientRect(); return [x, y, width, height]; })()"
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
    line = 'exec "$0" "$@" 3<&%d 4>&%d' % (told, answered)  # the descriptors that the browser reads and writes
    process = subprocess.Popen(
        ["sh", "-c", line, command, *flags, f"--user-data-dir={folder / 'profile'}", "about:blank"],
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
