"""Gradients of slices in whole networks: what the levels compute, and what their plans copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.problems.products import AttentionProblem
from golow.levels.direct.cudnn.steps.built_plan import Built
from golow.levels.direct.onednn import level as onednn
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.gather import Scatter
from golow.lower.operators.pad import Pad
from golow.lower.plan.memory_traffic import moves_only
from golow.lower.recognise.whole_attention import CUDNN, keep_attention
from golow.records.workload import Mode
from support.direct import onednn_in_process
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound
from support.direct.in_process import assert_right
from support.direct.libraries_on_cpu import KnownEngines, LibrariesMachine
from support.examples import most_in_training
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, count

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

WIDTH, HEADS, LENGTH, IMAGES = 32, 4, 6, 3

needs_onednn = pytest.mark.skipif(not onednn.probe().available, reason="oneDNN is not installed")


class Attended(nn.Module):
    """Attention of x [B, L, 32] after a norm, with query, key and value taken from one projection
    in some way, and the residual."""

    def __init__(self, parts: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.parts, self.norm = parts, nn.LayerNorm(WIDTH)
        self.inner, self.outer = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(self.inner(self.norm(x)))
        found = functional.scaled_dot_product_attention(query, key, value)
        return self.last((x + self.outer(found.transpose(1, 2).flatten(2))).mean(1))


def heads(x: Tensor) -> Tensor:
    return x.view(IMAGES, LENGTH, HEADS, -1).transpose(1, 2)


def by_chunk(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(heads(part) for part in x.chunk(3, -1))


def by_slices(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(heads(x[..., i * WIDTH : (i + 1) * WIDTH]) for i in range(3))


def by_index(x: Tensor) -> tuple[Tensor, ...]:
    whole = x.view(IMAGES, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
    return whole[0], whole[1], whole[2]


def by_unbind(x: Tensor) -> tuple[Tensor, ...]:
    return x.view(IMAGES, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)


def within_heads(x: Tensor) -> tuple[Tensor, ...]:
    """Each head's query, key and value are adjacent."""
    return heads(x).chunk(3, -1)


class Encoder(nn.Module):
    """PyTorch's own attention, with the batch first or second."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)
        self.last = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        y = x + self.attention(y, y, y, need_weights=False)[0]
        return self.last(y.mean(1))


class Windows(nn.Module):
    """Attention within windows of 2x2 pixels of an image of 4x4, as in Swin, shifted by a pixel or
    not; its scores are written out."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift, self.norm = shift, nn.LayerNorm(16)
        self.inner, self.outer = nn.Linear(16, 48), nn.Linear(16, 16)
        self.bias, self.last = nn.Parameter(torch.randn(2, 4, 4)), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.pad(self.norm(x).view(-1, 4, 4, 16), (0, 0, 0, 0, 0, 0))
        y = y.roll((-self.shift, -self.shift), (1, 2)) if self.shift else y
        y = y.view(-1, 2, 2, 2, 2, 16).transpose(2, 3).reshape(-1, 4, 16)
        parts = self.inner(y).view(-1, 4, 3, 2, 8).permute(2, 0, 3, 1, 4)
        scores = (parts[0] * 0.3) @ parts[1].transpose(-2, -1) + self.bias
        y = (scores.softmax(-1) @ parts[2]).transpose(1, 2).reshape(-1, 4, 16)
        y = self.outer(y).view(-1, 2, 2, 2, 2, 16).transpose(2, 3).reshape(-1, 4, 4, 16)
        y = y.roll((self.shift, self.shift), (1, 2)) if self.shift else y
        return self.last((x + y[:, :4, :4].reshape(x.shape)).mean(1))


