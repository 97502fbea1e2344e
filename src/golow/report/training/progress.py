"""Progress of a training run: drawn on a terminal, one line per epoch elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

from golow.report.progress import ProgressDisplay
from golow.report.units import seconds_text

if TYPE_CHECKING:
    from golow.programs.training.observer import TrainingProgress


class TrainingProgressDisplay(ProgressDisplay):
    """An observer of a training run: stages as in a comparison, a bar for the current run."""

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

    def trained(self, progress: TrainingProgress) -> None:
        """A piece of an epoch, or an epoch, is done."""
        self._finish_stage()
        name, told = title(progress), progress_text(progress)
        whole = progress.batch == progress.batches
        if self._console.is_terminal:
            done = (progress.epoch - 1) * progress.batches + progress.batch
            self._draw(name, told, done, progress.epochs * progress.batches)
            if whole and progress.epoch == progress.epochs:
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


def title(progress: TrainingProgress) -> str:
    """Which run it is."""
    start = f"{progress.initialisation}, " if progress.initialisation != "default" else ""
    return f"{progress.level} ({start}seed {progress.seed})"


def progress_text(progress: TrainingProgress) -> str:
    """Epoch, loss, accuracy, speed and, before the end, the remaining time."""
    accuracy = "" if progress.accuracy is None else f", accuracy {progress.accuracy:.2%}"
    left = f", {seconds_text(progress.seconds_left)} left" if progress.seconds_left > 0 else ""
    return (
        f"epoch {progress.epoch}/{progress.epochs}, loss {progress.loss:.4f}{accuracy}, "
        f"{progress.samples_per_second:,.0f} samples/s{left}"
    )
