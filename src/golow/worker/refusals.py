"""Answers of a worker that cannot fulfil a request."""

from __future__ import annotations

import traceback
from typing import Any

from golow.records.errors import GolowError, Unsupported

# Messages of failed allocations: torch reports one as an ordinary RuntimeError. The last is from
# NVIDIA's libraries.
OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "bad_alloc",
    "alloc_failed",
)

# Characters of such a message that become the reason; the log has all of it.
SENTENCES = 160


class UnknownRequest(Exception):
    """The program does not support a request that golow knows."""


def refusal(kind: str, message: str, node: str = "", module: str = "") -> dict[str, Any]:
    """Return an answer of one of the protocol's kinds."""
    return {"ok": False, "error": kind, "message": message, "node": node, "module": module}


def refused(error: Exception) -> dict[str, Any]:
    """Return the answer to a request that ended with this error; an unexpected error goes into the
    log."""
    if isinstance(error, Unsupported):
        return refusal("unsupported", error.reason, error.node, error.module)
    if isinstance(error, UnknownRequest):
        return refusal("unknown_request", str(error))
    if isinstance(error, MemoryError):
        return refusal("out_of_memory", "Python could not allocate memory")
    if isinstance(error, GolowError):
        return refusal("failed", error.message)
    traceback.print_exception(error)
    if any(words in str(error).lower() for words in OUT_OF_MEMORY):
        return refusal("out_of_memory", _cut(_brief(error)))
    return refusal("failed", _brief(error))


def _brief(error: Exception) -> str:
    """First and last line: a traceback inside a message belongs in the log."""
    lines = str(error).strip().splitlines() or [""]
    text = lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-1]}"
    return f"{type(error).__name__}: {text}"


def _cut(text: str) -> str:
    """Its first sentences: PyTorch's continue with memory statistics and advice."""
    if len(text) <= SENTENCES:
        return text
    whole, dot, _ = text[:SENTENCES].rpartition(". ")
    return whole + dot.strip() if dot else text