class Shuffled(nn.Module):
    """Halves of the channels, one of which passes a layer; then they are shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 1), nn.Conv2d(4, 4, 1)
        self.last = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = torch.cat((x[:, :4], self.second(x[:, 4:])), 1)
        y = y.view(-1, 2, 4, *y.shape[2:]).transpose(1, 2).flatten(1, 2)
        return self.last(y.mean((2, 3)))


class Uneven(nn.Module):
    """Slices of unequal width, with a gap, along two axes, and one that overlaps."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(WIDTH, 12), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        a, b, c = y[:, :2, :5], y[:, 2:, 5:10], y[:, 1:3, 3:8]
        return self.last((a.sin() + b[:, :2] * c + y[:, :2, 7:].cos()).mean(1))


class Merged(nn.Module):
    """Neighbours of an image side by side, as Swin's patches are merged."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x).view(IMAGES, LENGTH, 4, 8)
        parts = [y[:, i::2, j::2] for j in range(2) for i in range(2)]
        return self.last(torch.cat(parts, -1).sin().mean((1, 2)))


class Rotated(nn.Module):
    """A rotary embedding that turns halves of the heads, or neighbours. The layer has no bias."""

    def __init__(self, neighbours: bool) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.inner, self.last = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, 4)
        self.register_buffer("sine", torch.rand(LENGTH, 8))
        self.register_buffer("cosine", torch.rand(LENGTH, 8))

    def forward(self, x: Tensor) -> Tensor:
        y = heads(self.inner(x))
        if self.neighbours:
            turned = torch.stack((-y[..., 1::2], y[..., ::2]), -1).flatten(-2)
        else:
            turned = torch.cat((-y[..., 4:], y[..., :4]), -1)
        y = y * self.cosine + turned * self.sine
        return self.last(y.transpose(1, 2).flatten(2).mean(1))


class TwoOrders(nn.Module):
    """A layer whose operand's rows are in another order than those of its result's gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.randn(16)), nn.Linear(16, 5)
        self.last = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = (x * self.scale).view(3, 2, 4, 16).permute(1, 0, 2, 3).reshape(-1, 16)
        y = self.inner(y).view(2, 3, 4, 5).permute(1, 2, 0, 3)
        return self.last((50 * y).sin().mean((1, 2)))


class Sums(nn.Module):
    """Sums over rows with gaps between them, and over transposed matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(WIDTH, 12), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        rows = y[..., 2:8].sum((0, 1))
        return self.last(y.mean(1)[:, :6] * rows + y.transpose(1, 2).sum((0, 1)))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "chunk": lambda: Attended(by_chunk),
    "slices": lambda: Attended(by_slices),
    "index": lambda: Attended(by_index),
    "unbind": lambda: Attended(by_unbind),
    "within heads": lambda: Attended(within_heads),
    "batch first": lambda: Encoder(True),
    "batch second": lambda: Encoder(False),
    "windows": lambda: Windows(0),
    "shifted windows": lambda: Windows(1),
    "shuffled": Shuffled,
    "uneven": Uneven,
    "merged": Merged,
    "halves": lambda: Rotated(False),
    "neighbours": lambda: Rotated(True),
    "two orders": TwoOrders,
    "sums": Sums,
}
ATTENDED = ["chunk", "slices", "index", "unbind", "batch first", "batch second"]


def given(name: str) -> Tensor:
    torch.manual_seed(0)
    sizes: dict[str, tuple[int, ...]] = {
        "shuffled": (3, 4, 5, 4), "batch second": (LENGTH, IMAGES, WIDTH), "two orders": (3, 8, 16),
    }  # fmt: skip
    usual = (IMAGES, 16, 16) if "windows" in name else (IMAGES, LENGTH, WIDTH)
    return torch.randn(sizes.get(name, usual))


def whole_attention(name: str, mode: Mode) -> Graph:
    """The graph as `cudnn` gets it in half precision."""
    x = given(name)
    case = Case(NETWORKS[name](), x, mode=mode)
    return apply(case.after(*CLEAN_UP, keep_attention(CUDNN)), passes(case.workload))


def half_plan(name: str) -> tuple[Built, AskedEngines]:
    engines = AskedEngines()
    graph = whole_attention(name, "train")
    made = build_plan(graph, cast("Engines", engines), TYPES["bf16"], 1)
    assert_sound(made)
    return made, engines


@pytest.mark.slow
@most_in_training
@pytest.mark.parametrize("name", NETWORKS)
def test_passes_keep_what_a_network_means(name: str, mode: Mode) -> None:
    """After every pass of both levels; padding is left where slices overlap."""
    x = given(name)
    case = Case(NETWORKS[name](), x, mode=mode)
    for level in ("onednn", "cudnn"):
        graph = case.lowered(level)  # type: ignore[arg-type]
        assert (count(graph, Pad) > 0) == (name in ("uneven", "sums") and mode == "train")


@most_in_training
@pytest.mark.parametrize("name", NETWORKS)
def test_every_value_is_where_the_plan_says(name: str, mode: Mode) -> None:
    """Products and attention are computed on the plan's memory, too."""
    graph = whole_attention(name, mode)
    torch.manual_seed(0)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    small = {name: 0.3 * t.sub(0.6) if t.is_floating_point() else t for name, t in tensors.items()}
    follow(graph, cast("Engines", KnownEngines()), small, LibrariesMachine)


