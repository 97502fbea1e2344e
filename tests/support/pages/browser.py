"""An installed Chromium, driven by chromedriver's own protocol: JSON over a local port."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MISSING = "needs chromedriver and Chromium (Debian: apt-get install chromium chromium-driver)"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def is_installed() -> bool:
    return bool(shutil.which("chromedriver")) and any(map(shutil.which, BROWSERS))


class Browser:
    """One window."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}/session"
        binary = next(path for name in BROWSERS if (path := shutil.which(name)))
        options = {"binary": binary, "args": ARGUMENTS}
        always = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.session = self._send("POST", "", {"capabilities": {"alwaysMatch": always}})[
            "sessionId"
        ]

    def open(self, page: Path) -> float:
        """Open the page from disk; returns the seconds until its script has drawn everything."""
        self.log()
        began = time.monotonic()
        self._send("POST", "/url", {"url": page.resolve().as_uri()})
        assert self.run("return document.documentElement.dataset.ready") == "yes"
        return time.monotonic() - began

    def run(self, script: str, *arguments: Any) -> Any:
        """What the body of a function returns, in the page."""
        return self._send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_later(self, script: str) -> Any:
        """What a script hands to the function that is its last argument."""
        return self._send("POST", "/execute/async", {"script": script, "args": []})

    def log(self) -> list[str]:
        """What the console has said since it was last asked."""
        return [entry["message"] for entry in self._send("POST", "/se/log", {"type": "browser"})]

    def tell(self, command: str, **parameters: Any) -> Any:
        """A command of Chromium's own protocol, such as for a width or dark mode."""
        body = {"cmd": command, "params": parameters}
        return self._send("POST", "/goog/cdp/execute", body)

    def point(self, selector: str) -> None:
        """Move the mouse to the middle of the first element that the selector finds."""
        x, y = self.run(
            "const one = document.querySelector(arguments[0]);"
            "one.scrollIntoView({ block: 'nearest' });"
            "const at = one.getBoundingClientRect();"
            "return [at.x + at.width / 2, at.y + at.height / 2]",
            selector,
        )
        self.tell("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """Press a key, such as Tab or Escape, and let go of it."""
        codes = {"Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39}
        for kind in ("rawKeyDown", "keyUp"):
            self.tell(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
            )

    def printed(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode(self._send("POST", "/print", {}))

    def close(self) -> None:
        self._send("DELETE", "", None)

    def _send(self, method: str, path: str, body: Any) -> Any:
        root = self.root if not hasattr(self, "session") else f"{self.root}/{self.session}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(root + path, data, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error


@contextmanager
def browser() -> Iterator[Browser]:
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert driver.stdout is not None
        lines = (re.search(r"successfully on port (\d+)", line) for line in driver.stdout)
        port = next(int(found[1]) for found in lines if found)
        one = Browser(port)
        yield one
        one.close()
    finally:
        driver.terminate()
        driver.wait()
