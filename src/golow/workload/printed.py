"""Redirect a model's prints to standard error, because standard output carries golow's output."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def printed_to_stderr() -> Iterator[None]:
    """Send there what Python code prints within the block."""
    with redirect_stdout(sys.stderr):
        yield
