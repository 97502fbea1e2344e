"""Errors after something was measured, which carry the partial result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from golow.records.errors import GolowError


class ErrorWithResult(GolowError):
    """An error after measurements: ``result`` has the partial results."""

    def __init__(self, error: GolowError, result: Any) -> None:
        super().__init__(error.message, error.hint, python_hint=error.python_hint)
        self.result = result


class InterruptedWithResult(KeyboardInterrupt):
    """Ctrl-C after measurements: ``result`` has the partial results."""

    def __init__(self, result: Any) -> None:
        super().__init__(
            "this exception's result has the partial results; at a prompt or in a notebook: "
            "sys.last_value.result"
        )
        self.result = result


@contextmanager
def keeping(result: Any) -> Iterator[None]:
    """Attach the result to a `GolowError` of the block."""
    try:
        yield
    except GolowError as error:
        raise ErrorWithResult(error, result) from error