@pytest.mark.slow
@needs_onednn
@most_in_training
@pytest.mark.parametrize("name", NETWORKS)
def test_onednn_computes_what_torch_does(name: str, mode: Mode) -> None:
    x = given(name)
    network = onednn_in_process.lower(NETWORKS[name](), x, mode)
    assert_right(network, onednn_in_process.compute(network))


@pytest.mark.parametrize("name", ATTENDED)
def test_gradients_are_written_where_they_are_joined(name: str) -> None:
    """Nothing is copied for its layout between the loss and the first layer's gradients."""
    made, engines = half_plan(name)
    moved = Counter(step.operation for step in made.plan.steps if moves_only(step))
    assert not moved
    [problem] = [
        operation
        for operation in engines.operations
        if isinstance(operation, AttentionProblem) and operation.gradient is not None
    ]
    pitch = {place.strides[2] for place in (problem.of_query, problem.of_key) if place}
    row = 3 * WIDTH * (IMAGES if name == "batch second" else 1)
    assert pitch == {row}


def test_gradients_within_heads_are_written_where_they_are_joined() -> None:
    made, _ = half_plan("within heads")
    assert not [step for step in made.plan.steps if moves_only(step)]


def test_one_concatenation_takes_the_place_of_three_paddings() -> None:
    graph = whole_attention("index", "train")
    assert count(graph, Concatenate) == 1
    assert count(graph, Pad) == 0


@pytest.mark.parametrize("name", ["windows", "shifted windows"])
def test_windows_are_copied_for_heads_alone(name: str) -> None:
    """Query, key and value at once, the heads' results and their gradient, and the gradients of key
    and value; that of the query is computed in its place. Images are read and written as they
    are stored, but for a roll."""
    made, _ = half_plan(name)
    moved = Counter((step.operation, step.phase) for step in made.plan.steps if moves_only(step))
    del moved["copy", "update"]  # the bias's gradient
    assert moved == {
        ("reshape", "forward"): 2, ("reshape", "backward"): 1, ("concatenate", "backward"): 1,
    }  # fmt: skip


def test_gradients_of_every_second_element_are_joined() -> None:
    graph = whole_attention("merged", "train")
    assert count(graph, Scatter) + count(graph, Pad) == 0
    assert count(graph, Concatenate) == 4  # of which one is the network's


@pytest.mark.parametrize("name", ["halves", "neighbours"])
def test_a_rotation_is_one_kernel_each_way(name: str) -> None:
    """Tables that no step changes are read where they are stored."""
    made, _ = half_plan(name)
    kinds = Counter((step.operation, step.phase) for step in made.plan.steps)
    assert not [kind for kind in kinds if kind[0] in ("copy", "concatenate", "reshape")]
    assert kinds["fused", "forward"] == 1
    assert kinds["fused", "backward"] == 2  # the mean's and the rotation's
