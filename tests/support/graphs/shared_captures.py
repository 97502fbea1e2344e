"""Captures that the tests of one run share: what PyTorch traces takes half a second, and many tests
start from the same small networks.

A capture is kept by all that it depends on: the module, without the numbers in its state, the
shapes of the batch, the loss, the mode, and PyTorch's global settings. Tests of the capture itself
call `golow.lower.capture.capture`, which nothing here touches.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import safetensors.torch
import torch
from torch import Tensor, nn

from golow.lower.aten.translation import Captured
from golow.lower.ir.graph import decode_graph, encode_graph
from golow.records.errors import GolowError
from golow.workload import graph_capture
from golow.workload.as_prepared import in_mode

Capture = Callable[..., Captured]


class Kept(msgspec.Struct):
    """A capture on the disk: the graph, its constants, and what torch said."""

    graph: bytes
    constants: bytes
    said: list[str]


@contextmanager
def captures_shared(folder: Path) -> Iterator[None]:
    """While this is open, what a workload's capture gave is kept in the folder and given again."""
    folder.mkdir(exist_ok=True)
    infer, train = graph_capture.capture_inference, graph_capture.capture_training
    graph_capture.capture_inference = _shared(infer, folder, trains=False)
    graph_capture.capture_training = _shared(train, folder, trains=True)
    try:
        yield
    finally:
        graph_capture.capture_inference, graph_capture.capture_training = infer, train


def _shared(capture: Capture, folder: Path, trains: bool) -> Capture:
    known: dict[str, Kept] = {}

    def shared(name: str, module: nn.Module, *batch: Any) -> Captured:
        *of_batch, said = batch
        in_mode(module, trains)
        try:
            key = digest(name, module, *of_batch)
        except (pickle.PicklingError, TypeError, AttributeError, RuntimeError):
            return capture(name, module, *batch)  # it holds what cannot be written
        kept = known.get(key) or _read(folder / key)
        if kept is None:
            heard: list[str] = []
            try:
                found = capture(name, module, *of_batch, heard)
            except GolowError:
                if said is not None:
                    said += heard
                raise
            constants = {k: v.detach().contiguous() for k, v in found.constants.items()}
            kept = Kept(encode_graph(found.graph), safetensors.torch.save(constants), heard)
            _write(folder / key, kept)
        known[key] = kept
        if said is not None:
            said += kept.said
        return Captured(decode_graph(kept.graph), safetensors.torch.load(kept.constants))

    return shared


def digest(*given: Any) -> str:
    """Names all that a capture depends on."""
    flags = (torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    written = io.BytesIO()
    _WithoutNumbers(written, _state_of(given)).dump((flags, given))
    return hashlib.sha256(written.getvalue()).hexdigest()


def _state_of(given: tuple[Any, ...]) -> dict[int, int]:
    """The tensors whose numbers a capture does not read, those of the batch and of a state dict,
    by identity: the place of each in this order."""
    tensors = [item for part in given if isinstance(part, tuple) for item in part]
    for module in given:
        if isinstance(module, nn.Module):
            tensors += module.state_dict(keep_vars=True).values()
    return {id(item): place for place, item in enumerate(tensors) if isinstance(item, Tensor)}


class _WithoutNumbers(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes tensors by what a tracer sees of them."""

    def __init__(self, file: io.BytesIO, state: dict[int, int]) -> None:
        super().__init__(file)
        self._state = state

    def persistent_id(self, item: Any) -> Any:
        """A tensor's form, and which one of the state it is, so that tied weights are told from
        equal ones; of a tensor that is not of the state, its numbers."""
        if not isinstance(item, Tensor):
            return None
        form = (type(item).__name__, str(item.dtype), tuple(item.shape), item.stride())
        place = self._state.get(id(item))
        which = place if place is not None else _numbers(item)
        return (*form, str(item.device), item.requires_grad, which)


def _numbers(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def _read(file: Path) -> Kept | None:
    return msgspec.msgpack.decode(file.read_bytes(), type=Kept) if file.exists() else None


def _write(file: Path, kept: Kept) -> None:
    whole = file.with_suffix(f".{os.getpid()}")
    whole.write_bytes(msgspec.msgpack.encode(kept))
    whole.rename(file)
