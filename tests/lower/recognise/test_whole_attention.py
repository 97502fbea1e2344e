"""Attention that is kept whole: which calls, what they mean, and where its plan puts the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn.passes import attention_kernels, passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.problems.products import AttentionProblem
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.lower.operators.attention import Attention, AttentionBackward
from golow.lower.operators.expand import Expand
from golow.lower.operators.reduce import Reduce
from golow.lower.recognise.whole_attention import CUDNN, Kernels, keep_attention
from golow.records.workload import Mode, Precision
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound
from support.direct.libraries_on_cpu import KnownEngines, LibrariesMachine
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, assert_close, count
from support.models.heads import Heads

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


class Odd(nn.Module):
    """Attention with heads that are too narrow, too wide or too few."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.weight = kind, nn.Parameter(torch.ones(4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        images, length, _ = x.shape
        width = {"narrow": 4, "wide": 136}.get(self.kind, 16)
        heads = x.repeat(1, 1, width)[..., : 4 * width].view(images, length, 4, width)
        heads = heads.transpose(1, 2) * self.weight
        if self.kind == "three axes":
            return functional.scaled_dot_product_attention(heads[0], heads[1], heads[1])
        return functional.scaled_dot_product_attention(heads, heads, heads)


def of(module: nn.Module, mode: Mode) -> Case:
    torch.manual_seed(0)
    return Case(module, torch.randn(2, 6, 16), mode=mode)


def kept(case: Case) -> Graph:
    return case.after(*CLEAN_UP, keep_attention(CUDNN))


def lowered_whole(case: Case) -> Graph:
    """What the level builds its plan from, in half precision."""
    return apply(kept(case), passes(case.workload))


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [4, 2])
def test_attention_is_one_operator(mode: Mode, causal: bool, groups: int) -> None:
    case = of(Heads(causal, groups), mode)
    graph = kept(case)
    assert count(graph, Attention) == 1
    assert count(graph, AttentionBackward) == (mode == "train")
    assert_close(case.run(graph), case.run(case.graph), "kept")


class ChannelsFirst(nn.Module):
    """Attention of an image's pixels, whose channels come before them, as in diffusion models."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.Conv1d(6, 96, 1)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.heads(x).unflatten(1, (2, 48)).chunk(3, 2)
        found = functional.scaled_dot_product_attention(*(part.mT for part in heads))
        return found.mT.flatten(1, 2).mean(2)


def test_channels_before_pixels_are_no_obstacle_in_training() -> None:
    """PyTorch has no kernel for such strides, and would trace products and a softmax."""
    case = of(ChannelsFirst(), "train")
    graph = kept(case)
    assert count(graph, Attention) == count(graph, AttentionBackward) == 1
    assert_close(case.run(graph), case.run(case.graph), "kept")


MASKS = ["padding", "rows", "numbers"]
LIBRARY = CUDNN._replace(masked=0)
"""Kernels that take no mask of truth values."""


def masked(mask: str, mode: Mode, length: int = 8) -> Case:
    torch.manual_seed(0)
    return Case(Heads(mask=mask), torch.randn(2, length, 16), mode=mode)


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("mask", MASKS)
def test_a_mask_is_added_to_the_scores(mode: Mode, mask: str) -> None:
    """A row that sees nothing gives zero and has no gradient, as in PyTorch."""
    case = masked(mask, mode)
    graph = kept(case)
    assert count(graph, Attention) == 1
    assert count(graph, AttentionBackward) == (mode == "train")
    assert_close(case.run(graph), case.run(case.graph), "kept")


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("length", [8, 7])
def test_every_value_of_masked_attention_is_where_the_plan_says(
    mode: Mode, mask: str, length: int
) -> None:
    """Rows of what is added begin at multiples of 16 bytes: those of 7 numbers have gaps, which
    hold NaN here."""
    case = masked(mask, mode, length)
    graph = lowered_whole(case)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    engines = KnownEngines()
    follow(graph, cast("Engines", engines), tensors, LibrariesMachine, limit=1e-3)
    problems = [found for found in engines.operations if isinstance(found, AttentionProblem)]
    assert len(problems) == (2 if mode == "train" else 1)
    for problem in problems:
        assert problem.added is not None and problem.added.shape[3] == length
        assert problem.added.strides[2:] == (length if problem.added_dtype == "bool" else 8, 1)


class Twice(nn.Module):
    """Two layers of attention with the same mask."""

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.ones(8, 8).tril().bool()
        for _ in range(2):
            x = functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        return x


def test_layers_share_what_their_mask_becomes() -> None:
    case = Case(Twice(), torch.randn(2, 3, 8, 16))
    graph = case.after(*CLEAN_UP, keep_attention(LIBRARY))
    assert count(graph, Attention) == 2
    assert count(graph, Expand) == 1


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("mask", ["padding", "rows"])
def test_a_mask_of_truth_values_needs_no_pass_over_the_result(mode: Mode, mask: str) -> None:
    """Where a kernel hides scores by it and sets rows that see nothing to zero, as ALBERT needs."""
    kernels = attention_kernels(mode, "tf32")
    assert kernels is not None
    case = masked(mask, mode)
    graph = case.after(*CLEAN_UP, keep_attention(kernels))
    assert count(graph, Attention) == 1
    assert not [node for node in graph.nodes if ".seen" in node.name or ".sees" in node.name]
    assert_close(case.run(graph), case.run(case.graph), "kept")
    engines = AskedEngines()
    lowered = apply(graph, passes(case.workload))
    made = build_plan(lowered, cast("Engines", engines), TYPES["tf32"], 1)
    assert_sound(made)
    problems = [p for p in engines.operations if isinstance(p, AttentionProblem)]
    assert [p.added_dtype for p in problems] == ["bool"] * (2 if mode == "train" else 1)


def test_a_mask_of_many_keys_is_numbers_for_the_library() -> None:
    for masked_keys, choices in ((8, 0), (7, 1)):
        graph = masked("padding", "infer").after(
            *CLEAN_UP, keep_attention(CUDNN._replace(masked=masked_keys))
        )
        assert count(graph, Reduce) == choices


class OneLayer(nn.Module):
    """Two passes through one layer with a mask, as in ALBERT."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Heads(mask="padding")
        self.outer = nn.Linear(16, 8 * 16)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = self.outer(self.layer(x)).view(-1, 8, 16)
        return x.flatten(1)


