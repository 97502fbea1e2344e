"""Progress of a training: drawn on a terminal, one line per epoch elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

from golow.report.progress import Progress
from golow.report.units import seconds_text

if TYPE_CHECKING:
    from golow.training.learner import Standing


class TrainingProgress(Progress):
    """An observer of a training: stages as in a comparison, a bar for the current run."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._run: tuple[Bar, TaskID] | None = None

    def stage(self, text: str) -> None:
        """End the previous stage and begin this one."""
        self._finish_run()
        super().stage(text)

    def counted(self, what: str, done: int, total: int) -> None:
        """`done` of `total` samples are prepared."""
        self._draw(f"preparing {what}", f"{done:,} of {total:,} samples", done, total)

    def trained(self, standing: Standing) -> None:
        """A piece of an epoch, or an epoch, is done."""
        self._finish_stage()
        name, told = title(standing), standing_text(standing)
        whole = standing.batch == standing.batches
        if self._console.is_terminal:
            done = (standing.epoch - 1) * standing.batches + standing.batch
            self._draw(name, told, done, standing.epochs * standing.batches)
            if whole and standing.epoch == standing.epochs:
                self._finish_run()
                self._console.print(f"{name}  {told}", highlight=False, soft_wrap=True)
        elif whole:
            self._console.print(f"{name}  {told}", highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Clear the display."""
        self._finish_run()
        super().close()

    def _draw(self, name: str, told: str, done: int, total: int) -> None:
        if not self._console.is_terminal:
            return
        self._finish_stage()
        if self._run is None:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(20),
                TextColumn("{task.fields[told]}"),
            )
            bar = Bar(*columns, console=self._console, auto_refresh=False, transient=True)
            self._run = bar, bar.add_task(name, total=total, told=told)
            bar.start()
        bar, task = self._run
        bar.update(task, description=name, completed=done, total=total, told=told, refresh=True)

    def _finish_run(self) -> None:
        if self._run is not None:
            self._run[0].stop()
            self._run = None


def title(standing: Standing) -> str:
    """Which run it is."""
    start = f"{standing.initialisation}, " if standing.initialisation != "default" else ""
    return f"{standing.level} ({start}seed {standing.seed})"


def standing_text(standing: Standing) -> str:
    """Epoch, loss, accuracy, speed and, before the end, the remaining time."""
    accuracy = "" if standing.accuracy is None else f", accuracy {standing.accuracy:.2%}"
    left = f", {seconds_text(standing.seconds_left)} left" if standing.seconds_left > 0 else ""
    return (
        f"epoch {standing.epoch}/{standing.epochs}, loss {standing.loss:.4f}{accuracy}, "
        f"{standing.samples_per_second:,.0f} samples/s{left}"
    )
