"""Plans of linear layers of 8-bit numbers, whose kernels and products run on this processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.emit.plan_source import require_emitted
from golow.levels.direct.cudnn.engines.unchosen import UnchosenEngines
from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.planning import build_plan, refused_nodes
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.nvidia.known_gpus import KNOWN
from golow.lower.analysis.arithmetic import step_operations
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.lower.operators.layer_norm import LayerNorm
from golow.lower.operators.quantize import E4M3
from golow.records.errors import GolowError
from golow.records.quantization import QuantizationRule
from golow.records.workload import Precision
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, TimedEngines, assert_sound
from support.direct.libraries_on_cpu import Known, KnownEngines, LibrariesMachine
from support.models.narrow_blocks import CLASSES, gated, rows
from support.models.quantized_networks import quantized_blocks

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

RULES: tuple[QuantizationRule, ...] = ("fp8", "int8")


class Lacking(KnownEngines):
    """A library without some products."""

    def __init__(self, *, scaled: bool, narrow: bool) -> None:
        super().__init__()
        self._scaled, self._narrow = scaled, narrow

    def choose(self, operation: Any) -> Known | None:  # type: ignore[override]
        lacks = operation.scaled and not self._scaled
        lacks |= operation.arithmetic == "quarter" and not self._narrow
        return None if lacks else super().choose(operation)


def lowered(module: nn.Module, x: Tensor) -> tuple[Graph, dict[str, Tensor]]:
    """The graph at this level, and a tensor for each of its inputs."""
    prepared = prepare(Request(module, x))
    captured = capture(prepared)
    graph = apply(apply(captured.graph, CLEAN_UP), passes(prepared.workload))
    state = prepared.module.state_dict() | captured.constants | {"0": x}
    return graph, {item.value.name: state[item.target] for item in graph.inputs}


def products(graph: Graph, precision: Precision) -> list[Problem]:
    """The matrix products of the plan, in their order."""
    engines = KnownEngines()
    made = build_plan(graph, cast("Engines", engines), TYPES[precision], 1)
    assert_sound(made)
    return list(engines.operations.elements())  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("scaled", "narrow"), [(True, True), (False, True), (False, False)], ids=str
)
def test_every_value_is_right(rule: QuantizationRule, scaled: bool, narrow: bool) -> None:
    x = rows(2, 5)
    graph, tensors = lowered(gated(rule, x), x)
    engines = Lacking(scaled=scaled, narrow=narrow)
    follow(graph, cast("Engines", engines), tensors, LibrariesMachine)


def test_layers_of_e4m3_are_multiplied_as_such() -> None:
    """Gate and input are one product. The layer with odd outputs has no fitting rows."""
    x = rows(2, 5)
    graph, _ = lowered(gated("fp8", x), x)
    first, back, wide, narrow, head = products(graph, "bf16")
    assert (first.n, wide.n) == (2 * wide.n, 48)
    for product in (first, back, wide, narrow):
        assert (product.dtype, product.result) == (E4M3, "bfloat16")
    # The last two are rounded by a pass, which scales, too.
    assert [p.scaled for p in (first, back, wide, narrow)] == [True, True, False, False]
    assert [p.bias for p in (first, back, wide, narrow)] == [True, False, False, False]
    assert [p.residual for p in (first, back, wide, narrow)] == [False, True, False, False]
    assert (head.n, head.dtype, head.result) == (CLASSES, "bfloat16", "float32")


def test_layers_of_int8_are_multiplied_as_such() -> None:
    x = rows(2, 5)
    graph, _ = lowered(gated("int8", x), x)
    *narrow, head = products(graph, "bf16")
    assert {(p.dtype, p.result, p.scaled) for p in narrow} == {("int8", "int32", False)}
    # Its activations were never negative, and the library has no products of unsigned numbers.
    assert (head.dtype, head.result) == ("bfloat16", "float32")
    assert [norm.result_scale for node in graph.nodes if (norm := LayerNorm.of(node))] == [None]


def test_a_bias_of_float32_is_added_after_the_product() -> None:
    x = rows(2, 5)
    graph, _ = lowered(gated("fp8", x), x)
    first, back, *_ = products(graph, "default")
    assert (first.dtype, first.result, first.bias) == (E4M3, "float32", False)
    assert back.residual


@pytest.mark.parametrize("rule", RULES)
def test_full_float32_multiplies_no_numbers_of_e4m3(rule: QuantizationRule) -> None:
    """Sums of int8 are exact."""
    x = rows(2, 5)
    graph, _ = lowered(gated(rule, x), x)
    wanted = {"fp8": {"float32"}, "int8": {"int8", "float32"}}[rule]
    assert {product.dtype for product in products(graph, "ieee")} == wanted


def test_what_is_between_layers_of_one_reader_is_written_in_8_bits() -> None:
    x = rows(2, 5)
    graph, _ = lowered(gated("fp8", x), x)
    engines = cast("Engines", KnownEngines())
    plan = build_plan(graph, engines, TYPES["bf16"], 1).plan
    written = [step.writes[0].layout for step in plan.steps if step.operation == "scale"]
    assert written == [E4M3, E4M3, "bfloat16"]  # after wide, narrow and the head
    fused = [step.writes[0].layout for step in plan.steps if step.operation == "fused"]
    assert fused == [E4M3]
    norms = [step for step in plan.steps if step.operation in ("layer_norm", "rms_norm")]
    written = [[operand.layout for operand in step.writes] for step in norms]
    assert written == [["bfloat16", E4M3], [E4M3]]
    work = [step_operations(step) for step in plan.steps if step.operation == "quantized_linear"]
    assert work[0] == 2 * 10 * 32 * 96


@pytest.mark.parametrize(
    ("gpu", "scaled", "narrow"), [("h200", 2, 2), ("b200", 0, 4), ("a100", 0, 0)]
)
def test_a_known_gpu_has_the_products_that_its_library_has(
    gpu: str, scaled: int, narrow: int
) -> None:
    x = rows(2, 5)
    graph, _ = lowered(gated("fp8", x), x)
    engines = cast("Engines", UnchosenEngines(KNOWN[gpu], times=True))
    plan = build_plan(graph, engines, TYPES["bf16"], 1).plan
    found = [step for step in plan.steps if step.operation == "quantized_linear"]
    of_8_bits = [step for step in found if step.reads[0].layout == E4M3]
    assert len(found) == 5
    assert [len(step.reads) > 3 for step in of_8_bits].count(True) == scaled
    assert len(of_8_bits) == scaled + narrow


def test_convolutions_of_whole_numbers_run_as_floats() -> None:
    x = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    graph, _ = lowered(quantized_blocks(x), x)
    assert not list(refused_nodes(graph))
    build_plan(graph, cast("Engines", AskedEngines()), TYPES["bf16"], 1)


def test_they_have_no_form_in_a_program() -> None:
    x = rows(2, 5)
    graph, _ = lowered(gated("fp8", x), x)
    made = build_plan(graph, cast("Engines", KnownEngines()), TYPES["bf16"], 1)
    with pytest.raises(GolowError, match="by numbers of 8 bits, which the program"):
        require_emitted("a network", made)


@pytest.mark.parametrize(("slow", "wanted"), [("", True), ("scaled", False), ("quarter", None)])
def test_the_fastest_product_is_taken_where_products_are_timed(
    slow: str, wanted: bool | None
) -> None:
    """wanted: whether it scales; None if it is not of 8 bits."""

    def nanoseconds(problem: Problem) -> float:  # type: ignore[override]
        scaled = problem.scaled and slow == "scaled"
        return 1e6 if scaled or problem.arithmetic == slow else 1e3

    x = rows(2, 5)
    graph, _ = lowered(gated("fp8", x), x)
    engines = TimedEngines(nanoseconds, 1e4)  # type: ignore[arg-type]
    plan = build_plan(graph, cast("Engines", engines), TYPES["bf16"], 1).plan
    first = next(step for step in plan.steps if step.operation == "quantized_linear")
    narrow, scales = first.reads[0].layout == E4M3, len(first.reads) > 2
    assert (scales if narrow else None) is wanted
