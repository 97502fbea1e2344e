"""Outputs that cancel to exactly zero are judged by what cancels: a norm of equal elements."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import golow
from golow.check.rule import Reference, check, recheck
from golow.levels.torch.rounded_operations import FLOAT32_KERNELS, RoundedKernels
from golow.records.workload import Mode
from support.records.output_files import output_files


def equal_rows() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 5, 1, generator=generator, dtype=torch.float64).expand(4, 5, 6)


@pytest.mark.parametrize("recording", [False, True])
def test_only_kernels_in_which_numbers_cancel_round(recording: bool) -> None:
    norm = nn.LayerNorm(6, dtype=torch.float64)
    with torch.set_grad_enabled(recording), RoundedKernels(FLOAT32_KERNELS):
        x = equal_rows().clone()
        assert torch.equal(x * 3 + 1, equal_rows() * 3 + 1)
        found = norm(x)
    assert torch.equal(norm(equal_rows()), torch.zeros(4, 5, 6))
    assert 1e-6 < found.abs().max() < 1e-2


def test_an_error_of_a_zero_output_is_judged_by_how_far_it_moves(tmp_path: Path) -> None:
    zero, small, large = (torch.full((40,), size, dtype=torch.float64) for size in (0, 3e-6, 1e-3))
    exact, eager, moved, level, wrong = output_files(
        tmp_path, exact=zero, eager=zero, moved=small * 10, level=small, wrong=large
    )
    reference = Reference(exact, eager)
    assert reference.cancels
    strict = check(reference, level)
    assert strict.verdict == "differs"
    assert "rounding explains none of it" in strict.reason
    assert "inf" not in strict.reason
    wider = reference.widened([moved])
    assert recheck(wider, strict).verdict == "match"
    assert recheck(wider, check(reference, wrong)).verdict == "differs"


def test_a_huge_ratio_is_not_spelled_out(tmp_path: Path) -> None:
    one = torch.ones(40, dtype=torch.float64)
    exact, eager, wrong = output_files(tmp_path, exact=one, eager=one + 1e-9, wrong=one * 1e9)
    reference = Reference(exact, eager)
    assert not reference.cancels
    assert "more than 1,000 times what rounding explains" in check(reference, wrong).reason


class Zero(nn.Module):
    """A norm of elements that are all equal."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        equal = self.layer(x).mean(-1, keepdim=True).expand(-1, -1, 6)
        found: Tensor = self.norm(equal)
        return found


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_network_whose_output_is_zero_matches(mode: Mode) -> None:
    torch.manual_seed(0)
    result = golow.compare(
        Zero(), torch.randn(4, 5, 6), mode=mode, levels=["eager", "torchscript", "onednn"],
        loss="mse_loss" if mode == "train" else None, time_limit=0.1, threads=1, brief=True,
        quiet=True,
    )  # fmt: skip
    assert [run.check.verdict for run in result.comparison.runs] == ["match"] * 3
