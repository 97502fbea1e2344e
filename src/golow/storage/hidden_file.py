"""Files without a name: what no other process can open, because nothing leads to it."""

from __future__ import annotations

import os
import weakref
from pathlib import Path


class HiddenFile:
    """A file that only this process can read, as long as the object lives.

    The file that is given loses its name; its content stays readable through the descriptor that is
    open here, under a path that means something in this process alone.
    """

    def __init__(self, file: Path) -> None:
        """Raises OSError if the file cannot be opened."""
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        file.unlink()
        self.path = Path(f"/dev/fd/{descriptor}")
