"""Races with workers that cheat: cases that golow has once believed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

import golow
from golow.api import Result
from golow.records.workload import Mode
from support.places import SUPPORT

CHEATS = SUPPORT / "plants" / "cheats.py"


class Cheated(NamedTuple):
    """A comparison with workers that cheat, and what the reason of each contains."""

    module: nn.Module
    inputs: Tensor
    mode: Mode
    reasons: dict[str, str]


def layers(width: int, *between: nn.Module) -> nn.Module:
    """A small network for inputs of that width."""
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), *between, nn.Linear(width, 8))


BELIEVED_ONCE = {
    "infer": Cheated(
        layers(512),
        torch.randn(64, 512),
        "infer",
        {
            "table": "rounding explains",
            "ahead": "rounding explains",
            "background": "by golow's clock its blocks took longer|processor time",
            "device": "it has device_ns",
        },
    ),
    "train": Cheated(
        layers(64),
        torch.randn(32, 64),
        "train",
        {
            "first-steps": "its parameters have moved by 0.",
            "only-challenged": "its parameters have moved by 0.",
            "reads-reference": "missing|differs|rounding",
        },
    ),
    "random": Cheated(
        layers(64, nn.Dropout(0.25)),
        torch.randn(32, 64),
        "train",
        {
            "first-steps": "its parameters have moved by 0.",
            "only-challenged": "its parameters have moved by 0.",
            "no-backward": "its parameters have moved by 0.00",
        },
    ),
}


def race(case: str, time_limit: float, cache: Path) -> Result:
    """Compare eager, an honest worker and the cheats of a case, for so many seconds."""
    module, inputs, mode, reasons = BELIEVED_ONCE[case]
    return golow.compare(
        module,
        inputs,
        mode=mode,
        threads=1,
        levels=["eager"],
        workers={name: [sys.executable, str(CHEATS), name] for name in (*reasons, "honest")},
        time_limit=time_limit,
        cache=cache,
    )
