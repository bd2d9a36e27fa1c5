"""Opens pages in headless Chromium over its DevTools protocol, which the program speaks on pipes.

Messages are JSON, each ended by a zero byte; the browser reads from descriptor 3 and writes to 4.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
_SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_PATIENCE = 120.0  # seconds for one answer


class Chromium:
    """A browser with one page."""

    def __init__(self, folder: Path) -> None:
        assert PROGRAM is not None
        theirs, self._writes = os.pipe()
        self._reads, told = os.pipe()
        reads, writes = (fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (theirs, told))
        # The browser wants descriptors 3 and 4; a shell puts them there.
        shell = f'exec "$0" "$@" 3<&{reads} 4>&{writes} {reads}<&- {writes}>&-'
        home = {**os.environ, "HOME": str(folder), "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
        self._process = subprocess.Popen(
            ["bash", "-c", shell, PROGRAM, *_SWITCHES, f"--user-data-dir={folder / 'profile'}"],
            pass_fds=(reads, writes),
            env=home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for one in (theirs, told, reads, writes):
            os.close(one)
        self._numbers, self._rest, self._session = itertools.count(1), b"", ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")
        self.call("Page.setBypassCSP", enabled=True)  # only what a test runs runs

    def close(self) -> None:
        """End the process."""
        os.close(self._writes)  # a browser whose pipe is gone ends
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._reads)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                found: dict[str, Any] = answer["result"]
                return found

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._writes, view) :]

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + _PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._reads, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def run(self, code: str) -> Any:
        """Return the value of an expression in the page; promises are waited for."""
        found = self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def open(self, file: Path, wide: int, *, dark: bool = False, media: str = "") -> None:
        """Load a page as a window of this width (CSS pixels) in this scheme shows it."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=wide,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call("Page.navigate", url=file.resolve().as_uri())
        end = time.monotonic() + _PATIENCE
        here = json.dumps(file.resolve().as_uri())
        while not self.run(f"document.readyState === 'complete' && location.href === {here}"):
            assert time.monotonic() < end, "the page does not load"
            time.sleep(0.05)

    def picture(self) -> bytes:
        """Return the whole page as PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def printed(self) -> bytes:
        """Return the page as PDF, on the paper that it asks for."""
        found = self.call("Page.printToPDF", preferCSSPageSize=True)
        return base64.b64decode(found["data"])

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release one key, which types a text or nothing."""
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        for how in (down, {"type": "keyUp"}):
            self.call("Input.dispatchKeyEvent", key=key, windowsVirtualKeyCode=code, **how)
