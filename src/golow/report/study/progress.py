"""Progress of a study: one bar on a terminal, and a line for each finished cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from golow.report.study.table import cell_text, outlook_text, reason_text
from golow.report.units import seconds_text

if TYPE_CHECKING:
    from golow.programs.study.forecast import Outlook
    from golow.programs.study.study_record import Cell, CellRecord

STYLES = {"done": "green", "unclear": "yellow", "failed": "red", "skipped": "dim"}


class StudyProgressDisplay:
    """An observer of a study. The bar is redrawn only when something has happened: the study must
    not take a core from what it measures."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: tuple[Bar, TaskID] | None = None
        self._left = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Clear the display."""
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None

    def outlook(self, outlook: Outlook) -> None:
        """Called with the forecast before the first cell."""
        there = outlook.cells - outlook.left
        self._say(f"{outlook.cells} cells, {there} already measured; {outlook_text(outlook)}")
        if outlook.left and self._console.is_terminal:
            bar = Bar(
                BarColumn(16),
                TextColumn("{task.completed:.0f} of {task.total:.0f} {task.description}"),
                console=self._console,
                auto_refresh=False,
                transient=True,
            )
            self._bar = bar, bar.add_task("", total=outlook.cells, completed=there)
            bar.start()
        self._left = left_text(outlook)

    def waiting(self, device: str, holder: str) -> None:
        """Another study holds the device."""
        self._say(f"waiting for {device}: {holder} is measuring on it")

    def began(self, cell: Cell) -> None:
        """A cell is being measured."""
        self._draw(cell_text(cell))

    def stage(self, cell: Cell, text: str) -> None:
        """Called with the cell's current stage."""
        self._draw(f"{cell_text(cell)}: {text}")

    def lost(self, cell: Cell, reason: str) -> None:
        """Something else ended a cell's process; it is measured again."""
        self._say(f"again   {cell_text(cell)}: {reason_text(reason)}")

    def ended(self, record: CellRecord, outlook: Outlook) -> None:
        """A cell has its record; called with the forecast of the rest."""
        done = outlook.cells - outlook.left
        self._left = left_text(outlook)
        line = Text(f"{record.state:8}", style=STYLES[record.state])
        line.append(f"{cell_text(record.cell)} ", style="default not bold")
        if record.seconds:
            line.append(f"{seconds_text(record.seconds)} ", style="dim not bold")
        if record.reason:
            line.append(f"{reason_text(record.reason)} ", style="default not bold")
        if record.out_of_memory and record.is_measured:
            line.append(f"out of memory: {', '.join(record.out_of_memory)} ", style="yellow")
        if not self._console.is_terminal:
            left = f", {self._left}" if self._left else ""
            line.append(f"({done} of {outlook.cells}{left})")
        self._console.print(line, soft_wrap=True)
        self._draw("", done)

    def _draw(self, text: str, done: int | None = None) -> None:
        if self._bar is not None:
            bar, task = self._bar
            text = ", ".join(part for part in (text, self._left) if part)
            bar.update(task, description=text, completed=done, refresh=True)

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


def left_text(outlook: Outlook) -> str:
    """The remaining time; empty if nothing is left."""
    return f"about {seconds_text(outlook.seconds)} left" if outlook.left else ""
