"""Caches that a step keeps as state: their updates and attention over them, found in what models
write; and nothing else taken for them."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.onednn.passes import INFERENCE
from golow.lower.capture.capture import capture_inference, capture_step
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph, GraphOutput, Pass
from golow.lower.ir.verify import interpret
from golow.lower.operators.cache_update import CacheUpdate
from golow.lower.operators.cached_attention import CachedAttention
from golow.lower.recognise.caches import keep_caches
from golow.lower.recognise.positions import MOST_NODES, places_of, seen_by
from support.examples import examples
from support.graphs.lowering import count
from support.models.cached_steps import MASKS, WRITES, CachedStep, Layer, Mask, Sizes, Write


def captured(step: nn.Module, tokens: int = 3, batch: int = 2, own: bool = False) -> Graph:
    """own: each text has a position of its own."""
    position = torch.full((batch, 1), 4) if own else torch.tensor(4)
    sample = torch.zeros(batch, tokens, dtype=torch.int64), position
    return capture_step("step", step, sample).graph


def after(graph: Graph, *passes: Pass) -> Graph:
    for run in (*CLEAN_UP, *passes):
        graph = run(graph)
    return graph


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("tokens", [1, 3])
def test_every_way_of_writing_is_found(write: Write, mask: Mask, tokens: int) -> None:
    graph = after(captured(CachedStep(Sizes(), write, mask), tokens), *INFERENCE)
    assert count(graph, CacheUpdate) == 4
    assert count(graph, CachedAttention) == 2
    assert [item.kind for item in graph.outputs] == ["output", *4 * ["buffer"]]
    assert not [node.op for node in graph.nodes if not node.op.startswith("golow.")]


@pytest.mark.parametrize("mask", ["plain", "window"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_positions_of_texts_are_found(mask: Mask, tokens: int) -> None:
    graph = after(captured(CachedStep(Sizes(), mask=mask), tokens, own=True), *INFERENCE)
    assert count(graph, CacheUpdate) == 4
    assert count(graph, CachedAttention) == 2


def test_positions_of_texts_are_found_in_every_layer_of_a_deep_network() -> None:
    step = CachedStep(Sizes(layers=20))
    graph = after(captured(step, own=True), keep_caches)
    assert len(graph.nodes) > MOST_NODES
    assert count(graph, CacheUpdate) == 40


class Swapped(Layer):
    """Each text at the position of another one, or its mask."""

    def __init__(self, rows: bool) -> None:
        super().__init__(Sizes(), "copy", "plain", 0)
        self.rows = rows

    def forward(self, hidden: Tensor, position: Tensor) -> Tensor:
        new = hidden.unflatten(2, (-1, 8)).transpose(1, 2)[:, :2]
        rows = position + torch.arange(hidden.shape[1])
        other = position[1:] + torch.arange(hidden.shape[1])
        given = (other.expand_as(rows) if self.rows else rows)[:, None, :, None].expand_as(new)
        self.keys.scatter_(2, given, new)
        seen = torch.arange(24) <= (rows if self.rows else other)[:, None, :, None]
        return functional.scaled_dot_product_attention(new, self.keys, self.keys, attn_mask=seen)


@pytest.mark.parametrize("rows", [True, False])
def test_positions_of_other_texts_stay_what_they_are(rows: bool) -> None:
    sample = torch.randn(2, 3, 32), torch.tensor([[4], [5]])
    graph = after(capture_step("step", Swapped(rows), sample).graph, keep_caches)
    assert (count(graph, CacheUpdate), count(graph, CachedAttention)) == (not rows, rows)


@pytest.mark.parametrize("late", [-1, 1])
def test_a_mask_that_is_off_by_one_stays_a_mask(late: int) -> None:
    graph = after(captured(CachedStep(Sizes(), late=late)), *INFERENCE)
    assert count(graph, CacheUpdate) == 4
    assert count(graph, CachedAttention) == 0


@pytest.mark.parametrize("place", [torch.tensor(7), torch.tensor([[7], [2]])])
@pytest.mark.parametrize("late", [0, 1])
def test_the_graph_computes_what_the_module_does(late: int, place: Tensor) -> None:
    torch.manual_seed(0)
    step = CachedStep(Sizes(), late=late).double()
    for buffer in step.buffers():
        buffer.normal_()
    tokens = torch.randint(31, (2, 3))
    graph = after(captured(copy.deepcopy(step), own=place.dim() > 0), *INFERENCE)
    state = step.state_dict()
    given = {
        item.value.name: tokens
        if (item.kind, item.target) == ("input", "0")
        else place
        if item.kind == "input"
        else state[item.target].clone()
        for item in graph.inputs
    }
    found = interpret(graph, given)
    logits = step(tokens, place)
    torch.testing.assert_close(found["output/0"], logits, rtol=1e-9, atol=1e-9)
    for name, buffer in step.named_buffers():
        torch.testing.assert_close(found[f"buffer/{name}"], buffer, rtol=1e-9, atol=1e-9)


def test_plain_inference_keeps_no_state() -> None:
    """Where no state was asked for, the level refuses what changes it, as before."""
    sample = torch.zeros(2, 3, dtype=torch.int64), torch.tensor(4)
    graph = capture_inference("step", CachedStep(Sizes()), sample).graph
    assert [item.kind for item in graph.outputs] == ["output"]
    assert keep_caches(graph) == graph


class Strided(Layer):
    """Writes every second row."""

    def forward(self, hidden: Tensor, position: Tensor) -> Tensor:
        rows = position + 2 * torch.arange(hidden.shape[1])
        self.keys.index_copy_(2, rows, hidden.unflatten(2, (-1, 8)).transpose(1, 2)[:, :2])
        return self.keys.sum((1, 2, 3))


def test_rows_that_do_not_follow_one_another_are_no_update() -> None:
    sample = torch.randn(2, 3, 32), torch.tensor(4)
    graph = capture_step("step", Strided(Sizes(), "copy", "plain", 0), sample).graph
    assert count(after(graph, keep_caches), CacheUpdate) == 0


# ---------------------------------------------------------------- positions, against their values


class Banded(nn.Module):
    """A mask that lets a row see some keys around its own place."""

    def __init__(self, low: int, high: int, turned: bool, rows: int, keys: int) -> None:
        super().__init__()
        self.low, self.high, self.turned, self.rows, self.keys = low, high, turned, rows, keys

    def forward(self, position: Tensor) -> Tensor:
        """[rows, keys]: low <= row - key <= high, for the row's place in the text."""
        rows, keys = position + torch.arange(self.rows), torch.arange(self.keys)
        apart = (rows[None] - keys[:, None]).t() if self.turned else rows[:, None] - keys
        return (apart >= self.low).logical_and(apart <= self.high)


