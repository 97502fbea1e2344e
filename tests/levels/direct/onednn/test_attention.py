"""Attention as `onednn` computes it: the generated kernel on every arrangement against float64, and
whole networks with and without a compiler."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.kernels import Kernel
from golow.levels.direct.onednn.kernels.flash_attention import (
    ROWS,
    Placed,
    Scores,
    attention,
    attention_backward,
)
from golow.levels.direct.onednn.level import probe
from golow.levels.direct.onednn.passes import FEWEST_ROWS
from golow.lower.operators.attention import Attention, AttentionBackward
from golow.lower.operators.softmax import Softmax
from golow.lower.recognise.whole_attention import HIDDEN
from golow.models.windows import WindowAttention
from golow.records.workload import Mode
from support.direct.in_process import assert_right
from support.direct.onednn_kernels import run
from support.examples import examples
from support.graphs.lowering import ops
from support.models.heads import Heads
from support.models.written_attention import HIDING, Other

pytestmark = [
    pytest.mark.skipif(not probe().available, reason="oneDNN is not installed"),
    pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler"),
]

ORDERS = ((0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3))  # heads apart, side by side, sequence first


class Lying:
    """An array [B, H, L, E] whose axes are in some order, with a gap after each row."""

    def __init__(self, array: np.ndarray, order: tuple[int, ...], gap: int) -> None:
        wide = tuple(n + gap * (axis == 3) for axis, n in enumerate(array.shape))
        self.memory = np.full([wide[axis] for axis in order], np.nan, np.float32)
        seen = self.memory.transpose(np.argsort(order))
        self.array = seen[..., : array.shape[3]]
        self.array[...] = array
        self.placed = Placed(array.shape, [step // 4 for step in self.array.strides])

    def is_whole(self) -> bool:
        """True if all of it was written, and nothing between its rows."""
        return int(np.isnan(self.memory).sum()) == self.memory.size - self.array.size


class Drawn(NamedTuple):
    """Attention: query, key, value, what is added with its steps, and how results are stored."""

    given: list[Lying]
    added: np.ndarray | None
    scores: Scores
    order: tuple[int, ...]
    gap: int

    def double(self) -> list[Tensor]:
        """Query, key and value in float64."""
        return [torch.from_numpy(item.array).double().requires_grad_() for item in self.given]

    @property
    def mask(self) -> Tensor | None:
        return None if self.added is None else torch.from_numpy(self.added).double()

    @property
    def arrays(self) -> list[np.ndarray]:
        """What is added, as kernels read it: the rows of each key side by side."""
        if self.added is None:
            return []
        return [np.ascontiguousarray(self.added.swapaxes(2, 3))]

    def result(self, like: np.ndarray) -> Lying:
        return Lying(np.full_like(like, np.nan), self.order, self.gap)


@st.composite
def drawn_attentions(draw: st.DrawFn) -> Drawn:
    images, groups, sharing = (draw(st.integers(1, 3)) for _ in range(3))
    rows, keys = draw(st.integers(1, 2 * ROWS + 9)), draw(st.integers(1, 150))
    inner, width = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    heads = groups * sharing
    shapes = ((images, heads, rows, inner), (images, groups, keys, inner))
    arrays = [random.standard_normal(s) for s in (*shapes, (images, groups, keys, width))]
    mask = draw(st.sampled_from(["none", "rows", "keys", "heads", "images"]))
    added, steps = None, None
    if mask != "none":
        own = 1 if mask == "keys" else rows
        shape = (
            images if mask in ("keys", "images") else 1,
            heads if mask in ("heads", "images") else 1,
            own,
            keys,
        )
        added = (3 * random.standard_normal(shape)).astype(np.float32)
        hidden = random.random(shape) < 0.2
        hidden[..., 0] = False  # where all is hidden, what is left of scores is rounding
        added[hidden] = HIDDEN
        each = own * keys
        steps = (
            each * shape[1] * (shape[0] > 1),
            each * (shape[1] > 1),
            int(mask != "keys"),
            own,
        )
    order, gap = draw(st.sampled_from(ORDERS)), draw(st.sampled_from([0, 3]))
    given = [Lying(array, order, gap) for array in arrays]
    return Drawn(given, added, Scores(steps, draw(st.booleans()), inner**-0.5), order, gap)


def of_width(kernel: Kernel, narrow: bool) -> Kernel:
    """The kernel with this machine's vectors, or with those of a machine without AVX-512."""
    return kernel._replace(code=f"#undef __AVX512F__\n{kernel.code}") if narrow else kernel