def test_gradients_of_a_layer_that_runs_twice_have_names_of_their_own() -> None:
    case = Case(OneLayer(), torch.randn(2, 8, 16), mode="train")
    graph = kept(case)
    assert count(graph, AttentionBackward) == 2
    assert_close(case.run(graph), case.run(case.graph), "kept")


@pytest.mark.parametrize("kind", ["narrow", "wide", "three axes"])
def test_what_flash_attention_does_not_compute_is_unfolded(kind: str) -> None:
    assert count(kept(of(Odd(kind), "infer")), Attention) == 0


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("causal", [False, True])
def test_every_value_is_where_the_plan_says(mode: Mode, causal: bool) -> None:
    case = of(Heads(causal), mode)
    graph = lowered_whole(case)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


def test_heads_are_read_as_they_lie() -> None:
    """No copy turns query, key and value, and none turns the result."""
    graph = lowered_whole(of(Heads(), "train"))
    engines = AskedEngines()
    made = build_plan(graph, cast("Engines", engines), TYPES["bf16"], 1)
    assert_sound(made)
    assert [p.causal for p in engines.operations if isinstance(p, AttentionProblem)] == [False] * 2
    assert not [step for step in made.plan.steps if step.operation == "permute"]


@pytest.mark.parametrize(
    ("precision", "mode", "rows"),
    [("tf32", "infer", [1]), ("tf32", "train", [1, 1]), ("bf16", "infer", [1]),
     ("bf16", "train", [8, 8])],
)  # fmt: skip
def test_a_mask_of_padding_stays_one_row(precision: Precision, mode: Mode, rows: list[int]) -> None:
    """Which is the same for all rows and heads; cuDNN gets every row in training."""
    found = added_shapes(AskedEngines(), mode, precision)
    assert found == [(2, 1, count, 8) for count in rows]


def test_a_mask_is_repeated_where_only_all_rows_have_an_engine() -> None:
    assert added_shapes(EveryRow(), "infer", "bf16", LIBRARY) == [(2, 1, 8, 8)]


class EveryRow(AskedEngines):
    """Engines that do not add one row to all."""

    def choose(self, operation: Any) -> Any:
        added = operation.added if isinstance(operation, AttentionProblem) else None
        return super().choose(operation) if added is None or added.shape[2] > 1 else None


def added_shapes(
    engines: AskedEngines, mode: Mode, precision: Precision, kernels: Kernels | None = None
) -> list[tuple[int, ...]]:
    """The shapes of what the engines of a sound plan add to scores, forward first. kernels: by
    default those of the precision."""
    case = masked("padding", mode)
    kernels = kernels or attention_kernels(mode, precision)
    assert kernels is not None
    whole = case.after(*CLEAN_UP, keep_attention(kernels))
    graph = apply(whole, passes(case.workload))
    assert_sound(build_plan(graph, cast("Engines", engines), TYPES[precision], 1))
    problems = [p for p in engines.operations if isinstance(p, AttentionProblem)]
    return [problem.added.shape for problem in problems if problem.added is not None]


@pytest.mark.parametrize(
    ("precision", "mode", "width", "whole"),
    [
        ("bf16", "train", 128, 1), ("fp16", "infer", 128, 1), ("tf32", "infer", 128, 1),
        ("tf32", "train", 128, 0), ("tf32", "train", 64, 1), ("ieee", "infer", 64, 0),
        ("default", "infer", 64, 0),
    ],
)  # fmt: skip
def test_attention_is_whole_where_there_is_a_kernel(
    precision: Precision, mode: Mode, width: int, whole: int
) -> None:
    kernels = attention_kernels(mode, precision)
    further = [keep_attention(kernels)] if kernels else []
    graph = of(Heads(width=width), mode).after(*CLEAN_UP, *further)
    assert count(graph, Attention) == whole
    assert count(graph, AttentionBackward) == (whole if mode == "train" else 0)