@examples(60)
@example(low=0, high=-1, turned=False, rows=1, keys=4)  # sees nothing
@given(
    low=st.integers(-12, 3),
    high=st.integers(-1, 12),
    turned=st.booleans(),
    rows=st.integers(1, 4),
    keys=st.integers(4, 9),
)
def test_a_mask_is_taken_for_what_it_is_at_every_position(
    low: int, high: int, turned: bool, rows: int, keys: int
) -> None:
    module = Banded(low, high, turned, rows, keys)
    graph = capture_step("mask", module, (torch.tensor(0),)).graph
    found = seen_by(graph, graph.outputs[0].name)
    masks = [module(torch.tensor(position)) for position in range(keys - rows + 1)]
    windows = [
        window
        for window in range(keys)
        if all(
            torch.equal(mask, seen(place, rows, keys, window)) for place, mask in enumerate(masks)
        )
    ]
    if found is None:
        assert not windows
    else:
        assert found.window in windows


def seen(position: int, rows: int, keys: int, window: int) -> Tensor:
    """What rows see of the keys up to themselves, in a window unless it is 0."""
    apart = position + torch.arange(rows)[:, None] - torch.arange(keys)
    return (apart >= 0) & (apart < (window or keys))


@examples(30)
@given(
    start=st.integers(-2, 2), step=st.integers(1, 2), minus=st.booleans(), rows=st.integers(1, 4)
)
def test_an_index_is_worked_out(start: int, step: int, minus: bool, rows: int) -> None:
    class Index(nn.Module):
        def forward(self, position: Tensor) -> Tensor:
            moved = torch.arange(start, start + step * rows, step)
            found: Tensor = moved - position if minus else position + moved
            return found.reshape(1, rows).squeeze(0)

    graph = capture_step("index", Index(), (torch.tensor(0),)).graph
    found = places_of(graph, graph.outputs[0].name)
    assert found is not None
    expected = Index()(torch.tensor(5)).tolist()
    made = [found.constant + found.steps[0] * k + found.times * 5 for k in range(rows)]
    assert made == expected


def test_what_depends_on_data_is_not_known() -> None:
    class Data(nn.Module):
        def forward(self, position: Tensor, lengths: Tensor) -> Tensor:
            return torch.arange(8) < (position + torch.arange(2)[:, None]).minimum(lengths[:, None])

    graph = capture_step("data", Data(), (torch.tensor(0), torch.tensor([1, 2]))).graph
    assert not seen_by(graph, graph.outputs[0].name)


def test_attention_over_keys_that_came_otherwise_is_left() -> None:
    """A causal mask over the new tokens alone is no cache."""

    class Plain(nn.Module):
        kept: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.zeros(4))

        def forward(self, x: Tensor, position: Tensor) -> Tensor:
            self.kept.index_copy_(0, position.reshape(1), x.sum().reshape(1))
            seen = torch.arange(6) <= torch.arange(6)[:, None]
            return functional.scaled_dot_product_attention(x, x, x, attn_mask=seen)

    sample = torch.randn(2, 2, 6, 8), torch.tensor(1)
    graph = after(capture_step("plain", Plain(), sample).graph, keep_caches)
    assert (count(graph, CacheUpdate), count(graph, CachedAttention)) == (1, 0)
    assert GraphOutput(name=graph.outputs[1].name, kind="buffer", target="kept") in graph.outputs
