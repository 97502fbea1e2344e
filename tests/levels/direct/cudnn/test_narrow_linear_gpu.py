"""Linear layers of 8-bit numbers within the real plan, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from golow.levels.direct.cudnn.level import probe
from golow.records.quantization import QuantizationRule
from golow.records.workload import Precision

if not probe().available:
    pytest.skip(probe().missing, allow_module_level=True)

from golow.levels.direct.cudnn.problems.gemm import Problem
from support.direct.cudnn_in_process import OnGpu, compute, lowered
from support.models.narrow_blocks import gated, rows

pytestmark = pytest.mark.gpu

LIMIT: dict[Precision, float] = {"default": 1e-2, "tf32": 1e-2, "bf16": 6e-2, "fp16": 2e-2}
"""Distance from float64, as a share of the outputs' size: activations that another rounding decides
move by up to a sixteenth."""


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory) -> OnGpu:
    return OnGpu(tmp_path_factory.mktemp("cudnn"))


@pytest.mark.parametrize("precision", LIMIT)
@pytest.mark.parametrize("rule", ["fp8", "int8"])
def test_a_network_is_right(rule: QuantizationRule, precision: Precision, on: OnGpu) -> None:
    """Every operation by itself, too."""
    x = rows(8, 12)
    network = lowered(gated(rule, x), x, "infer", precision=precision)
    found, (wanted, _, _) = compute(network, on, precision), network.references
    for name, right in wanted.items():
        error = float(np.linalg.norm(found[name] - right) / np.linalg.norm(right))
        assert error <= LIMIT[precision], f"{name}: off by {error:.2g} of its size"


def test_the_products_are_of_8_bits(on: OnGpu) -> None:
    """Otherwise the networks above would be right by other products."""
    if on.gpu.architecture != "sm_90":
        pytest.skip("a scale for each row and column is of sm_90")
    plain = Problem(
        64, 32, 48, "float8_e4m3fn", "bfloat16", "quarter", transpose_b=True, scaled=True
    )
    assert on.engines.choose(plain) is not None
    whole = Problem(64, 32, 48, "int8", "int32", "quarter", transpose_b=True)
    assert on.engines.choose(whole) is not None
