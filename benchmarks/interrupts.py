"""What Ctrl-C leaves behind: a comparison that is interrupted at random moments, many times.

    python benchmarks/interrupts.py --times 40

Moments count from golow's first instruction: Python's own start, before it, is not golow's. Every
interrupted comparison has a temporary directory of its own, and all its processes are known by
their environment. An interrupt goes to the whole process group, as from a terminal.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import typer
from rich.console import Console
from rich.table import Table

PROGRAM = "print('begun', flush=True); from golow.__main__ import main; main()"
ARGUMENTS = "compare lenet5 --batch 4 --levels eager --time-limit 3".split()
SECONDS_TO_FIND = 0.005  # for Python, from PROGRAM's import statement to golow's first instruction
EARLY_SECONDS = 0.2  # the command line's own imports
SECONDS_TO_END = 5.0  # for processes, after the command has ended
MARK = "GOLOW_INTERRUPTS"


class Outcome(NamedTuple):
    """What an interrupted comparison left. status: its exit status, negative for a signal, or
    ``done`` for 0 if its record was written before the first interrupt."""

    moment: float
    status: str
    traceback: bool
    processes: int
    folders: int
    said: str


def main(times: int = 40, seed: int = 0) -> None:
    """Interrupt a comparison that many times, and print what was left."""
    # A shell starts background jobs with the signal ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    moments = random.Random(seed)  # noqa: S311 - moments, not secrets
    whole = duration()
    kinds = {  # the latest moment of the first interrupt, and the longest pauses after it
        f"one, in {EARLY_SECONDS} s": [EARLY_SECONDS],
        f"one, in {whole:.0f} s": [whole],
        "two, 1 s apart at most": [whole, 1.0],
        "four, 50 ms apart at most": [whole, 0.05, 0.05, 0.05],
    }
    table = Table(box=None)
    for title in ("interrupts", "runs", "status", "tracebacks", "processes", "folders"):
        table.add_column(title, justify="left" if title == "interrupts" else "right")
    for number, (name, longest) in enumerate(kinds.items()):
        outcomes = []
        for _ in range(number, times, len(kinds)):
            outcomes.append(interrupted([moments.uniform(0, pause) for pause in longest]))
            if is_bad(outcomes[-1]):
                print(f"{name}: {outcomes[-1]}", file=sys.stderr)
        table.add_row(name, *figures(outcomes))
    Console().print(table)


def figures(outcomes: list[Outcome]) -> list[str]:
    """The columns of one kind; statuses with how often each came."""
    statuses = [outcome.status for outcome in outcomes]
    counted = (f"{statuses.count(status)} x {status}" for status in sorted(set(statuses)))
    return [
        str(len(outcomes)),
        ", ".join(counted),
        str(sum(outcome.traceback for outcome in outcomes)),
        str(sum(outcome.processes for outcome in outcomes)),
        str(sum(outcome.folders for outcome in outcomes)),
    ]


def is_bad(outcome: Outcome) -> bool:
    """Whether anything is not as it should be."""
    left = outcome.processes + outcome.folders
    return outcome.traceback or left > 0 or outcome.status not in ("130", "done")


def duration() -> float:
    """Seconds of the comparison without an interrupt, from golow's first instruction."""
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as child:
        began = time.monotonic()
        child.communicate()
        return time.monotonic() - began


def interrupted(pauses: list[float]) -> Outcome:
    """Start the comparison and interrupt it after each of the pauses, in seconds."""
    with tempfile.TemporaryDirectory() as name, started(Path(name)) as child:
        time.sleep(SECONDS_TO_FIND + pauses[0])
        recorded = any(Path(name, "runs").rglob("comparison.json"))
        for pause in [*pauses[1:], 0.0]:
            with suppress(ProcessLookupError):  # it has ended
                os.killpg(child.pid, signal.SIGINT)
            time.sleep(pause)
        output, error = child.communicate()
        return Outcome(
            moment=round(pauses[0], 3),
            status="done" if recorded and child.returncode == 0 else str(child.returncode),
            traceback="Traceback" in output + error,
            processes=remaining(name),
            folders=len(list((Path(name) / "temporary").glob("golow-*"))),
            said=error[-2000:],
        )


def started(folder: Path) -> subprocess.Popen[str]:
    """A comparison that has reached golow's first instruction; its files lie in the folder."""
    (folder / "temporary").mkdir()
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *ARGUMENTS, "--out", str(folder / "runs")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder / "temporary"), MARK: str(folder)},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    return child


def remaining(mark: str) -> int:
    """How many of its processes live on after `SECONDS_TO_END`."""
    deadline = time.monotonic() + SECONDS_TO_END
    while (count := sum(is_marked(process, mark) for process in psutil.process_iter())) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    return count


def is_marked(process: psutil.Process, mark: str) -> bool:
    """Whether the process lives and has inherited the mark."""
    try:
        return bool(
            process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE
        )
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


if __name__ == "__main__":
    typer.run(main)
