"""The constants of a project, those of several plans that are equal once."""

from __future__ import annotations

import hashlib

import numpy as np


class Constants:
    """arrays: by their names."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._known: dict[str, str] = {}

    def add(self, name: str, array: np.ndarray) -> str:
        """Take an array; return its name, which is another one if it is there already."""
        data = np.ascontiguousarray(array)
        key = f"{data.dtype} {data.shape} {hashlib.sha256(data.tobytes()).hexdigest()}"
        if key not in self._known:
            free = name
            while free in self.arrays:
                free += "_"
            self.arrays[free], self._known[key] = data, free
        return self._known[key]
