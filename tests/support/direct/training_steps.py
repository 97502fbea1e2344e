"""What tests of `golow.compile_step` share: a network and its batches, the same training in
PyTorch, and the judgement of two curves by a third one in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

import golow
from golow.levels.called.training.training_step import TrainingStep
from golow.records.workload import Optimizer
from support.models.optimizers import in_torch

Batch = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
LOSS = nn.CrossEntropyLoss()


def network(seed: int = 0) -> nn.Module:
    """Convolutions with batch norms, and linear layers. Convolutions have no biases: before a
    batch norm their gradients are rounding alone, which Adam makes steps of."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(64, 5),
    ).train()  # fmt: skip


def perceptron(seed: int = 0) -> nn.Module:
    """Three layers: what is quick to build."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5)).train()


def batches(number: int, shape: Sequence[int] = (3, 12, 12), last: int = 0) -> list[Batch]:
    """So many batches of 8 samples that can be learned. last: rows of every fourth batch."""
    drawn = torch.Generator().manual_seed(1)
    found = []
    for place in range(number):
        rows = last if last and place % 4 == 3 else 8
        y = torch.randint(5, (rows,), generator=drawn)
        x = torch.randn(rows, *shape, generator=drawn)
        found.append((x + y.view(-1, *[1] * len(shape)) / 4, y))
    return found


def stepped(
    module: nn.Module, optimizer: object, example: Batch, loss: Loss = LOSS, **options: object
) -> TrainingStep:
    """The module's training step, on one thread."""
    return golow.compile_step(
        module, loss, optimizer=optimizer, example=example, quiet=True, threads=1, **options
    )  # type: ignore[arg-type]


class Eager:
    """The same training in PyTorch, in float32 or in float64. optimizer: golow's record, or a
    function of the parameters that makes one of PyTorch's."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: Optimizer | Callable[[nn.Module], torch.optim.Optimizer],
        dtype: torch.dtype = torch.float32,
        loss: Loss = LOSS,
        every: int = 1,
        clip: float | None = None,
    ) -> None:
        self.module, self.dtype = copy.deepcopy(module).to(dtype), dtype
        if isinstance(optimizer, Optimizer):
            self.optimizer = in_torch(optimizer, self.module.parameters())
            clip = optimizer.clip
        else:
            self.optimizer = optimizer(self.module)
        self._loss, self._every, self._clip, self._made = loss, every, clip, 0

    def __call__(self, x: Tensor, y: Tensor) -> float:
        x = x.to(self.dtype) if x.is_floating_point() else x
        loss = self._loss(self.module(x), y)
        (loss / self._every).backward()
        self._made += 1
        if self._made % self._every == 0:
            if self._clip is not None:
                nn.utils.clip_grad_norm_(self.module.parameters(), self._clip)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return float(loss.detach())

    def begin(self) -> None:
        """Begin a new sum of gradients."""
        self.optimizer.zero_grad()
        self._made = 0


class Curve(NamedTuple):
    """The losses of a training, and the state at its end."""

    losses: list[float]
    state: dict[str, Tensor]


def trained(step: Callable[[Tensor, Tensor], object], data: Iterable[Batch]) -> list[float]:
    """The losses of a training on these batches."""
    return [float(step(x, y)) for x, y in data]  # type: ignore[arg-type]


def curve_of(eager: Eager, data: Iterable[Batch]) -> Curve:
    """A training in PyTorch."""
    return Curve(trained(eager, data), eager.module.state_dict())


def assert_near(found: Curve, eager: Curve, reference: Curve) -> None:
    """Assert that a training is no farther from the one in float64 than PyTorch's in float32 is, up
    to a factor: steps amplify roundings, which are others."""
    assert found.state.keys() == reference.state.keys()
    losses = [torch.tensor(curve.losses).double() for curve in (found, eager, reference)]
    _assert_near("losses", *losses)
    for name, wanted in reference.state.items():
        _assert_near(name, found.state[name].double(), eager.state[name].double(), wanted.double())


def _assert_near(name: str, found: Tensor, eager: Tensor, wanted: Tensor) -> None:
    limit = 6 * float((eager - wanted).norm()) + 1e-5 * float(wanted.norm()) + 1e-7
    distance = float((found - wanted).norm())
    assert distance <= limit, f"{name} is off by {distance:.3g}, more than {limit:.3g}"
