"""Writes a trace of iterations in Chrome's trace event format, in torch.profiler's words.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from golow.storage.files import write_whole


def event(
    name: str, category: str, lane: str, start: int, end: int, details: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Something that happened on a lane, from start to end in nanoseconds."""
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": 0,
        "tid": lane,
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": details or {},
    }


def write_events(
    events: Sequence[dict[str, Any]], file: Path, device: dict[str, int] | None = None
) -> None:
    """Write the trace of these events. device: its properties, by torch.profiler's names."""
    properties = [] if device is None else [device]
    trace = {"deviceProperties": properties, "traceEvents": events}
    write_whole(file, msgspec.json.encode(trace))
