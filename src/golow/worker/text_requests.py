"""Requests to a worker that generates texts; ``docs/extend/protocol.md`` defines them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from golow.worker.clock import collector_as_timed
from golow.worker.refusals import UnknownRequest
from golow.worker.text_program import (
    GeneratingProgram,
    Moved,
    ReplayingProgram,
    ReplayReport,
    TextReport,
)


def text(program: object, request: dict[str, Any]) -> dict[str, Any]:
    """Generate texts, and time each of their tokens until it is on the host."""
    program = _generating(program)
    program.prompt(request["prompt"], request["draws"])
    with collector_as_timed():
        begin = time.perf_counter_ns()
        tokens = [program.first()]
        times = [begin, time.perf_counter_ns()]
        for _ in range(int(request["tokens"]) - 1):
            tokens.append(program.following())
            times.append(time.perf_counter_ns())
    spent = [after - before for before, after in pairwise(times)]
    report = TextReport(
        prefill_ns=spent[0], token_ns=tuple(spent[1:]), tokens=tuple(zip(*tokens, strict=True))
    )
    answer: dict[str, Any] = msgspec.to_builtins(report)
    return answer


def force(program: object, request: dict[str, Any]) -> dict[str, Any]:
    """Write the logits after given tokens."""
    _generating(program).force(
        request["tokens"], int(request["prompt"]), request["positions"], Path(request["file"])
    )
    return {}


def replay(program: object, request: dict[str, Any]) -> dict[str, Any]:
    """Judge tokens that others generated."""
    found = _replaying(program).replay(request["tokens"], int(request["prompt"]), request["draws"])
    errors = tuple(tuple(e if math.isfinite(e) else None for e in one) for one in found)
    answer: dict[str, Any] = msgspec.to_builtins(ReplayReport(errors=errors))
    return answer


def move(program: object, request: dict[str, Any]) -> dict[str, Any]:
    """Let the reference be moved."""
    _replaying(program).move(msgspec.convert(request["moved"], Moved | None))
    return {}


def _generating(program: object) -> GeneratingProgram:
    if not isinstance(program, GeneratingProgram):
        raise UnknownRequest("this worker does not generate texts")
    return program


def _replaying(program: object) -> ReplayingProgram:
    if not isinstance(program, ReplayingProgram):
        raise UnknownRequest("this worker does not check the texts of other workers")
    return program


HANDLERS: dict[str, Callable[[object, dict[str, Any]], dict[str, Any]]] = {
    "text": text,
    "force": force,
    "replay": replay,
    "move": move,
}
