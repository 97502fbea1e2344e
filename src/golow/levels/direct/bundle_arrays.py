"""Reads bundles and saved states as NumPy arrays, for workers without a framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from golow.lower.ir.graph import GraphInput
from golow.records.errors import GolowError
from golow.records.workload import KEPT
from golow.workload.bundle import Bundle

Read = Callable[[str, str], np.ndarray]
Batch = dict[tuple[str, str], np.ndarray]
# All that training changes.
STATE = ("parameter", "buffer", *KEPT)


@contextmanager
def weights(bundle: Bundle) -> Iterator[Read]:
    """Yield a function that reads a parameter, buffer or constant by its kind and name, as it was
    given.

    The files are open only inside this context. Otherwise every page that was read would count as
    memory of the level.
    """
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
def graph_weights(bundle: Bundle) -> Iterator[Read]:
    """Weights as graphs take them."""
    with weights(bundle) as read:
        yield lambda kind, target: in_pairs(read(kind, target))


def in_pairs(array: np.ndarray) -> np.ndarray:
    """An array as a graph takes it: complex numbers are pairs of real ones there
    (`golow.lower.aten.complex_numbers`)."""
    if array.dtype.kind != "c":
        return array
    return np.ascontiguousarray(array).view(np.float32).reshape(*array.shape, 2)


@contextmanager
def saved_state(
    file: Path, bundle: Bundle, inputs: Iterable[GraphInput]
) -> Iterator[tuple[Read, dict[str, np.ndarray]]]:
    """Yield a reader like that of `graph_weights`, and the state of loss scaling (empty if absent).

    The reader takes parameters, buffers and what the optimizer keeps from a saved state; what is
    absent of the latter is zero.
    Raises `GolowError`, before it reads any array, if the file is unreadable or does not have what
    a graph with these inputs needs.
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
                return in_pairs(given(kind, target))
            name = f"{kind}/{target}"
            there: np.ndarray = (
                state.get_tensor(name) if name in names else np.zeros(wanted[name], np.float32)
            )
            return in_pairs(there)

        yield read, {n: state.get_tensor(n) for n in names if n.startswith("scaler/")}


def _require(file: Path, name: str, shape: tuple[int, ...], state: Any, names: set[str]) -> None:
    if name not in names:
        if name.partition("/")[0] in KEPT:
            return
        raise GolowError(f"{file}: it has no {name}", "the state must come from the same model.")
    part = state.get_slice(name)
    pairs = (2,) if part.get_dtype() == "C64" else ()
    if (found := (*part.get_shape(), *pairs)) != shape:
        raise GolowError(f"{file}: {name} is {list(found)}; the model's is {list(shape)}")


def batches(bundle: Bundle, number: int) -> list[Batch]:
    """Return the arrays of each batch, by kind (input or target) and position."""
    found: list[Batch] = [{} for _ in range(number)]
    with safe_open(bundle.file("batches.safetensors"), framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118 (it is not a dictionary)
            index, kind, position = name.split("/")
            found[int(index)][(kind, position)] = file.get_tensor(name)
    return found
