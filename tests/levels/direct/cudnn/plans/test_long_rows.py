"""Long rows with gaps: which products write and read them, in which parts, and that whole training
steps of language models are right where their scores are so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.gemm import CONTIGUOUS, Problem, Strides
from golow.levels.direct.cudnn.problems.layouts import layout_of, pitch_of
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.steps.built_plan import LOSS_SCALE, Built, EngineCall, FlatCall
from golow.levels.direct.cudnn.steps.built_plan import Tensor as Placed
from golow.levels.direct.cudnn.steps.long_rows import LONG, Product, in_parts
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Precision
from golow.workload.graph_capture import capture
from golow.workload.losses import token_cross_entropy
from golow.workload.prepare import Prepared, prepare
from golow.workload.request import Request
from support.direct.cublaslt_cases import Case as Operands
from support.direct.cublaslt_cases import places
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import assert_sound
from support.direct.libraries_on_cpu import Known, KnownEngines, LibrariesMachine, multiply
from support.examples import examples
from support.models.long_rows import HEADS, TOKENS, VOCABULARY, Language

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


# ---------------------------------------------------------------- parts of a product

SIZES = st.sampled_from([3, 16, 1024, 1027, 1030])


@pytest.mark.slow
@examples(60)
@given(
    m=SIZES, n=SIZES, k=SIZES, gaps=st.tuples(*[st.booleans()] * 3),
    turned=st.tuples(*[st.booleans()] * 2), factor=st.sampled_from([1, 2]),
    kind=st.sampled_from([("float32", "ieee"), ("bfloat16", "half")]),
)  # fmt: skip
def test_parts_are_the_product(
    m: int, n: int, k: int, gaps: tuple[bool, ...], turned: tuple[bool, bool], factor: int,
    kind: tuple[str, str],
) -> None:  # fmt: skip
    """The parts are right together, and leave gaps as they were."""
    dtype, arithmetic = kind
    plain = Problem(
        m=m, n=n, k=k, dtype=dtype, result=dtype, arithmetic=arithmetic,  # type: ignore[arg-type]
        transpose_a=turned[0], transpose_b=turned[1], factor=factor, alignment=64,
    )  # fmt: skip
    pitches = {
        name: Strides(row=pitch_of(plain.matrices[name].columns, dtype)) if has else CONTIGUOUS
        for name, has in zip("abd", gaps, strict=True)
    }
    case = Operands(replace(plain, **pitches))
    whole, memory = case.problem, [case.memory[name] for name in "abd"]
    parts = parts_of(whole)
    long = [whole.matrices[name] for name in "ad" if whole.matrices[name].columns >= LONG]
    assert len(parts) == 1 or any(matrix.row > matrix.columns for matrix in long)
    for part in parts:
        operands = [*part.reads, part.result]
        own = part.problem
        assert all({*t.shape} <= {m, n, k, own.m, own.n, own.k} for t in operands)
        assert all(tensor.offset % part.problem.alignment == 0 for tensor in operands)
        firsts = [(t.buffer, t.offset // ITEM_BYTES[dtype]) for t in operands]
        multiply(part.problem, [memory[buffer][first:] for buffer, first in firsts])
    assert (np.abs(case.matrix("d") - case.expected) <= case.tolerance).all()
    gap = np.ones(len(case.memory["d"]), bool)
    gap[places(whole.matrices["d"], 1)] = False
    assert np.isnan(case.memory["d"][gap]).all()


def test_the_larger_part_has_sizes_that_tensor_cores_like() -> None:
    """For scores, their gradient's product with the weight, and the gradient of the weight."""
    half = Problem(1024, 50257, 768, "bfloat16", "bfloat16", "half", alignment=64)
    scores = replace(half, transpose_b=True, d=Strides(50264))
    of_x = replace(half, n=768, k=50257, a=Strides(50264))
    of_weight = replace(
        half, m=50257, n=768, k=1024, transpose_a=True, a=Strides(50264)
    )  # fmt: skip
    found = [
        [(part.problem.m, part.problem.n, part.problem.k) for part in parts_of(problem)]
        for problem in (scores, of_x, of_weight)
    ]
    assert found == [
        [(1024, 50256, 768), (1024, 1, 768)],
        [(1024, 768, 1), (1024, 768, 50256)],
        [(50256, 768, 1024), (1, 768, 1024)],
    ]
    assert [part.problem.residual for part in parts_of(of_x)] == [False, True]


def parts_of(problem: Problem) -> list[Product]:
    tensors = [
        Placed(
            index,
            (matrix.rows, matrix.columns),
            layout_of(problem.dtype, (matrix.rows, matrix.columns), (matrix.row, 1)),
        )
        for index, matrix in enumerate(problem.matrices[name] for name in "abd")
    ]
    return in_parts(Product(problem, tensors[:2], tensors[2]))


# ---------------------------------------------------------------- plans


def lowered(module: nn.Module, targets: Tensor | None = None) -> tuple[Graph, Prepared]:
    """A training step, and what it was captured from."""
    torch.manual_seed(0)
    wanted = torch.tensor([[0, 1026, 3], [4, 4, 1025]]) if targets is None else targets
    request = Request(module, TOKENS, mode="train", targets=wanted, loss=token_cross_entropy)
    prepared = prepare(request)
    return apply(apply(capture(prepared).graph, CLEAN_UP), passes(prepared.workload)), prepared


