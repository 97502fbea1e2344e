"""An error after something was measured: the result is not lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from golow.records.errors import GolowError


class ErrorWithResult(GolowError):
    """An error that came late: ``result`` holds what had been measured by then."""

    def __init__(self, error: GolowError, result: Any) -> None:
        super().__init__(error.message, error.hint)
        self.result = result


@contextmanager
def keeping(result: Any) -> Iterator[None]:
    """Give the result to a `GolowError` of the block."""
    try:
        yield
    except GolowError as error:
        raise ErrorWithResult(error, result) from error
