"""Chromium, driven by its DevTools protocol: opens a page, runs scripts in it, hears what goes wrong."""

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

WAIT_S = 120.0
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """The path of a Chromium, if there is one; `BRANCHWISE_BROWSER` names another."""
    return os.environ.get("BRANCHWISE_BROWSER") or next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One page of a running Chromium. `errors` are uncaught exceptions and what was logged as an error or a
    warning, `requests` the addresses asked for besides the page's own and `data:`."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._ids = itertools.count(1)
        self.errors: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One DevTools command. Raises `RuntimeError` where it fails, `TimeoutError` without an answer."""
        number = next(self._ids)
        self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._connection.recv(WAIT_S))
            if message.get("id") != number:
                self._hear(message)
            elif "error" in message:
                raise RuntimeError(f"{method}: {message['error']}")
            else:
                return message["result"]

    def open(self, address: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load an address and wait until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.protocol !== 'about:'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page, promises awaited. Raises `RuntimeError` on exceptions."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, script: str) -> None:
        """Until an expression is true. Raises `TimeoutError`."""
        until = time.monotonic() + WAIT_S
        while not self.run(f"!!({script})"):  # an element itself would be sent by value
            if time.monotonic() > until:
                raise TimeoutError(f"still not true: {script}")
            time.sleep(0.02)

    def picture(self, path: Path, selector: str | None = None, scale: float = 1) -> None:
        """A PNG of the window, or of one element, also where it stands beyond the window."""
        clip = {}
        if selector is not None:
            box = self.run(
                f"(() => {{ const b = document.querySelector({selector!r}).getBoundingClientRect();"
                " return [b.x + scrollX, b.y + scrollY, b.width, b.height]; })()"
            )
            clip = {"clip": {**dict(zip(("x", "y", "width", "height"), box, strict=True)), "scale": scale}}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=bool(clip), **clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _hear(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning", "assert"):
                self.errors.append(json.dumps(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                entry = parameters["entry"]
                self.errors.append(" ".join(filter(None, (entry["text"], entry.get("url")))))
            case "Network.requestWillBeSent":
                address = parameters["request"]["url"]
                if address != parameters["documentURL"] and not address.startswith("data:"):
                    self.requests.append(address)


@contextlib.contextmanager
def browser(program: str, folder: Path) -> Iterator[Browser]:
    """A headless Chromium with an empty profile in `folder`, ended afterwards. Raises `TimeoutError`."""
    # As root, in a container, Chromium's own sandbox does not start.
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
    process = subprocess.Popen(
        [program, *options, "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port = _port(folder, process)
        with connect(f"ws://127.0.0.1:{port}{_page(port)}", max_size=None) as connection:
            yield Browser(connection)
    finally:
        process.terminate()
        process.wait(WAIT_S)


def _port(folder: Path, process: "subprocess.Popen[bytes]") -> int:
    """The port that Chromium chose and wrote down."""
    until = time.monotonic() + WAIT_S
    written = folder / "DevToolsActivePort"
    while not (written.is_file() and written.read_text().strip()):
        if process.poll() is not None or time.monotonic() > until:
            raise TimeoutError(f"{process.args}: no DevTools port (status {process.returncode})")
        time.sleep(0.02)
    return int(written.read_text().split()[0])


def _page(port: int) -> str:
    """The path of the first page's DevTools socket."""
    from urllib.request import urlopen

    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=WAIT_S) as answer:
            pages = [target for target in json.load(answer) if target["type"] == "page"]
        if pages:
            return "/devtools/page/" + pages[0]["id"]
        time.sleep(0.02)
    raise TimeoutError("Chromium has no page")
