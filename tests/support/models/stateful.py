"""Modules whose forward pass changes something beside its result."""

from __future__ import annotations

import random
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Base(nn.Module):
    """A layer, and an attribute named ``kept`` of any kind."""

    kept: Any

    def __init__(self, kept: Any = None) -> None:
        super().__init__()
        self.layer, self.kept = nn.Linear(5, 5), kept


# ---------------------------------------------------------------- what a later pass would read


class Counter(Base):
    """Every fourth result is twice as large."""

    def __init__(self) -> None:
        super().__init__(0)

    def forward(self, x: Tensor) -> Tensor:
        self.kept += 1
        return self.layer(x) * (2 if self.kept % 4 == 0 else 1)


class Toggle(Base):
    def __init__(self) -> None:
        super().__init__(False)

    def forward(self, x: Tensor) -> Tensor:
        self.kept = not self.kept
        return self.layer(x) if self.kept else self.layer(-x)


class Appends(Base):
    def __init__(self) -> None:
        super().__init__([])

    def forward(self, x: Tensor) -> Tensor:
        self.kept.append(x.shape[0])
        return self.layer(x) * len(self.kept)


class Queue(Base):
    def __init__(self) -> None:
        super().__init__(deque([0], maxlen=3))

    def forward(self, x: Tensor) -> Tensor:
        self.kept.append(x)
        return self.layer(x) * len(self.kept)


class CountsInDict(Base):
    def __init__(self) -> None:
        super().__init__({"of": {"calls": 0}})

    def forward(self, x: Tensor) -> Tensor:
        self.kept["of"]["calls"] += 1
        return self.layer(x) * self.kept["of"]["calls"]


class CountsInObject(Base):
    def __init__(self) -> None:
        super().__init__(SimpleNamespace(calls=0))

    def forward(self, x: Tensor) -> Tensor:
        self.kept.calls += 1
        return self.layer(x) * self.kept.calls


class CountsInArray(Base):
    def __init__(self) -> None:
        super().__init__(np.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.kept[0] += 1
        return self.layer(x) * float(self.kept.sum())


class FirstBatch(Base):
    """Statistics of the first batch alone, as ActNorm has them."""

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = x.mean(0)
        return self.layer(x - self.kept)


class Average(Base):
    """A running average that is no buffer."""

    def __init__(self) -> None:
        super().__init__(torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        self.kept.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.layer(x - self.kept)


class Hidden(Base):
    """The hidden state of the call before."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        before = torch.zeros_like(x) if self.kept is None else self.kept
        now: Tensor = self.cell(x, before)
        self.kept = now.detach()
        return self.layer(now)


class OwnGenerator(Base):
    def __init__(self) -> None:
        super().__init__(random.Random(0))  # noqa: S311

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.kept.random()


STATEFUL = (
    Counter, Toggle, Appends, Queue, CountsInDict, CountsInObject, CountsInArray, FirstBatch,
    Average, Hidden, OwnGenerator,
)  # fmt: skip


# ---------------------------------------------------------------- what nobody reads


class ShapeCache(Base):
    """A mask that is made once, for its shape."""

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = torch.ones(x.shape[1])
        return self.layer(x * self.kept)


class LastResult(Base):
    """Kept for somebody who looks at it."""

    def forward(self, x: Tensor) -> Tensor:
        self.kept = self.layer(x)
        return self.kept  # type: ignore[no-any-return]


class Records(Base):
    def __init__(self) -> None:
        super().__init__({})

    def forward(self, x: Tensor) -> Tensor:
        self.kept["input"] = x
        self.kept["shape"] = tuple(x.shape)
        return self.layer(x)


class DroppedResult(Base):
    """What dropout left is another one each time."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        self.kept = self.dropout(self.layer(x))
        return self.kept  # type: ignore[no-any-return]


HARMLESS = (ShapeCache, LastResult, Records, DroppedResult)


# ---------------------------------------------------------------- inputs, buffers, parameters


class ReluFirst(nn.Sequential):
    """``inplace=True`` in the first layer."""

    def __init__(self) -> None:
        super().__init__(nn.ReLU(inplace=True), nn.Linear(5, 5))


class Doubles(Base):
    """A second pass over the same batch would see it doubled."""

    def forward(self, x: Tensor) -> Tensor:
        x.mul_(2)
        return self.layer(x)


class DoublesSecond(Base):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        y[:, 1:].add_(x[:, :4])
        return self.layer(x) + y


class AssignsBuffer(Base):
    """A running average that is assigned, and read before that and after it."""

    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        before = y * self.average
        self.average = 0.9 * self.average + 0.1 * y.detach().mean(0)
        return before + y / (1 + self.average.abs())


class AssignsInside(nn.Module):
    """The same in a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = AssignsBuffer(), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.inner(x))
        return found


class Teacher(Base):
    """A teacher that follows its student in the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Linear(5, 5).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            pairs = zip(self.teacher.parameters(), self.layer.parameters(), strict=True)
            for own, other in pairs:
                own.mul_(0.9).add_(other, alpha=0.1)
        found: Tensor = self.layer(x) - self.teacher(x)
        return found


CALLS: list[int] = []


class ReadsGlobal(Base):
    def forward(self, x: Tensor) -> Tensor:
        CALLS.append(1)
        return self.layer(x) * len(CALLS)
