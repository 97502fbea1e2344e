"""What backward reads of a batch norm in a plan of `cudnn`: never its result, where that was
clipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.steps.built_plan import Built, KernelCall
from golow.lower.ir.graph import Graph
from golow.lower.operators.batch_norm import BatchNorm
from golow.lower.plan.plan import Step
from support.direct.cudnn_plans import AskedEngines, lowered

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


def built(graph: Graph) -> Built:
    return build_plan(graph, cast("Engines", AskedEngines()), TYPES["bf16"], 4)


def steps(made: Built, operation: str, layers: set[str]) -> list[tuple[Step, KernelCall]]:
    """Those of an operation in these layers."""
    pairs = zip(made.plan.steps, made.calls, strict=True)
    return [
        (step, cast("KernelCall", call))
        for step, call in pairs
        if step.operation == operation and step.modules[0] in layers
    ]


def activated_norms(graph: Graph, residual: bool) -> set[str]:
    """The layers of norms that have an activation, with or without a residual before it."""
    norms = ((node.module, BatchNorm.of(node)) for node in graph.nodes)
    return {
        module
        for module, norm in norms
        if norm is not None and norm.activation and (norm.residual is not None) == residual
    }


@pytest.mark.slow
@pytest.mark.parametrize("residual", [False, True])
def test_backward_reads_a_mask_or_finds_the_result_again(residual: bool) -> None:
    graph = lowered("resnet18", "train", (64,))
    made, layers = built(graph), activated_norms(graph, residual)
    forward = steps(made, "batch_norm", layers)
    backward = steps(made, "batch_norm_backward", layers)
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
    graph = lowered("resnet18", "train", (64,))
    found = steps(built(graph), "batch_norm_backward", activated_norms(graph, residual=True))
    second = [call.arguments[1] for step, call in found if "layer4.1" in step.modules[0]]
    others = [call.arguments[1] for step, call in found if "layer4.1" not in step.modules[0]]
    assert second and not any(second)
    assert others and all(others)


def test_shortcuts_give_gradients_of_the_pixels_that_they_read() -> None:
    graph = lowered("resnet18", "train", (64,))
    found = steps(built(graph), "batch_norm_backward", activated_norms(graph, residual=True))
    some = {step.modules[0] for step, call in found if "SomePixels" in call.kernel.expression}
    assert some == {"layer1.1.bn2", "layer2.1.bn2", "layer3.1.bn2"}


@pytest.mark.slow
def test_each_kernel_of_a_norm_counts_what_it_moves_itself() -> None:
    """In units of the first layer's four images, in halves; vectors and sums are small."""
    made, images = built(lowered("resnet50", "train", (128,))), 4 * 64 * 64 * 64 * 2
    moved = {
        call.kernel.expression.partition("<")[0]: _of_images(step) / images
        for operation in ("batch_norm", "batch_norm_backward")
        for step, call in steps(made, operation, {"bn1"})
    }
    assert moved == {
        "moments_of_parts": 1, "normalize": 2, "join_parts": 0, "sums_of_parts": 2,
        "differentiate": 3,
    }  # fmt: skip


def _of_images(step: Step) -> int:
    sizes = [operand.bytes for operand in (*step.reads, *step.writes)]
    return sum(size for size in sizes if size > 100_000)
