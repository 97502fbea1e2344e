"""A profile as TensorBoard logs: ``tensorboard --logdir FOLDER``.

There is one folder per level and precision (LEVEL/PRECISION), whose figures TensorBoard shows side
by side, and one named ``figures`` for the pictures. A profile is one moment: every event is at
step 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.report.profiling.figures import figures
from golow.report.style import file_name
from golow.report.tensorboard import log_writer, picture

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

BINS = 32


def write_tensorboard(profiles: Sequence[Profile], folder: Path) -> None:
    """Write the logs of all levels into the folder, replacing those that golow wrote there before.

    Raises `GolowError` without TensorBoard or matplotlib, or when the folder cannot be written.
    """
    for profile in profiles:
        for level in profile.levels:
            if level.time or level.summary:
                place = folder / file_name(level.level) / profile.workload.precision
                with log_writer(place) as writer:
                    _write_level(writer, level)
    with log_writer(folder / "figures") as writer:
        for name, figure in figures(profiles).items():
            writer.add_image(name, picture(figure), 0, dataformats="HWC")


def _write_level(writer: SummaryWriter, level: LevelProfile) -> None:
    for tag, value in _scalars(level):
        writer.add_scalar(tag, value, 0)
    for tag, values in _durations(level):
        writer.add_histogram(tag, values, 0, bins=BINS)


def _scalars(level: LevelProfile) -> Iterator[tuple[str, float]]:
    """Tags and values that a level has."""
    if level.time:
        yield "step/seconds", level.time.value
    if level.profiled:
        yield "step/seconds with profiler", level.profiled
    for part in level.summary:
        yield f"share of the step/{part.role}", part.share
    gpu = level.gpu
    figures = (
        {
            "GPU busy": gpu.utilization,
            "SM efficiency (estimate)": gpu.sm_efficiency,
            "occupancy (estimate)": gpu.occupancy,
            "tensor cores": gpu.tensor_cores,
        }
        if gpu
        else {}
    )
    for name, value in figures.items():
        if value is not None:
            yield f"GPU/{name}", value


def _durations(level: LevelProfile) -> Iterator[tuple[str, np.ndarray]]:
    """Tags and seconds of what a level's step is divided by, one value an operator or kernel."""
    if level.operators:
        yield "operators/own seconds on the host", np.array([o.self_host for o in level.operators])
    if level.kernels:
        yield "kernels/seconds", np.array([kernel.seconds for kernel in level.kernels])
