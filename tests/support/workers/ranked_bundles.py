"""Trainings of several ranks, tiny and quick."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from golow.check.checked_level import CheckedLevel
from golow.check.reference import Standard
from golow.levels import ladder
from golow.levels.ladder import Launch, Level, Probe
from golow.levels.named_level import ChosenLevel
from golow.levels.starter import Starter
from golow.records.workload import Optimizer
from golow.worker.time_limits import Limits
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.places import SUPPORT

RANKS = 2
PLANTED = SUPPORT / "plants" / "planted_ranks.py"
QUICK = Limits(quit=1.0)


class Small(nn.Module):
    """A batch norm, whose statistics are each rank's own, and perhaps dropout."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.dropout(self.blocks(x)))  # type: ignore[no-any-return]


class Unused(Small):
    """A parameter that the loss does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(3, 3)


SGD = Optimizer(learning_rate=0.05, momentum=0.9)


def ranked_bundle(
    folder: Path, module: nn.Module | None = None, optimizer: Optimizer = SGD, ranks: int = RANKS
) -> Bundle:
    """A training of the module, `Small` unless given, without a graph."""
    torch.manual_seed(0)
    request = Request(
        module or Small(),
        torch.randn(6, 12),
        mode="train",
        loss="cross_entropy",
        targets=torch.arange(6) % 10,
        optimizer=optimizer,
        ranks=ranks,
    )
    return write_bundle(prepare(request), folder / "bundle")[0]


def planted(fault: str) -> ChosenLevel:
    """The level `ddp` with a fault of `plants/planted_ranks.py`."""
    command = (sys.executable, str(PLANTED), fault)

    def found() -> Probe:
        return Probe(True)

    def prepared(bundle: Bundle, variant: str, cache: Path) -> Launch:
        return Launch(command)

    level = Level(fault, "planted", "", found, prepared, modes=("train",), ranked="only")
    return ChosenLevel(level, "")


@contextmanager
def standard_of_ranks(
    bundle: Bundle, folder: Path, limits: Limits = QUICK
) -> Iterator[tuple[Standard, Starter]]:
    """What levels of the bundle are compared with, and what starts them."""
    workload = bundle.workload
    chosen = ladder.choose("ddp", "train", workload.device, workload.ranks)
    with (
        Starter(limits, ranks=workload.ranks) as starter,
        CheckedLevel(chosen, bundle, folder, starter) as eager,
    ):
        yield Standard(bundle, folder, starter, eager.outputs("1 of 1")), starter


@contextmanager
def checked(
    choice: ChosenLevel, bundle: Bundle, folder: Path, standard: Standard, starter: Starter
) -> Iterator[CheckedLevel]:
    """The level, built, loaded and checked, its timed iterations too."""
    with CheckedLevel(choice, bundle, folder, starter, timed=True) as level:
        level.start(standard, False, "1 of 1")
        yield level
