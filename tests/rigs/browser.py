"""A real Chromium without a window, driven over its own protocol."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless=new",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)
_START_S = 60.0
_ANSWER_S = 30.0


def chromium() -> str | None:
    """Return the program; None where there is none."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


class Page:
    """One tab.

    Attributes:
        complaints: What went wrong in it: exceptions, refused sources, failed requests.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self.complaints: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the answer to one command of the protocol."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=_ANSWER_S))
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def open(self, url: str) -> None:
        """Go to an address, and wait until what is there has been read."""
        self.value_of("window.isOld = true")
        self.call("Page.navigate", url=url)
        self.wait_for("!window.isOld && document.readyState === 'complete'")

    def value_of(self, script: str) -> Any:
        """Return what a script comes to."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    def wait_for(self, script: str, limit_s: float = 20.0) -> None:
        """Wait until what a script says is true."""
        deadline_s = time.monotonic() + limit_s
        while time.monotonic() < deadline_s:
            if self.value_of(f"!!({script})"):
                return
            time.sleep(0.05)
        raise AssertionError(f"never true: {script}\n{self.value_of('document.body.innerText')}")

    def text_of(self, selector: str) -> str:
        """Return what people read in a place."""
        return self.value_of(f"document.querySelector({json.dumps(selector)}).innerText")

    def look(self, *, width: int, is_dark: bool = False, is_phone: bool = False) -> None:
        """Look at it at a width, by day or by night."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=2 if is_phone else 1,
            mobile=is_phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def press(self, key: str) -> None:
        """Press a key such as ``Tab`` or ``Enter``."""
        text = {"text": {"Enter": "\r", " ": " "}[key]} if key in ("Enter", " ") else {}
        code = {"Tab": 9, "Enter": 13, " ": 32}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text
            )

    def write(self, text: str) -> None:
        """Write where the focus is."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path, most_height: int) -> None:
        """Keep the page as a picture, from its top down to a height."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        height = min(most_height, size["height"])
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1}
        answer = self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
        )
        path.write_bytes(base64.b64decode(answer["data"]))

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message["method"] == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:500])
        elif message["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])


@contextmanager
def browsing(profile: Path) -> Iterator[Page]:
    """Open a tab of a new Chromium, which ends with the block.

    Args:
        profile: An empty folder of its own.
    """
    program = chromium()
    assert program is not None, "there is no Chromium here"
    flags = [*_FLAGS, f"--user-data-dir={profile}"]
    if os.geteuid() == 0:
        # Its sandbox refuses to run for root, as containers do everything.
        flags.append("--no-sandbox")
    process = subprocess.Popen(
        [program, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with connect(_address(profile, process), max_size=None, proxy=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        process.wait(20)


def _address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """Return where the first tab listens."""
    told = profile / "DevToolsActivePort"
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s and process.poll() is None:
        if told.exists() and (lines := told.read_text().splitlines()):
            tabs = httpx.get(f"http://127.0.0.1:{lines[0]}/json/list", trust_env=False).json()
            pages = [tab for tab in tabs if tab["type"] == "page"]
            if pages:
                return pages[0]["webSocketDebuggerUrl"]
        time.sleep(0.05)
    raise RuntimeError(f"Chromium did not start (code {process.poll()})")
