"""LoadGen's logs of a run: its verdict, every request's latency, and the logged answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

DETAIL, TRACE, ACCURACY = (
    "mlperf_log_detail.txt",
    "mlperf_log_trace.json",
    "mlperf_log_accuracy.json",
)
MARK = ":::MLLOG "
SAMPLE = re.compile(
    rb'"name":"Sample".{0,40}?"ph":"b".{0,80}?"ts":([\d.]+).{0,20}?"sample_seq":(\d+),"query_seq":(\d+)'
    rb'.{0,40}?"issue_start_ns":(-?\d+),"complete_ns":(\d+)'
)
FIRST_TOKEN = re.compile(
    rb'"name":"Token_Latency".{0,40}?"ts":([\d.]+).{0,20}?"issue_delay":(-?\d+),"issue_to_done":(\d+)'
)
TOO_MANY = "Too many outstanding"
EARLY_STOPPING = tuple(f"early_stopping_{of}result" for of in ("", "ttft_", "tpot_"))


class Measured(NamedTuple):
    """Latencies of the requests of a run, in the order in which they were issued: nanoseconds from
    the schedule to the answer. arrivals: nanoseconds of each one's schedule after the first. late:
    nanoseconds from the schedule until it was issued. groups: the number of the query that each
    belongs to. first_tokens: nanoseconds from the schedule to the first token, in the server
    scenario of texts; else empty.
    """

    arrivals: tuple[int, ...]
    latencies: tuple[int, ...]
    late: tuple[int, ...]
    groups: tuple[int, ...]
    first_tokens: tuple[int, ...] = ()

    def by_group(self) -> Measured:
        """Latencies of whole queries: a group of streams is answered when its last sample is."""
        last: dict[int, int] = {}
        for place, group in enumerate(self.groups):
            if group not in last or self.latencies[place] > self.latencies[last[group]]:
                last[group] = place
        places = list(last.values())
        return Measured(*(tuple(values[place] for place in places) for values in self[:-1]))


class Said(NamedTuple):
    """LoadGen's results by its own names, and its errors."""

    values: dict[str, Any]
    errors: tuple[str, ...]

    @property
    def valid(self) -> bool:
        """True if LoadGen calls the run valid."""
        return bool(self.values.get("result_validity") == "VALID")

    @property
    def early_stopping(self) -> str:
        """Its words on early stopping."""
        words = " ".join(str(self.values.get(key, "")) for key in EARLY_STOPPING)
        return " ".join(words.replace("*", " ").split())

    @property
    def overloaded(self) -> bool:
        """True if it ended the run because too many requests waited."""
        return any(TOO_MANY in error for error in self.errors)


def said(folder: Path) -> Said:
    """The detail log of a run."""
    values, errors = {}, []
    for entry in _entries(folder / DETAIL):
        key, value = entry["key"], entry["value"]
        if entry.get("metadata", {}).get("is_error"):
            errors.append(str(value))
        else:
            values[key] = value
    return Said(values, tuple(errors))


def _entries(file: Path) -> Iterator[dict[str, Any]]:
    for text in file.read_text(errors="replace").splitlines():
        if text.startswith(MARK):
            try:
                yield json.loads(text.removeprefix(MARK))
            except json.JSONDecodeError:  # a build's commit message may have any characters
                continue


def measured(folder: Path) -> Measured:
    """The latencies in the trace of a run."""
    trace = (folder / TRACE).read_bytes()
    rows = [
        (int(number), float(at) * 1e3, int(complete), int(late), int(group))
        for at, number, group, late, complete in SAMPLE.findall(trace)
    ]
    rows.sort()
    first = min((row[1] for row in rows), default=0.0)
    return Measured(
        tuple(round(row[1] - first) for row in rows),
        tuple(row[2] for row in rows),
        tuple(row[3] for row in rows),
        tuple(row[4] for row in rows),
        _first_tokens(trace),
    )


def _first_tokens(trace: bytes) -> tuple[int, ...]:
    """Nanoseconds to the first token of each text, in the order of their schedule."""
    found = sorted(
        (float(at), int(delay) + int(done)) for at, delay, done in FIRST_TOKEN.findall(trace)
    )
    return tuple(taken for _, taken in found)


def answers(folder: Path) -> list[tuple[int, bytes]]:
    """The logged answers: the index of the sample, and the bytes."""
    entries = json.loads((folder / ACCURACY).read_text() or "[]")
    return [(int(entry["qsl_idx"]), bytes.fromhex(entry["data"])) for entry in entries]


def seconds_of(found: Measured) -> float:
    """From the first arrival to the last answer."""
    if not found.latencies:
        return 0.0
    ends = np.asarray(found.arrivals) + np.asarray(found.latencies)
    return float(ends.max()) / 1e9
