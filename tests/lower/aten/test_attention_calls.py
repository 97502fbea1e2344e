"""Masks that depend on positions alone, and keys that a network repeats for its query heads."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.aten.attention_calls import drop_known_masks, share_heads
from golow.lower.operators.attention import Attention, AttentionBackward
from golow.lower.recognise.whole_attention import keep_attention
from golow.records.workload import Mode
from support.graphs.lowering import Case, assert_close, count, records

Mask = Callable[[Tensor], Tensor]
LENGTH, HEADS, WIDTH = 6, 4, 8


def positions(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and keys of a mask, as models from transformers compute them."""
    place = torch.arange(x.shape[1], device=x.device)
    return place[None, None, :, None], place[None, None, None, :]


def full(x: Tensor) -> Tensor:
    rows, _ = positions(x)
    return (rows >= 0).expand(x.shape[0], 1, LENGTH, LENGTH)


def ahead(x: Tensor) -> Tensor:
    rows, keys = positions(x)
    return (keys <= rows).expand(x.shape[0], 1, LENGTH, LENGTH) & torch.ones(
        (), dtype=torch.bool, device=x.device
    )


def added_ahead(x: Tensor) -> Tensor:
    hidden = torch.full((LENGTH, LENGTH), -math.inf, device=x.device)
    return torch.triu(hidden, diagonal=1)


def nothing_added(x: Tensor) -> Tensor:
    return torch.zeros(LENGTH, LENGTH, device=x.device)


def band(x: Tensor) -> Tensor:
    rows, keys = positions(x)
    return ((keys <= rows) & (keys > rows - 3)).expand(x.shape[0], 1, LENGTH, LENGTH)


def added_band(x: Tensor) -> Tensor:
    return added_ahead(x).masked_fill(~band(x)[0, 0], -1.0)


def of_input(x: Tensor) -> Tensor:
    return (x.mean(-1) > -9)[:, None, None, :].expand(x.shape[0], 1, LENGTH, LENGTH)


class Masked(nn.Module):
    """A layer of attention with a mask, twice over: two calls share it."""

    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self.joined, self.mask = nn.Linear(16, 3 * HEADS * WIDTH), mask
        self.out = nn.Linear(HEADS * WIDTH, 16)

    def forward(self, x: Tensor) -> Tensor:
        mask = self.mask(x)
        for _ in range(2):
            heads = self.joined(x).view(x.shape[0], LENGTH, 3 * HEADS, WIDTH).transpose(1, 2)
            query, key, value = heads.chunk(3, 1)
            y = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            x = self.out(y.transpose(1, 2).flatten(2))
        return x.mean(1)


def case_of(module: nn.Module, mode: Mode = "infer") -> Case:
    torch.manual_seed(0)
    return Case(module, torch.randn(2, LENGTH, 16), mode=mode)


def attentions(case: Case) -> list[Attention | AttentionBackward]:
    from golow.levels.direct.onednn.passes import ATTENTION

    kernels = ATTENTION._replace(rows=1)
    graph = case.after(drop_known_masks, share_heads, keep_attention(kernels))
    assert_close(case.run(graph), case.run(case.graph), "masks")
    return [*records(graph, Attention), *records(graph, AttentionBackward)]


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("mask", [full, nothing_added, ahead, added_ahead])
def test_what_positions_say_is_no_mask(mask: Mask, mode: Mode) -> None:
    found = attentions(case_of(Masked(mask), mode))
    assert len(found) == (4 if mode == "train" else 2)
    assert all(item.added is None for item in found)
    assert {item.causal for item in found} == {mask in (ahead, added_ahead)}


@pytest.mark.parametrize("mask", [band, added_band, of_input])
def test_other_masks_stay(mask: Mask) -> None:
    found = attentions(case_of(Masked(mask)))
    assert len(found) == 2 and not any(item.causal or item.added is None for item in found)


class Kept(nn.Module):
    """A mask that the model keeps: its value may be changed after the capture."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Masked(lambda _: self.kept)
        self.register_buffer("kept", torch.ones(LENGTH, LENGTH, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_a_mask_that_is_kept_stays() -> None:
    assert all(item.added is not None for item in attentions(case_of(Kept())))


class Grouped(nn.Module):
    """Query heads in groups that share keys and values, which are repeated for them."""

    def __init__(self, times: int, alike: bool = True) -> None:
        super().__init__()
        self.times, self.alike = times, alike
        self.query = nn.Linear(16, HEADS * WIDTH)
        self.key, self.value = (nn.Linear(16, HEADS // times * WIDTH) for _ in range(2))
        self.out = nn.Linear(HEADS * WIDTH, 16)

    def heads(self, x: Tensor, repeated: bool) -> Tensor:
        heads = x.view(x.shape[0], LENGTH, -1, WIDTH).transpose(1, 2)
        if not repeated:
            return heads
        if not self.alike:  # in another order
            return heads.repeat(1, self.times, 1, 1)
        images, groups, length, width = heads.shape
        wide = heads[:, :, None, :, :].expand(images, groups, self.times, length, width)
        return wide.reshape(images, groups * self.times, length, width)

    def forward(self, x: Tensor) -> Tensor:
        query = self.heads(self.query(x), False)
        key, value = (self.heads(layer(x), True) for layer in (self.key, self.value))
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("times", [2, 4])
def test_query_heads_share_keys(times: int) -> None:
    case = case_of(Grouped(times))
    (found,) = attentions(case)
    graph = case.after(share_heads)
    assert graph.values()[found.key.name].shape[1] == HEADS // times
    assert found.causal and not count(graph, "aten.expand.default")


def test_heads_in_another_order_are_repeated() -> None:
    case = case_of(Grouped(2, alike=False))
    (found,) = attentions(case)
    assert case.after(share_heads).values()[found.key.name].shape[1] == HEADS
