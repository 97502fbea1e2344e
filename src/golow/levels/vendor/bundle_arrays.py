"""What a worker without a framework reads of a bundle and of a saved state, as arrays of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from golow.lower.graph import GraphInput
from golow.record import GolowError
from golow.workload.bundle import Bundle

Read = Callable[[str, str], np.ndarray]
Batch = dict[tuple[str, str], np.ndarray]
STATE = ("parameter", "buffer", "momentum")


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


@contextmanager
def saved_state(
    file: Path, bundle: Bundle, inputs: Iterable[GraphInput]
) -> Iterator[tuple[Read, dict[str, np.ndarray]]]:
    """What reads like `weights`, but parameters, buffers and momentum (zero where there is none)
    from a saved state; and the state of loss scaling, empty where there is none.

    Raises `GolowError`, before anything is read, unless it has what a graph with these inputs
    needs.
    """
    wanted = {f"{item.kind}/{item.target}": item.value.shape for item in inputs}
    try:
        opened = safe_open(file, framework="numpy")
    except (SafetensorError, OSError) as error:
        raise GolowError(f"{file} cannot be read: {error}") from error
    with opened as state, weights(bundle) as given:
        names = set(state.keys())
        for name, shape in wanted.items():
            if name.partition("/")[0] in STATE:
                _require(file, name, shape, state, names)

        def read(kind: str, target: str) -> np.ndarray:
            if kind == "constant":
                return given(kind, target)
            name = f"{kind}/{target}"
            there: np.ndarray = (
                state.get_tensor(name) if name in names else np.zeros(wanted[name], np.float32)
            )
            return there

        yield read, {n: state.get_tensor(n) for n in names if n.startswith("scaler/")}


def _require(file: Path, name: str, shape: tuple[int, ...], state: Any, names: set[str]) -> None:
    if name not in names:
        if name.startswith("momentum/"):
            return
        raise GolowError(f"{file}: it has no {name}", "a state goes back into the model it is of.")
    if (found := tuple(state.get_slice(name).get_shape())) != shape:
        raise GolowError(f"{file}: {name} is {list(found)}, the model's is {list(shape)}")


def batches(bundle: Bundle, number: int) -> list[Batch]:
    """The arrays of each batch, by kind (input or target) and position."""
    found: list[Batch] = [{} for _ in range(number)]
    with safe_open(bundle.file("batches.safetensors"), framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118 (it is no dictionary)
            index, kind, position = name.split("/")
            found[int(index)][(kind, position)] = file.get_tensor(name)
    return found
