"""A module whose weights are stored in 16 bits rounds as these do, whatever the precision."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import golow
from golow.check.moved_bundle import moved, working_rounding
from golow.check.rounding import BF16, FLOAT32, FP16, Rounding
from golow.records.errors import Unsupported
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request


def network(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)).eval().to(dtype)


def bundle_of(dtype: torch.dtype, folder: Path) -> Bundle:
    request = Request(network(dtype), torch.randn(4, 32, dtype=dtype))
    return write_bundle(prepare(request), folder / "bundle")[0]


@pytest.mark.parametrize(
    ("dtype", "rounding"),
    [(torch.float16, FP16), (torch.bfloat16, BF16), (torch.float32, FLOAT32)],
)
def test_the_rounding_is_that_of_the_weights(
    dtype: torch.dtype, rounding: Rounding, tmp_path: Path
) -> None:
    assert working_rounding(bundle_of(dtype, tmp_path)) == rounding


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_weights_are_moved_at_all(dtype: torch.dtype) -> None:
    """A rounding of float32 would be lost in them."""
    weights = torch.randn(1000, dtype=dtype)
    off = moved(weights, FLOAT32, torch.Generator().manual_seed(0)) != weights
    assert off.float().mean() > 0.05


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_level_that_rounds_otherwise_matches_in_float16() -> None:
    pytest.importorskip("onnxruntime")
    levels = ["eager", "onnxruntime"]
    found = golow.compare(
        network(torch.float16), torch.randn(4, 32).half(), levels=levels, threads=1, time_limit=0.1,
        quiet=True,
    )  # fmt: skip
    for level in levels:
        assert found.run(level).check.verdict == "match", found.run(level).check.words


def test_runtimes_on_numpy_refuse_bfloat16(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    from golow.levels.peers import openvino

    with pytest.raises(Unsupported, match="NumPy has no bfloat16"):
        openvino.prepare(bundle_of(torch.bfloat16, tmp_path), "", tmp_path)
