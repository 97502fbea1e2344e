"""What backward reads of a batch norm in a plan of `cudnn`: never its result, where that was
clipped."""

from __future__ import annotations

from typing import cast

import pytest

from golow.levels.vendor.cudnn.builder import Builder
from golow.levels.vendor.cudnn.operators import OPERATORS
from golow.levels.vendor.cudnn.operators.update import finish
from golow.levels.vendor.cudnn.precision import TYPES
from golow.levels.vendor.cudnn.steps import Built, KernelCall
from golow.lower.graph import Graph
from golow.lower.plan import Step
from test_cudnn_plans import AskedEngines, lowered


def built(graph: Graph) -> Built:
    engines = cast("object", AskedEngines())
    return Builder(graph, engines, TYPES["bf16"], 4).build(OPERATORS, finish)  # type: ignore[arg-type]


def steps(made: Built, operation: str) -> list[tuple[Step, KernelCall]]:
    pairs = zip(made.plan.steps, made.calls, strict=True)
    return [(s, cast("KernelCall", call)) for s, call in pairs if s.operation == operation]


@pytest.mark.parametrize("residual", [False, True])
def test_backward_reads_a_mask_or_finds_the_result_again(residual: bool) -> None:
    made = built(lowered("resnet18", "train", (64,)))
    name = "batch_norm_activated" if residual else "batch_norm_relu"
    forward, backward = steps(made, name), steps(made, f"{name}_backward")
    assert forward and backward
    results = {call.arguments[4].buffer for _, call in forward if call.arguments[4]}
    masks = {call.arguments[9].buffer for _, call in forward if call.arguments[9]}
    assert len(masks) == (len({step.writes[0].buffer for step, _ in forward}) if residual else 0)
    for step, call in backward:
        read = {operand.buffer for operand in step.reads}
        assert not read & results
        assert len(read & masks) == int(residual)
        mask, shift = call.arguments[2], call.arguments[5]
        assert (mask is not None) == residual and shift is not None
        assert ("BITS" if residual else "AGAIN") in call.kernel.expression or (
            "join_parts" in call.kernel.expression
        )


def test_a_second_gradient_is_an_operand() -> None:
    """Where a block's input was read twice; the last block's result was read once."""
    found = steps(built(lowered("resnet18", "train", (64,))), "batch_norm_activated_backward")
    second = [call.arguments[1] for step, call in found if "layer4.1" in step.modules[0]]
    others = [call.arguments[1] for step, call in found if "layer4.1" not in step.modules[0]]
    assert second and not any(second)
    assert others and all(others)
