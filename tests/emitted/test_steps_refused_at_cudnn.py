"""Training steps whose C++ `golow emit --level cudnn` does not write yet."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from golow.levels.called.training.emission import require_written_right
from golow.records.errors import GolowError
from golow.workload.prepare import prepare
from golow.workload.request import Request


def network(*layers: nn.Module, frozen: bool = False) -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), *layers, nn.Linear(8, 4))
    module[1].requires_grad_(not frozen)
    return module


def asked(module: nn.Module, **options: Any) -> None:
    example = torch.ones(2, 3, 2, 2)
    request = Request(model=module, mode="train", example_inputs=example, **options)
    require_written_right(prepare(request))


def test_others_are_written() -> None:
    asked(network(nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5)))


def test_what_was_seen_to_differ_on_a_gpu_is_refused() -> None:
    with pytest.raises(
        GolowError, match=r"with the frozen parameter 1\.weight as C\+\+ in float32"
    ):
        asked(network(frozen=True))
