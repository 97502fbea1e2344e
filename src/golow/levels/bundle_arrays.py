"""What a worker without a framework reads of a bundle, as arrays of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
from safetensors import safe_open

from golow.bundle import Bundle

Read = Callable[[str, str], np.ndarray]
Batch = dict[tuple[str, str], np.ndarray]


@contextmanager
def weights(bundle: Bundle) -> Iterator[Read]:
    """What reads a parameter, buffer or constant by its kind and name. The files are open only
    meanwhile, or every page of them that was read would count as the level's memory."""
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(safe_open(bundle.file(name), framework="numpy"))
            for name in ("weights.safetensors", "constants.safetensors")
        }

        def read(kind: str, target: str) -> np.ndarray:
            file = files[f"{'constants' if kind == 'constant' else 'weights'}.safetensors"]
            array: np.ndarray = file.get_tensor(target)
            return array

        yield read


def batches(bundle: Bundle, number: int) -> list[Batch]:
    """The arrays of each batch, by kind (input or target) and position."""
    found: list[Batch] = [{} for _ in range(number)]
    with safe_open(bundle.file("batches.safetensors"), framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118 (it is no dictionary)
            index, kind, position = name.split("/")
            found[int(index)][(kind, position)] = file.get_tensor(name)
    return found
