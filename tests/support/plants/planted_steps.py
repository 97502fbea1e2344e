"""Faults of single steps, put into what a step wrote, as a wrong kernel would leave them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from golow.levels.direct.watched_values import Watch

Plant = Callable[[np.ndarray], np.ndarray]


def _lanes(values: np.ndarray) -> np.ndarray:
    values.reshape(-1)[3::16] *= -1
    return values


def _last_row(values: np.ndarray) -> np.ndarray:
    values.reshape(-1, values.shape[-1])[-1] = 0
    return values


def _stale_tile(values: np.ndarray) -> np.ndarray:
    rows = values.reshape(-1, values.shape[-1])
    count = min(8, len(rows) // 2)
    rows[:count, :8] = rows[-count:, -8:].copy()
    return values


def _one_element(values: np.ndarray) -> np.ndarray:
    flat = values.reshape(-1)
    flat[flat.size // 2] += 2 * float(np.sqrt(np.square(flat).mean()))
    return values


def _not_a_number(values: np.ndarray) -> np.ndarray:
    values.reshape(-1)[-1] = np.nan
    return values


PLANTS: dict[str, Plant] = {
    "sign of every sixteenth lane": _lanes,
    "last row left out": _last_row,
    "stale tile": _stale_tile,
    "one wrong element": _one_element,
    "off by a hundredth": lambda values: values * np.float32(1.01),
    "off by a twentieth": lambda values: values * np.float32(1.05),
    "shifted by one": lambda values: np.roll(values, 1, axis=-1),
    "not a number": _not_a_number,
}


def under_plant(execution: Any, at: str, plant: Plant, watch: Watch) -> Watch:
    """A watch before which the value of that name is spoiled, as soon as its step has made it."""
    tensor, made_at = execution.built.values.get(at, (None, None))

    def also(position: int) -> None:
        if position == made_at:
            execution.write(tensor, plant(execution.read(tensor).copy()))
        watch(position)

    return also
