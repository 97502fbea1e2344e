"""Networks that several ranks train together, and the same training in PyTorch in one process: each
rank's loss and gradients on its own batch, the mean of the gradients, one update everywhere."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.levels.torch.in_double import InDouble
from golow.records.workload import Optimizer
from golow.workload.prepare import Prepared, prepare
from golow.workload.request import Request
from support.direct.in_process import ROUNDING, Tensors, assert_right
from support.models import optimizers

RANKS, STEPS = 2, 2
SGD = Optimizer(learning_rate=0.05, momentum=0.9, weight_decay=0.01)
CLIPPED = Optimizer("adamw", learning_rate=0.01, clip=0.3)

each_training = pytest.mark.parametrize(
    ("network", "optimizer"),
    [
        ("lenet", SGD),
        ("transformer", CLIPPED),
        *(
            pytest.param(network, optimizer, marks=pytest.mark.slow)
            for network, optimizer in [("normed", SGD), ("lenet", CLIPPED), ("transformer", SGD)]
        ),
    ],
)
"""A test of every network, with both optimizers where the parts are trained in other orders."""


def lenet() -> nn.Module:
    """Convolutions, pooling and linear layers, all with biases."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 16), nn.ReLU(),
        nn.Linear(16, 5),
    ).train()  # fmt: skip


def normed() -> nn.Module:
    """Batch norms, whose statistics are each rank's own, and a layer that runs twice."""
    torch.manual_seed(0)
    shared = nn.Conv2d(8, 8, 3, padding=1, bias=False)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), shared, nn.ReLU(), shared,
        nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    ).train()  # fmt: skip


class Transformer(nn.Module):
    """A block of a transformer over the rows of an image. Its position is added to what it reads,
    so that the gradient of one is, summed, that of the other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.position = nn.Linear(12, 16), nn.Parameter(torch.randn(12, 16) / 4)
        self.norm, self.attention = nn.LayerNorm(16), nn.Linear(16, 48)
        self.out, self.last = nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.embed(x.flatten(1, 2)) + self.position
        query, key, value = self.attention(self.norm(y)).chunk(3, -1)
        weights = torch.softmax(query @ key.transpose(1, 2) / 4, -1)
        found: Tensor = self.last((y + self.out(weights @ value)).mean(1))
        return found


NETWORKS = {"lenet": lenet, "normed": normed, "transformer": lambda: Transformer().train()}


def prepared(network: str, optimizer: Optimizer = SGD, threads: int = 1) -> Prepared:
    """The workload, prepared as `golow.compare` does."""
    images = torch.randn(8, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    return prepare(
        Request(
            NETWORKS[network](), images, mode="train", loss="cross_entropy", optimizer=optimizer,
            ranks=RANKS, threads=threads,
        )
    )  # fmt: skip


class OneRank(NamedTuple):
    """A rank's results in float64, in float32, and in float64 with weights moved by roundings."""

    references: tuple[Tensors, Tensors, Tensors]


def references(workload: Prepared) -> list[OneRank]:
    """The right results of each rank, by ``STEP/KIND/TARGET``."""
    found = [
        in_torch(workload, torch.float64),
        in_torch(workload, torch.float32),
        in_torch(workload, torch.float64, moved=True),
    ]
    return [OneRank(of_rank) for of_rank in zip(*found, strict=True)]


def in_torch(workload: Prepared, dtype: torch.dtype, moved: bool = False) -> list[Tensors]:
    """All ranks in PyTorch, in one process."""
    settings, loss = workload.workload.optimizer, workload.loss
    assert loss is not None
    modules = [copy.deepcopy(workload.module).to(dtype) for _ in range(RANKS)]
    if moved:
        for module in modules:
            _move(module)
    own = [optimizers.in_torch(settings, module.parameters()) for module in modules]
    found: list[Tensors] = [{} for _ in modules]
    for step in range(STEPS):
        for rank, module in enumerate(modules):
            batch = workload.batches[step * RANKS + rank]
            own[rank].zero_grad()
            if dtype == torch.float64:
                with InDouble():
                    reached = loss(module(batch.inputs[0].to(dtype)), *batch.targets)
            else:
                reached = loss(module(batch.inputs[0]), *batch.targets)
            reached.backward()
            found[rank][f"{step}/loss/loss"] = _array(reached)
        _average(modules)
        for rank, module in enumerate(modules):
            optimizers.clip(settings, module.parameters())
            if step == 0:
                found[rank] |= {f"0/gradient/{n}": _array(p.grad) for n, p in _trained(module)}
            own[rank].step()
            if step == STEPS - 1:
                found[rank] |= {f"{step}/parameter/{n}": _array(p) for n, p in _trained(module)}
    return found


def assert_ranks_right(workload: Prepared, found: Sequence[Tensors]) -> None:
    """Each rank's results are as near to float64 as rounding lets them be, before batch norms too,
    which cancel much of a gradient; parameters are equal bit for bit."""
    for rank, one in enumerate(references(workload)):
        assert_right(one, found[rank], roundings=128)  # type: ignore[arg-type]
    assert_equal_parameters(found)


def assert_equal_parameters(found: Sequence[Tensors]) -> None:
    """All ranks have the same bits."""
    names = [name for name in found[0] if "/parameter/" in name]
    assert names
    for name in names:
        for other in found[1:]:
            assert np.array_equal(found[0][name], other[name]), f"{name} differs between ranks"


def _average(modules: Sequence[nn.Module]) -> None:
    for same in zip(*(module.parameters() for module in modules), strict=True):
        given = [p.grad for p in same if p.grad is not None]
        for parameter in same if given else ():
            parameter.grad = torch.stack(given).mean(0)


def _trained(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in module.named_parameters() if p.grad is not None]


@torch.no_grad()
def _move(module: nn.Module) -> None:
    drawn = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        noise = torch.rand(parameter.shape, generator=drawn, dtype=parameter.dtype) * 2 - 1
        parameter.mul_(1 + 8 * ROUNDING * noise)


def _array(tensor: Tensor | None) -> np.ndarray:
    assert tensor is not None
    return tensor.detach().numpy().copy()
