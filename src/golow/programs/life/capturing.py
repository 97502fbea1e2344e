"""How long a capture of the graph takes, in a separate process."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from golow.records.errors import GolowError
from golow.records.record import Record
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle
from golow.workload.import_path import module_command

LOG_LINES = 5


class CaptureReport(Record, frozen=True, kw_only=True):
    """Report of the capturing process: seconds of the capture alone, or why there is none."""

    seconds: float = 0.0
    failed: str = ""


class Capture(NamedTuple):
    """Seconds of the capture alone, and of its whole process with Python's start and imports."""

    alone: float
    whole: float


def time_capture(bundle: Bundle, limit: float) -> Capture:
    """Capture the bundle's graph once more, within this many seconds; raises `GolowError` if it
    fails."""
    with tempfile.TemporaryDirectory(prefix="golow-capture-", dir=bundle.folder.parent) as folder:
        report, log = Path(folder) / "report.json", Path(folder) / "log"
        module = "golow.programs.life.capture_process"
        command = module_command(module, str(bundle.folder), str(report))
        began = time.perf_counter()
        status = _run(command, bundle.workload.threads, log, limit)
        whole = time.perf_counter() - began
        try:
            found = msgspec.json.decode(report.read_bytes(), type=CaptureReport)
        except OSError:
            end = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise GolowError(f"the capturing process ended with status {status}:\n{end}") from None
    if found.failed:
        raise GolowError(found.failed)
    return Capture(found.seconds, whole)


def _run(command: Sequence[str], threads: int, log: Path, limit: float) -> int:
    with log.open("wb") as file:
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=worker_environment(command[0], threads, {}),
                start_new_session=True,  # Ctrl-C does not reach it; `run` kills it then
                timeout=limit,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise GolowError(f"the capture took more than {limit:.0f} s") from error