def planned(module: nn.Module, precision: Precision) -> Built:
    made = build_plan(lowered(module)[0], cast("Engines", KnownEngines()), TYPES[precision], 1)
    assert_sound(made)
    return made


def problems(made: Built) -> Iterator[Problem]:
    for call in made.calls:
        if isinstance(call, EngineCall) and isinstance(call.engine, Known):
            yield call.engine.operation


@pytest.mark.parametrize("precision", ["default", "bf16", "fp16"])
@pytest.mark.parametrize("name", HEADS)
def test_scores_and_their_gradient_are_read_as_they_lie(name: str, precision: Precision) -> None:
    """No step copies them, and all products with them are told of the gaps."""
    made = planned(HEADS[name](), precision)
    wide = [
        step.operation
        for step in made.plan.steps
        for operand in step.writes
        if VOCABULARY in operand.shape and 6 in operand.shape
    ]
    # A linear layer's rows are written with their gaps, and a second product writes beside the
    # first one.
    product = {} if "bias" in name else {"matrix_product": 1}
    assert Counter(wide) == {"cross_entropy_backward": 1, **product}
    pitch = pitch_of(VOCABULARY, TYPES[precision].computed)
    with_gaps = [p for p in problems(made) if Strides(pitch).row in (p.a.row, p.d.row)]
    assert Counter((p.a.row, p.d.row) for p in with_gaps) == {(None, pitch): 2, (pitch, None): 4}


def test_scores_that_something_else_reads_have_no_gaps() -> None:
    made = planned(Language(capped=True), "bf16")
    assert {p.d for p in problems(made)} == {CONTIGUOUS}


def test_short_rows_have_no_gaps_in_training() -> None:
    module = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 1021, bias=False))
    graph, _ = lowered(module, TOKENS)
    made = build_plan(graph, cast("Engines", KnownEngines()), TYPES["bf16"], 1)
    assert {(p.a, p.d) for p in problems(made)} == {(CONTIGUOUS, CONTIGUOUS)}


# ---------------------------------------------------------------- whole steps


@pytest.mark.parametrize("name", HEADS)
def test_every_value_is_where_its_plan_says(name: str) -> None:
    graph, prepared = lowered(HEADS[name]())
    follow(graph, cast("Engines", KnownEngines()), given_to(graph, prepared), LibrariesMachine)


def given_to(graph: Graph, prepared: Prepared) -> dict[str, Tensor]:
    state, batch = prepared.module.state_dict(), prepared.batches[0]
    by_kind = {("input", str(i)): t for i, t in enumerate(batch.inputs)}
    by_kind |= {("target", str(i)): t for i, t in enumerate(batch.targets)}
    by_kind |= {("parameter", name): t.detach().clone() for name, t in state.items()}
    return {
        item.value.name: by_kind.get((item.kind, item.target), torch.zeros(item.value.shape))
        for item in graph.inputs
    }


@pytest.mark.parametrize("precision", ["default", "bf16", "fp16"])
@pytest.mark.parametrize("name", HEADS)
def test_a_step_has_pytorchs_loss_and_gradients(name: str, precision: Precision) -> None:
    """Also in half precision, where the loss is scaled for float16. The update is not run."""
    graph, prepared = lowered(HEADS[name]())
    made = build_plan(graph, cast("Engines", KnownEngines()), TYPES[precision], 1)
    found = stepped(made, graph, given_to(graph, prepared), 64.0)
    module, batch = prepared.module.double(), prepared.batches[0]
    loss = token_cross_entropy(module(*batch.inputs), *batch.targets)
    loss.backward()
    limit = {"default": 1e-5, "bf16": 2e-2, "fp16": 3e-3}[precision]
    torch.testing.assert_close(found["loss"], loss.detach(), rtol=limit, atol=0)
    gradients = {key: p.grad for key, p in module.named_parameters()}
    assert gradients.keys() == found.keys() - {"loss"}
    for key, exact in gradients.items():
        assert exact is not None
        distance = (found[key] - exact).norm() / exact.norm()
        assert distance < limit, (key, distance)


def stepped(
    made: Built, graph: Graph, tensors: dict[str, Tensor], scale: float
) -> dict[str, Tensor]:
    """The loss and the gradients by parameter, each when it is about to be used, without the scale
    of the loss. Everything but the update runs on this processor."""
    machine = LibrariesMachine(made)
    named = {name: tensor.numpy() for name, tensor in tensors.items()}
    given = {(item.kind, item.target): named[item.value.name] for item in graph.inputs}
    machine.begin(given, named)
    for master, copy in made.copies:
        machine.write(copy, machine.read(master))
    scaled = LOSS_SCALE in made.cells
    if scaled:
        place = machine.seen(made.cells[LOSS_SCALE])
        place[:4] = np.array([scale], np.float32).view(np.uint8)
    found: dict[str, Tensor] = {}
    for step, call in zip(made.plan.steps, made.calls, strict=True):
        if isinstance(call, FlatCall):
            touched = {operand.buffer for operand in step.reads}
            for (kind, target), tensor in made.outputs.items():
                if kind == "gradient" and (scaled or tensor.buffer in touched):
                    value = torch.from_numpy(machine.read(tensor)).double()
                    found.setdefault(target, value / (scale if scaled else 1))
        elif step.operation not in ("next_scale", "count"):
            assert machine.call(call), step.operation
    loss = made.outputs["loss", "loss"]
    return found | {"loss": torch.from_numpy(machine.read(loss)).double().reshape(())}
