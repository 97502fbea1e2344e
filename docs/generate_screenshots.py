"""Takes the screenshots of the report pages in ``docs/reports``, with an installed Chromium.

PYTHONPATH=tests python docs/generate_screenshots.py
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import NamedTuple

from support.pages.browser import Browser, browser

REPORTS = Path(__file__).parent / "reports"
WIDE = 1280


class Screenshot(NamedTuple):
    """page, file: their names without the ending. steps: a script that brings the page to what is
    shown. high: pixels from the top; None for all of it."""

    page: str
    file: str
    steps: str = ""
    high: int | None = None


CELL_AND_SURFACES = """
for (const one of document.querySelectorAll('section')) {
  if (!['r0-1-fastest', 'r0-1-surfaces'].includes(one.id)) one.remove();
}
document.querySelectorAll('#r0-1-fastest .cell')[17].click();
document.activeElement.blur();
for (const one of document.querySelectorAll('#r0-1-surfaces .legend button')) {
  if (['torchscript', 'libtorch'].includes(one.textContent)) one.click();
}
"""
SCREENSHOTS = (
    Screenshot("resnet50", "resnet50", high=2150),
    Screenshot("levental-2020", "levental-2020", CELL_AND_SURFACES),
)


def take(window: Browser, shot: Screenshot) -> Path:
    """Write the picture, in the light mode."""
    window.open(REPORTS / f"{shot.page}.html")
    if shot.steps:
        window.run(shot.steps)
    whole = int(window.run("return document.documentElement.scrollHeight"))
    clip = {"x": 0, "y": 0, "width": WIDE, "height": shot.high or whole, "scale": 1}
    taken = window.tell("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
    file = REPORTS / f"{shot.file}.png"
    file.write_bytes(base64.b64decode(taken["data"]))
    return file


if __name__ == "__main__":
    with browser() as window:
        size = {"width": WIDE, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        light = {"name": "prefers-color-scheme", "value": "light"}
        window.tell("Emulation.setDeviceMetricsOverride", **size)
        window.tell("Emulation.setEmulatedMedia", features=[light])
        for shot in SCREENSHOTS:
            print(take(window, shot))
