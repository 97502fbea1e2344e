"""Flash attention against float64: cuDNN's kernels and golow's within the real plan."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from golow.levels.direct.cudnn.level import probe
from golow.records.workload import Mode, Precision

if not probe().available:
    pytest.skip(probe().missing, allow_module_level=True)

from golow.lower.operators.attention import Attention
from golow.models.windows import WindowAttention
from support.direct.cudnn_in_process import OnGpu, compute, lowered
from support.graphs.lowering import count
from support.models.heads import Heads
from support.models.written_attention import Written

pytestmark = pytest.mark.gpu

ROUNDING: dict[Precision, float] = {"bf16": 2.0**-8, "fp16": 2.0**-11, "tf32": 2.0**-11}


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory) -> OnGpu:
    return OnGpu(tmp_path_factory.mktemp("cudnn"))


HEADS = {
    "plain": Heads(),
    "causal": Heads(causal=True),
    "grouped": Heads(causal=True, groups=2),
    "one for all": Heads(groups=1, width=64),
    "wide": Heads(width=128),
    "other length": Heads(seen=3, width=24),
    "padded": Heads(mask="padding"),
    "a hidden row": Heads(mask="rows", groups=2),
    "distances": Heads(mask="numbers"),
}


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("precision", ROUNDING)
@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("length", [40, 37])
def test_attention_is_right(
    on: OnGpu, kind: str, mode: Mode, precision: Precision, length: int
) -> None:
    """As near to float64 as a few roundings of every value let it be."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 16), HEADS[kind], nn.Linear(16, 8))
    network = lowered(module, torch.randn(3, length, 16), mode, precision=precision)
    unfolded = (kind, precision, mode) == ("wide", "tf32", "train")  # its gradients have no kernel
    assert count(network.graph, Attention) == (not unfolded)
    wanted, _, _ = network.references
    found = compute(network, on, precision)
    unread = {name for name in wanted if name.startswith("1/gradient/")}
    assert wanted.keys() - unread <= found.keys()
    for name in wanted.keys() - unread:
        right = wanted[name]
        distance = float(np.linalg.norm(found[name] - right))
        size = float(np.linalg.norm(right)) + 1e-2 * right.size**0.5
        assert distance <= 60 * ROUNDING[precision] * size, name


WRITTEN = {
    "plain": Written(),
    "hidden": Written(hidden="both"),
    "added": Written(added="both", hidden="past"),
    "flat": Written(added="both", flat=True),
    "windows": WindowAttention(16, heads=2, size=14, shift=3),
}


@pytest.mark.parametrize("precision", ROUNDING)
@pytest.mark.parametrize("kind", WRITTEN)
def test_written_attention_is_right(on: OnGpu, kind: str, precision: Precision) -> None:
    """Windows of 49 pixels have a kernel in float32 alone."""
    torch.manual_seed(0)
    images = torch.randn(2, 14, 14, 16) if kind == "windows" else torch.randn(3, 8, 32)
    network = lowered(WRITTEN[kind], images, "infer", precision=precision)
    wanted, _, _ = network.references
    found = compute(network, on, precision)
    assert wanted.keys() <= found.keys()
    for name, right in wanted.items():
        distance = float(np.linalg.norm(found[name] - right))
        assert distance <= 30 * ROUNDING[precision] * float(np.linalg.norm(right)), name


def test_a_stored_kernel_gives_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("stored")
    torch.manual_seed(0)
    network = lowered(Heads(width=64), torch.randn(2, 33, 16), "train", precision="bf16")
    first = compute(network, OnGpu(folder), "bf16")
    kept = OnGpu(folder)
    again = compute(network, kept, "bf16")
    assert kept.engines.built == 0
    for name, array in first.items():
        np.testing.assert_allclose(again[name], array, rtol=1e-2, atol=1e-3, err_msg=name)
