"""Training steps as C++ projects, written and built once for all tests of a run, and their library
as clients of the header call it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from golow.levels.called.training.emission import write_step
from golow.levels.called.training.training_step import TrainingStep
from golow.lower.capture.shared_tensors import first_names
from golow.models.lenet import lenet5
from golow.records.workload import Optimizer
from golow.workload.batch import Batch
from support import one_run
from support.direct.emitted_projects import build
from support.direct.training_steps import stepped


class Block(nn.Module):
    """A block of a ResNet."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(given, made, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(made, made, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(made) for _ in range(3))
        self.short = nn.Conv2d(given, made, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        found: Tensor = torch.relu(self.norms[1](self.second(y)) + self.norms[2](self.short(x)))
        return found


class Residual(nn.Module):
    """A small ResNet, whose first layer is frozen, and a layer that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2))
        self.last, self.unused = nn.Linear(32, 5), nn.Linear(2, 2)
        self.first.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(torch.relu(self.norm(self.first(x))))
        found: Tensor = self.last(y.mean((2, 3)))
        return found


class Tied(nn.Module):
    """Words, a norm, and a layer that has the table's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(5, 16), nn.LayerNorm(16)
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 5, bias=False)
        self.last.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.words(x).mean(1))
        found: Tensor = self.last(nn.functional.gelu(self.first(y)))
        return found


class Case(NamedTuple):
    """A network in training, its optimizer, batches of two sizes, and those that are planned."""

    module: nn.Module
    optimizer: Optimizer
    batches: tuple[Batch, ...]
    sizes: tuple[int, ...]


NAMES = ("lenet5", "residual", "tied")
SMALLER = 3  # rows of every third batch


@cache
def case(name: str) -> Case:
    torch.manual_seed(0)
    sgd = Optimizer(learning_rate=0.05, momentum=0.9, weight_decay=1e-3)
    if name == "lenet5":
        return Case(lenet5().train(), sgd, batches((1, 28, 28)), (SMALLER, 8))
    if name == "residual":
        return Case(Residual().train(), sgd, batches((3, 12, 12)), (SMALLER, 8))
    adamw = Optimizer("adamw", learning_rate=0.01, clip=0.5)
    return Case(Tied().train(), adamw, batches((4,), words=True), (SMALLER, 8))


def batches(shape: Sequence[int], words: bool = False) -> tuple[Batch, ...]:
    """Batches of two sizes, of numbers or of words."""
    drawn, found = torch.Generator().manual_seed(1), []
    for number in range(6):
        rows = SMALLER if number % 3 == 2 else 8
        y = torch.randint(5, (rows,), generator=drawn)
        if words:
            x = torch.randint(5, (rows, *shape), generator=drawn)
        else:
            x = torch.randn(rows, *shape, generator=drawn)
        found.append(Batch((x,), (y,)))
    return tuple(found)


def step_of(name: str) -> TrainingStep:
    """A step in Python, whose plans are built in the project's order."""
    module, optimizer, batches, sizes = case(name)
    first = batches[0]
    example = (first.inputs[0], first.targets[0])
    return stepped(module, optimizer, example, batch=list(sizes))


@cache
def project(name: str) -> Path:
    """The folder of a project, built, with the path alone in the environment."""
    module, optimizer, batches, _ = case(name)
    with one_run.one_at_a_time(one_run.own_folder(), f"emitted-training-{name}") as folder:
        if not (folder / "done").exists():
            with step_of(name) as step:
                first = first_names(module)
                write_step(step, batches, folder / "project", name, optimizer, ("x",), first)
            build(folder / "project")
            (folder / "done").touch()
        return folder / "project"


class Library:
    """The library of a project. folder: of another one than those of this file."""

    def __init__(self, name: str, folder: Path | None = None) -> None:
        loaded = ctypes.CDLL(str((folder or project(name)) / "build" / f"lib{name}.so"))

        def function(what: str, *types: Any, result: Any = c_int) -> Any:
            found = getattr(loaded, f"{name}_{what}")
            found.argtypes, found.restype = types, result
            return found

        self.create = function("create", c_char_p, POINTER(c_void_p))
        self.destroy = function("destroy", c_void_p, result=None)
        addresses = POINTER(c_void_p)
        self.step = function("step", c_void_p, c_int64, addresses, addresses, POINTER(c_float))
        self.evaluate = function("evaluate", c_void_p, c_int64, addresses, addresses)
        self.rate = function("set_learning_rate", c_void_p, c_float)
        self.load = function("load", c_void_p, c_char_p)
        self.save = function("save", c_void_p, c_char_p)
        self.read = function("read", c_void_p, c_char_p, c_void_p, c_uint64)
        self.batch = function("batch", c_int, result=c_int64)
        self.error = function("error", result=c_char_p)
        # Functions of projects for a GPU alone.
        there = hasattr(loaded, f"{name}_enqueue")
        ends = c_void_p, c_int64, addresses, addresses, c_void_p, c_void_p
        self.enqueue = function("enqueue", *ends) if there else None


class Training:
    """A training of that library."""

    def __init__(self, library: Library, state: Path) -> None:
        self.library, self.handle = library, c_void_p()
        self.require(library.create(str(state).encode(), byref(self.handle)))

    def require(self, status: int) -> None:
        assert status == 0, self.library.error().decode()

    def __call__(self, batch: Batch) -> float:
        loss = c_float()
        self.require(self.step(batch, loss))
        return loss.value

    def step(self, batch: Batch, loss: c_float, rows: int | None = None) -> int:
        inputs, targets = ((c_void_p * len(part))(*(t.data_ptr() for t in part)) for part in batch)
        rows = len(batch.inputs[0]) if rows is None else rows
        return int(self.library.step(self.handle, rows, inputs, targets, byref(loss)))

    def enqueued(self, batch: Batch, loss: Tensor, stream: int) -> int:
        """Enqueue a step on memory of the GPU."""
        assert self.library.enqueue is not None
        inputs, targets = ((c_void_p * len(part))(*(t.data_ptr() for t in part)) for part in batch)
        ends = len(batch.inputs[0]), inputs, targets, loss.data_ptr(), stream
        return int(self.library.enqueue(self.handle, *ends))

    def evaluate(self, x: Tensor, like: Tensor) -> Tensor:
        """The output for an input, of the shape of another tensor."""
        found = torch.full_like(like, torch.nan)
        inputs, outputs = ((c_void_p * 1)(item.data_ptr()) for item in (x, found))
        self.require(self.library.evaluate(self.handle, len(x), inputs, outputs))
        return found

    def set_rate(self, rate: float) -> None:
        self.require(self.library.rate(self.handle, rate))

    def load(self, file: Path) -> None:
        self.require(self.library.load(self.handle, str(file).encode()))

    def save(self, file: Path) -> None:
        self.require(self.library.save(self.handle, str(file).encode()))

    def read(self, name: str, like: Tensor) -> Tensor:
        found = torch.empty_like(like)
        status = self.library.read(self.handle, name.encode(), found.data_ptr(), found.nbytes)
        self.require(status)
        return found


@contextmanager
def training(
    name: str, state: Path | None = None, folder: Path | None = None
) -> Iterator[Training]:
    """A training from a state, by default the project's own."""
    library = Library(name, folder)
    made = Training(library, state or (folder or project(name)) / "weights.safetensors")
    yield made
    library.destroy(made.handle)