@pytest.mark.slow
@examples(60)
@given(drawn=drawn_attentions(), keeps=st.booleans(), narrow=st.booleans())
def test_every_arrangement_is_right(drawn: Drawn, keeps: bool, narrow: bool) -> None:
    query, _, value = (item.array for item in drawn.given)
    output = drawn.result(np.zeros((*query.shape[:3], value.shape[3]), np.float32))
    logarithm = np.full(query.shape[:3], np.nan, np.float32)
    kernel = attention([i.placed for i in (*drawn.given, output)], drawn.scores, keeps)
    arrays = [item.array for item in drawn.given]
    run(
        of_width(kernel, narrow),
        *arrays,
        *drawn.arrays,
        output.array,
        *([logarithm] if keeps else []),
    )
    of_all, logarithms = Attention.meaning(
        *drawn.double(), drawn.mask, drawn.scores.causal, drawn.scores.scale
    )
    np.testing.assert_allclose(output.array, of_all.detach(), rtol=2e-5, atol=2e-5)
    if keeps:
        np.testing.assert_allclose(logarithm, logarithms.detach(), rtol=2e-6, atol=1e-5)
    assert output.is_whole()


@pytest.mark.slow
@examples(60)
@given(drawn=drawn_attentions(), narrow=st.booleans())
def test_every_arrangement_of_gradients_is_right(drawn: Drawn, narrow: bool) -> None:
    leaves = drawn.double()
    of_all, logarithms = Attention.meaning(
        *leaves, drawn.mask, drawn.scores.causal, drawn.scores.scale
    )
    outer = torch.randn(of_all.shape, generator=torch.Generator().manual_seed(0))
    of_all.backward(outer.double())
    output, gradient = (
        Lying(tensor.detach().float().numpy(), drawn.order, drawn.gap) for tensor in (of_all, outer)
    )
    made = [drawn.result(item.array) for item in drawn.given]
    placed = [item.placed for item in (*drawn.given, output, gradient, *made)]
    run(
        of_width(attention_backward(placed, drawn.scores), narrow),
        *(item.array for item in (*drawn.given, output)),
        np.ascontiguousarray(logarithms.detach().float().numpy()),
        gradient.array,
        *drawn.arrays,
        *(item.array for item in made),
    )
    for leaf, found in zip(leaves, made, strict=True):
        assert leaf.grad is not None
        largest = float(leaf.grad.abs().max())
        np.testing.assert_allclose(found.array, leaf.grad, rtol=1e-4, atol=2e-5 * (1 + largest))
        assert found.is_whole()


def test_nan_stays_in_its_own_row() -> None:
    query = np.ones((1, 1, 20, 8), np.float32)
    key, value = np.ones((1, 1, 30, 8), np.float32), np.ones((1, 1, 30, 8), np.float32)
    query[0, 0, 3] = np.nan
    output = np.zeros_like(query)
    placed = [Placed(x.shape, [step // 4 for step in x.strides]) for x in (query, key, value)]
    kernel = attention([*placed, placed[0]], Scores(None, False, 0.1), False)
    run(kernel, query, key, value, output)
    wrong = np.isnan(output[0, 0]).any(1)
    assert wrong.tolist() == [row == 3 for row in range(20)]
    np.testing.assert_allclose(output[0, 0, ~wrong], 1, rtol=1e-6)


NETWORKS = {
    "plain": Heads(),
    "causal": Heads(causal=True),
    "grouped": Heads(groups=2, causal=True),
    "some keys": Heads(seen=5),
    "padding": Heads(mask="padding"),
    "rows that see nothing": Heads(mask="rows"),
    "numbers": Heads(mask="numbers"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize(
    ("name", "generates"),
    [*((name, True) for name in NETWORKS), ("grouped", False), ("padding", False)],
)
def test_a_network_is_right(name: str, generates: bool, mode: Mode) -> None:
    from support.direct.onednn_in_process import compute, lower

    torch.manual_seed(0)
    network = lower(NETWORKS[name], torch.randn(3, 2 * FEWEST_ROWS + 1, 16), mode)
    assert ops(network.graph).count(Attention.op()) == 1
    assert ops(network.graph).count(AttentionBackward.op()) == int(mode == "train")
    assert ops(network.graph).count(Softmax.op()) == int(mode == "train")  # that of the loss
    assert_right(network, compute(network, generates=generates))


@pytest.mark.slow
def test_attention_in_windows_is_written_in_its_parts_and_right() -> None:
    from support.direct.onednn_in_process import compute, lower

    torch.manual_seed(0)
    layer = WindowAttention(32, heads=4, size=14, shift=3)
    network = lower(layer, torch.randn(2, 14, 14, 32), "infer")
    assert ops(network.graph).count(Attention.op()) == 1
    assert_right(network, compute(network))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*HIDING][1:])
def test_a_row_in_which_a_large_number_hides_all_has_equal_weights(kind: str) -> None:
    from support.direct.onednn_in_process import compute, lower

    network = lower(Other(kind), torch.randn(2, 40, 16), "infer")
    assert Attention.op() in ops(network.graph)
    assert_right(network, compute(network))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_few_rows_stay_products(mode: Mode) -> None:
    from support.direct.onednn_in_process import lower

    network = lower(Heads(), torch.randn(3, FEWEST_ROWS - 1, 16), mode)
    assert Attention.op() not in ops(network.graph)
