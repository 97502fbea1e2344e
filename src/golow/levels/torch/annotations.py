"""Marks the parts of an iteration in the profiler's trace: its phases, its layers, and the lines of
the user's code that call PyTorch.

Layers are marked where the module itself is called. The backward pass needs no marks: autograd
gives each of its operators the number of the one in the forward pass.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.profiler import record_function

import golow
from golow.records.workload import LayerPhase
from golow.worker.protocol import LAYER, PHASE, SITE

TORCH, GOLOW = str(Path(torch.__file__).parent), str(Path(golow.__file__).parent)
ZOO = str(Path(golow.__file__).parent / "models")


class Annotations:
    """Marks what it is told that begins; a phase ends when another one begins."""

    def __init__(self) -> None:
        self._phase: Any = None

    def enter_forward(self) -> None:
        """The forward pass begins."""
        self._enter("forward")

    def enter_backward(self, loss: Tensor) -> None:
        """The backward pass begins."""
        self._enter("backward")

    def enter_update(self) -> None:
        """The optimizer begins."""
        self._enter("update")

    def leave(self) -> None:
        """The iteration is over."""
        if self._phase is not None:
            self._phase.__exit__(None, None, None)
        self._phase = None

    def _enter(self, phase: LayerPhase) -> None:
        self.leave()
        self._phase = record_function(f"{PHASE}{phase}")
        self._phase.__enter__()


@contextmanager
def layers_marked(module: nn.Module) -> Iterator[None]:
    """Mark every call of a module inside this one by its path."""
    handles, entered = [], []

    def enter(path: str) -> Any:
        def hook(*_: object) -> None:
            entered.append(record_function(f"{LAYER}{path}"))
            entered[-1].__enter__()  # type: ignore[no-untyped-call]

        return hook

    def leave(*_: object) -> None:
        entered.pop().__exit__(None, None, None)

    try:
        for path, child in module.named_modules():
            handles.append(child.register_forward_pre_hook(enter(path)))
            handles.append(child.register_forward_hook(leave))
        yield
    finally:
        for handle in handles:
            handle.remove()


class SitesMarked(TorchFunctionMode):
    """Marks every call of PyTorch by the file and line of the user's code that it comes from."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        site = _site(sys._getframe(1))
        if site is None:
            return func(*args, **(kwargs or {}))
        with record_function(f"{SITE}{site}"):
            return func(*args, **(kwargs or {}))


def _site(frame: FrameType | None) -> str | None:
    """The innermost line outside PyTorch and golow that golow has called; golow's own networks are
    a user's code. What has started golow's process has called none of it."""
    found: str | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        own = file.startswith(GOLOW) and not file.startswith(ZOO)
        if found is not None and own:
            return found
        if found is None and file.startswith("/") and not own and not file.startswith(TORCH):
            found = f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return None
