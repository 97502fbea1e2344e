"""What every TensorBoard log needs: a writer that replaces golow's own logs, and figures as
pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.records.errors import GolowError
from golow.report.style import drawing
from golow.storage.files import writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.utils.tensorboard import SummaryWriter

SUFFIX = ".golow"  # of event files, so that a later call finds and replaces them


@contextlib.contextmanager
def log_writer(place: Path) -> Iterator[SummaryWriter]:
    """A writer into that folder, from which golow's earlier logs are removed. Raises `GolowError`
    without TensorBoard, or when the folder cannot be written."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise GolowError(
            "TensorBoard logs need the package tensorboard, which is not installed",
            "pip install 'golow[tensorboard]'",
        ) from error
    with writing(place, "free some space or name another folder with --tensorboard."):
        place.mkdir(parents=True, exist_ok=True)
        for old in place.glob(f"events.out.tfevents.*{SUFFIX}"):
            old.unlink()
        with SummaryWriter(str(place), filename_suffix=SUFFIX, max_queue=1000) as writer:
            yield writer


def picture(figure: Figure) -> np.ndarray:
    """The figure as uint8 [height, width, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with drawing():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3]  # type: ignore[no-untyped-call]
