"""Progress of a comparison: drawn on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.status import Status


class ProgressDisplay:
    """An observer of a comparison.

    A spinner while something is built or loaded, redrawn once a second. During the race it redraws
    only between rounds: the parent must not take a core from what it measures.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._bar: Bar | None = None
        self._text, self._began = "", 0.0
        self._told = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def stage(self, text: str) -> None:
        """End the previous stage and begin this one."""
        self._finish_stage()
        self._finish_race()
        self._text, self._began = text, time.monotonic()
        if self._console.is_terminal:
            self._status = self._console.status(text, refresh_per_second=1)
            self._status.start()

    def notice(self, text: str) -> None:
        """Print it now, above what is drawn."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        """A round is done."""
        self._finish_stage()
        wide = "" if math.isinf(widest) else f", widest interval {widest:.1%}"
        text = f"racing: round {rounds}{wide}"
        if not self._console.is_terminal:
            if seconds - self._told >= 10:
                self._console.print(f"{text}, {seconds:.0f} of {limit:.0f} s")
                self._told = seconds
            return
        if self._bar is None:
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                TextColumn("of {task.fields[limit]:.0f} s"),
                console=self._console,
                auto_refresh=False,
            )
            self._bar.add_task(text, total=limit, limit=limit)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], description=text, completed=seconds, refresh=True)

    def close(self) -> None:
        """Clear the display."""
        self._finish_stage()
        self._finish_race()

    def _finish_stage(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._text:
            self._console.print(
                f"{self._text} [dim]{time.monotonic() - self._began:.1f} s[/dim]", highlight=False
            )
            self._text = ""

    def _finish_race(self) -> None:
        self._told = 0.0
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
