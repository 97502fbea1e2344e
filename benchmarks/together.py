"""Races that are prepared at the same time, each in a process of its own, and then run in turn, so
that nothing compiles beside a race."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from golow.worker.turn import Turn


class AfterAll(Turn):
    """A turn among several runs that begins when all of them are ready to race.

    folder: the same for all of them. expected: how many they are.
    """

    def __init__(self, folder: Path, expected: int) -> None:
        super().__init__(folder)
        self.folder, self.expected = folder, expected

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait for the others to be ready, then for a turn."""
        self.ready()
        while len(list(self.folder.glob("ready-*"))) < self.expected:
            time.sleep(0.1)
        with super().alone():
            yield

    def ready(self) -> None:
        """Tell the others that this run will load nothing more, or has ended."""
        (self.folder / f"ready-{os.getpid()}").touch()


class RacesInTurn:
    """An observer of `golow.compare` that lets its race begin when all runs are ready, and not
    beside another race, for runs in which no `Turn` can take part. It holds its turn until its
    process ends.

    folder, expected: as of `AfterAll`.
    """

    def __init__(self, folder: Path, expected: int) -> None:
        self._turn, self._held = AfterAll(folder, expected), ExitStack()
        self.ready = self._turn.ready
        self._begun = time.monotonic()

    def stage(self, text: str) -> None:
        """Print the stage; wait before the race."""
        print(f"{time.monotonic() - self._begun:6.1f} s: {text}", flush=True)
        if text == "calibrating the race":
            self._held.enter_context(self._turn.alone())

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        """Do nothing."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options with which `run_group` starts each of its runs."""
    parser.add_argument("--turns", type=Path, help="folder of all runs that share the GPU")
    parser.add_argument("--expected", type=int, help=argparse.SUPPRESS)


def turn(options: argparse.Namespace) -> Turn:
    """The turn of a run: after all others of its group if `run_group` started it, among those that
    share its folder if one is named; otherwise there is nothing to wait for."""
    grouped = options.expected is not None
    return AfterAll(options.turns, options.expected) if grouped else Turn(options.turns)


def run_in_groups(names: Sequence[str], size: int, option: str) -> bool:
    """Start this program once for each name, which becomes the value of that option, in groups of
    that size; False if one failed."""
    groups = [names[first : first + size] for first in range(0, len(names), size)]
    ended = [run_group([("--together", "0", option, name) for name in group]) for group in groups]
    return all(ended)


def run_group(changes: Sequence[Sequence[str]]) -> bool:
    """Start this program once for each of these additions to its options; False if one failed. An
    interrupt is passed on to all of them, and ends the group when they have ended."""
    with tempfile.TemporaryDirectory() as turns:
        shared = ("--turns", turns, "--expected", str(len(changes)))
        # In groups of their own, so that Ctrl-C at a terminal does not reach them twice.
        runs = [
            subprocess.Popen([sys.executable, *sys.argv, *shared, *more], process_group=0)
            for more in changes
        ]
        try:
            statuses = [run.wait() for run in runs]
        except KeyboardInterrupt:
            for run in runs:
                run.send_signal(signal.SIGINT)
            for run in runs:
                run.wait()
            raise
    return not any(statuses)
