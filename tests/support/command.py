"""The command line in the test's own process, which has imported torch already. For what a command
says and writes; tests of its process (signals, imports, its end) start one."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from golow import cli


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    status: int
    output: str
    error: str


def golow(*arguments: str, folder: Path | None = None) -> Ended:
    """Run ``golow`` with these arguments, in that folder or the current one."""
    output, error, status = io.StringIO(), io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(output),
        redirect_stderr(error),
    ):
        if folder is not None:
            patch.chdir(folder)
        patch.setattr(sys, "argv", ["golow", *arguments])
        try:
            cli.main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
    return Ended(status, output.getvalue(), error.getvalue())
