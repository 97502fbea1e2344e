"""Traces for tests, as a profiler writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from golow.programs.profiling.trace import Trace, read_trace


def event(name: str, category: str, start: float, end: float, **details: Any) -> dict[str, Any]:
    """An event from start to end, in microseconds; ``lane`` among the details is its thread."""
    lane = details.pop("lane", "main")
    return {
        "ph": "X", "name": name, "cat": category, "pid": 1, "tid": lane, "ts": start,
        "dur": end - start, "args": details,
    }  # fmt: skip


def step(number: int, start: float, end: float) -> dict[str, Any]:
    return event(f"golow step {number}", "user_annotation", start, end)


def memory(moment: float, size: int, device: int = 0, **details: Any) -> dict[str, Any]:
    """An allocation of that many bytes, or a release; ``address`` among the details."""
    found = {"Bytes": size, "Device Type": device}
    found |= {NAMES[name]: value for name, value in details.items()}
    return {"ph": "i", "name": "[memory]", "pid": 1, "tid": "main", "ts": moment, "args": found}


NAMES = {"address": "Addr", "allocated": "Total Allocated", "reserved": "Total Reserved"}


def written(
    folder: Path, events: Sequence[dict[str, Any]], snapshots: Sequence[dict[str, Any]] = ()
) -> Trace:
    """The trace of these events, written and read. snapshots: of the memory after iterations."""
    file = folder / "trace.json"
    file.write_text(json.dumps({"traceEvents": list(events), "golow memory": list(snapshots)}))
    return read_trace(file)
