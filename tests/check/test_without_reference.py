"""The advice about a reference or an eager run that failed fits the way in which its worker ended.
The workers are real processes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from golow.check.without_reference import SMALLER, without_reference
from golow.records.errors import WorkerFailure
from golow.worker.client import Worker
from golow.worker.time_limits import Limits

DOCTOR = "golow doctor"


def of_command(*command: str) -> Sequence[str]:
    """The message and the hint about a worker with this command."""
    with (
        pytest.raises(WorkerFailure) as failed,
        Worker("eager", command, threads=1, limits=Limits(load=0.2)) as worker,
    ):
        worker.load(Path("bundle"))
    error = without_reference(failed.value)
    return error.message, error.hint


def test_a_module_that_is_missing_is_named() -> None:
    message, hint = of_command(sys.executable, "-c", "import no_module_of_this_name")
    assert message.endswith("No module named 'no_module_of_this_name'")
    assert DOCTOR in hint and SMALLER not in hint


@pytest.mark.parametrize("signal", ["SEGV", "ABRT"])
def test_a_worker_that_crashed(signal: str) -> None:
    message, hint = of_command("/bin/sh", "-c", f"kill -{signal} $$")
    assert f"ended by SIG{signal}" in message
    assert DOCTOR in hint and SMALLER not in hint


def test_a_worker_that_was_killed() -> None:
    _, hint = of_command("/bin/sh", "-c", "kill -KILL $$")
    assert hint.startswith("golow did not end it") and hint.endswith(SMALLER)


def test_a_program_that_is_not_there() -> None:
    message, hint = of_command("/no/such/program")
    assert "/no/such/program did not start: " in message and DOCTOR in hint


def test_a_worker_that_does_not_answer() -> None:
    _, hint = of_command("/bin/sh", "-c", "sleep 60")
    assert hint == SMALLER


def test_a_worker_that_refuses_states_the_cause_itself() -> None:
    answer = '{"ok": false, "error": "failed", "message": "shapes cannot be multiplied"}'
    message, hint = of_command("/bin/sh", "-c", f"read request; echo '{answer}'; sleep 60")
    assert message.endswith("no level can be checked: shapes cannot be multiplied")
    assert hint == ""
