"""A page in headless Chromium, driven over its debugging pipe.

It needs nothing but Debian's package `chromium`.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium: apt-get install chromium"
)
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # needed in containers, where tests run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)


class Page:
    """One page, with the requests that it made."""

    def __init__(self, read: BinaryIO, write: BinaryIO) -> None:
        self._read = read
        self._write = write
        self._unread = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method of the browser; keep the events that arrive before its result."""
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": arguments}
        if self._session is not None:
            asked["sessionId"] = self._session
        self._write.write(json.dumps(asked).encode() + b"\0")
        self._write.flush()
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, f"{method}: {found['error']}"
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def open(self, path: Path) -> None:
        """Load a file and wait for it; earlier events are dropped."""
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(each.get("method") == "Page.loadEventFired" for each in self.events):
            self.events.append(self._next())

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, awaiting promises."""
        found = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def size(self, width: int, height: int, *, mobile: bool = False) -> None:
        """Set the window's size in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )

    def media(self, media: str = "screen", scheme: str = "light") -> None:
        """Emulate a medium such as print, and a light or dark colour scheme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def screenshot(self, path: Path) -> None:
        """Save the whole page as a PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    @property
    def requests(self) -> list[str]:
        """The URLs that the page requested."""
        return [
            each["params"]["request"]["url"]
            for each in self.events
            if each.get("method") == "Network.requestWillBeSent"
        ]

    @property
    def complaints(self) -> list[str]:
        """Uncaught exceptions and log entries of the browser."""
        thrown = [
            json.dumps(each["params"]["exceptionDetails"])
            for each in self.events
            if each.get("method") == "Runtime.exceptionThrown"
        ]
        logged = [
            str(each["params"]["entry"]["text"])
            for each in self.events
            if each.get("method") == "Log.entryAdded"
        ]
        return thrown + logged

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            read = os.read(self._read.fileno(), 1 << 20)
            assert read, "Chromium has ended"
            self._unread += read
        message, _, self._unread = self._unread.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """Run a browser with one empty page; `profile` is an empty directory for it alone."""
    assert CHROMIUM is not None, "tests are marked with needs_chromium"
    to_browser, write_fd = os.pipe()
    read_fd, from_browser = os.pipe()
    # The browser expects the pipes at descriptors 3 and 4.
    moved = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
    process = subprocess.Popen(
        ["/bin/bash", "-c", moved, "bash", CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(to_browser)
    os.close(from_browser)
    with os.fdopen(read_fd, "rb") as read, os.fdopen(write_fd, "wb") as write:
        try:
            yield Page(read, write)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # together with its helper processes
            process.wait()
