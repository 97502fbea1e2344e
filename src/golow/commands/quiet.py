"""Standard output carries golow's own output and nothing else: while a command computes, what the
model prints goes to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2  # file descriptors


@contextmanager
def prints_to_stderr() -> Iterator[None]:
    """Send all that Python code, C code and other programs print in the block to standard error."""
    sys.stdout.flush()
    own = os.dup(STANDARD_OUTPUT)
    try:
        os.dup2(STANDARD_ERROR, STANDARD_OUTPUT)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(own, STANDARD_OUTPUT)
        os.close(own)


def open_streams() -> None:
    """Let standard streams that the caller closed lead nowhere: Python has None for them, and a
    file that golow opens would get their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)
            os.dup2(handle, number)
            os.set_inheritable(number, True)
            if handle > STANDARD_ERROR:
                os.close(handle)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
