"""The limits of layers of 8-bit numbers that are checked one by one."""

from __future__ import annotations

import pytest
import torch

from golow.check.rounding import BF16, FLOAT32, TF32, Rounding
from golow.check.step_rule import judged
from golow.check.step_values import StepValue, evaluated
from golow.lower.operators.quantize import E4M3
from golow.lower.operators.quantized_linear import QuantizedLinear
from support.graphs.written_graphs import RELU, Written, one, ref


def layer_off_by(share: float) -> StepValue:
    """The result of a layer of e4m3, each element off by a share of its size."""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(40, 64, generator=generator).to(getattr(torch, E4M3))
    given = {
        "x": numbers[:8].double(),
        "weight": numbers[8:].view(torch.uint8).unsqueeze(1),
        "scale": torch.rand(32, 1, 1, generator=generator, dtype=torch.float64) + 0.5,
    }
    layer = QuantizedLinear(x=ref("x"), weight=ref("weight"), scale=ref("scale"))
    node = Written(given, [one("y", layer)], "y").graph.nodes[0]
    wanted = evaluated(node, given)[0]
    signs = torch.randn(wanted.shape, generator=generator).sign()
    return StepValue("y", node, 0, wanted * (1 + share * signs), wanted, given, frozenset(), None)


@pytest.mark.parametrize(
    ("working", "share", "right"),
    [
        (FLOAT32, 1e-7, True),
        (FLOAT32, 2e-4, False),  # sums of tensor cores are not those of float32
        (TF32, 2e-4, True),
        (TF32, 2e-2, False),
        (BF16, 2e-3, True),
        (BF16, 2e-1, False),
    ],
)
def test_sums_may_be_those_of_tensor_cores_where_the_precision_has_them(
    working: Rounding, share: float, right: bool
) -> None:
    assert (judged(layer_off_by(share), working, "float32").share <= 1) is right


@pytest.mark.parametrize(("planted", "right"), [(0, True), (3, False)])
def test_roundings_of_a_bias_may_decide_about_hundreds_of_numbers(
    planted: int, right: bool
) -> None:
    """A level reads the bias in bf16. planted: by which one number is off."""
    generator = torch.Generator().manual_seed(0)
    given = {
        "x": torch.randint(-60, 60, (2000, 48), generator=generator).to(torch.int8),
        "weight": torch.randint(-127, 128, (32, 48), generator=generator).to(torch.int8),
        "scale": torch.full((32,), 3e-5, dtype=torch.float64),
        "bias": torch.randn(32, generator=generator).double() / 10,
        "residual": torch.randn(2000, 32, generator=generator).bfloat16().double() * 1.5,
        "step": torch.tensor(55.0).double(),
    }
    layer = QuantizedLinear(
        x=ref("x"), weight=ref("weight"), scale=ref("scale"), bias=ref("bias"),
        residual=ref("residual"), activation=RELU, result_scale=ref("step"), result_type="uint8",
    )  # fmt: skip
    node = Written(given, [one("y", layer)], "y").graph.nodes[0]
    wanted = evaluated(node, given)[0]
    found = evaluated(node, given | {"bias": given["bias"].bfloat16().double()})[0]
    assert int((found != wanted).sum()) > 100
    found[0, 0] += planted
    value = StepValue("y", node, 0, found, wanted, given, frozenset(), None)
    assert (judged(value, BF16, "uint8").share <= 1) is right
