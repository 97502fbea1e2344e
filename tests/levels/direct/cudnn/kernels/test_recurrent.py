"""golow's own kernel for recurrent layers: on this processor, each block a thread, and on a GPU;
against PyTorch's layers in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as some
from torch import Tensor

from golow.levels.direct.cudnn.engines.golow_recurrence import input_product
from golow.levels.direct.cudnn.problems.products import Arithmetic
from golow.levels.direct.cudnn.problems.recurrent_network import RecurrentNetwork
from golow.levels.direct.cudnn.shared_kernels.recurrent import Layer, Slices, recurrent, slices
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import gpu, on_host, run, torch_type
from support.direct.recurrent_cases import KINDS, LIMITS, NUMBER, made
from support.examples import examples

__all__ = ["gpu"]  # a fixture


class Drawn(NamedTuple):
    """A layer and how many multiprocessors share it. ends: whether its last states are written."""

    layer: Layer
    multiprocessors: int
    biased: bool = True
    ends: bool = True


@some.composite
def layers(draw: some.DrawFn) -> Drawn:
    """Of few units, on as few multiprocessors as may hold them, or more."""
    dtype = draw(some.sampled_from(list(LIMITS)))
    layer = Layer(
        kind=draw(some.sampled_from(KINDS)), sides=draw(some.integers(1, 2)),
        steps=draw(some.integers(1, 5)), rows=draw(some.integers(1, 17)),
        units=draw(some.integers(1, 40)), dtype=dtype, batch_major=draw(some.booleans()),
    )  # fmt: skip
    most = 2 * -(-layer.units // 4)
    fitting = [n for n in range(1, most + 1) if slices(layer, n) is not None]
    return Drawn(
        layer, draw(some.sampled_from(fitting)), draw(some.booleans()), draw(some.booleans())
    )


def launched(drawn: Drawn, found: Slices, launch: Any) -> tuple[list[Tensor], list[Tensor]]:
    """The results of a launch, and what they should be."""
    layer, dtype = drawn.layer, torch_type(drawn.layer.dtype)
    operands = made(layer, drawn.biased)
    with torch.no_grad():
        states = operands.states
        y, last = operands.module(operands.x, tuple(states) if len(states) > 1 else states[0])
    wanted = [y, *(last if len(states) > 1 else [last])]
    results = [torch.empty(tensor.shape, dtype=dtype) for tensor in wanted]
    absent = torch.empty(0, dtype=dtype)
    ends = results[1:] if drawn.ends else [absent] * len(states)
    writes = [results[0], absent, absent, *ends, *[absent] * (2 - len(ends))]
    words = torch.zeros(layer.words, dtype=torch.int64)
    launch(recurrent(layer, found, NUMBER), operands.inputs, writes, [words])
    return results if drawn.ends else results[:1], wanted


def assert_right(drawn: Drawn, launch: Any) -> None:
    found = slices(drawn.layer, drawn.multiprocessors)
    assert found is not None
    results, wanted = launched(drawn, found, launch)
    limit = LIMITS[drawn.layer.dtype] * (1 + drawn.layer.steps) ** 0.5
    for tensor, right in zip(results, wanted, strict=False):
        torch.testing.assert_close(tensor.double(), right, rtol=limit, atol=limit)


SMALL = Layer("lstm", 2, 4, 9, 37, "bfloat16", batch_major=True)


@pytest.mark.slow
@examples(25)
@example(Drawn(SMALL, 20))
@example(Drawn(SMALL._replace(kind="gru", dtype="float32"), 20))
@given(layers())
def test_it_is_right(drawn: Drawn) -> None:
    assert_right(drawn, on_host)


def test_units_are_shared_by_as_many_blocks_as_run_at_once() -> None:
    """Two units share a word of 4 bytes, so blocks have an even number of them."""
    medium = Layer("lstm", 1, 128, 1, 650, "bfloat16", batch_major=True)
    assert slices(medium, 132) == Slices(8, 2, 8, 6)
    assert slices(medium, 163) == Slices(4, 1, 8, 6)
    assert slices(medium._replace(dtype="float32"), 132) == Slices(8, 2, 16, 6)
    assert slices(medium._replace(kind="gru"), 132) == Slices(10, 2, 8, 6)
    assert slices(medium._replace(units=2048), 132) is None
    assert slices(medium._replace(rows=600), 132) is None


@pytest.mark.parametrize("dtype", LIMITS)
def test_the_product_of_the_input_is_one_that_the_library_takes(dtype: str) -> None:
    arithmetic: Arithmetic = "tf32" if dtype == "float32" else "half"
    network = RecurrentNetwork(
        kind="gru", layers=2, sides=2, steps=5, rows=3, inputs=7, hidden=9, results=9, biased=True,
        batch_major=True, dtype=dtype, arithmetic=arithmetic, trains=False,
    )  # fmt: skip
    first, second = (input_product(network, layer) for layer in range(2))
    assert (first.m, first.n, first.k) == (15, 54, 7)
    assert (second.m, second.n, second.k) == (15, 54, 18)
    assert first.dtype == dtype and first.result == "float32"


def test_it_compiles() -> None:
    found = []
    for kind in KINDS:
        for dtype in LIMITS:
            for units, rows in ((650, 1), (1024, 8), (64, 32)):
                layer = Layer(kind, 1, 16, rows, units, dtype, batch_major=True)
                shared = slices(layer, 132)
                if shared is not None:
                    found.append(recurrent(layer, shared, NUMBER))
    assert len(found) > 30
    assert_compile(found)


LARGE = {
    "one row": Layer("lstm", 1, 128, 1, 650, "bfloat16", batch_major=True),
    "eight rows": Layer("lstm", 1, 200, 8, 650, "float32", batch_major=True),
    "both directions": Layer("lstm", 2, 60, 16, 256, "float16", batch_major=False),
    "gru": Layer("gru", 2, 50, 5, 333, "bfloat16", batch_major=False),
    "many rows": Layer("gru", 1, 30, 64, 512, "float32", batch_major=True),
    "wide": Layer("lstm", 1, 40, 8, 1024, "bfloat16", batch_major=True),
    "tanh": Layer("rnn_tanh", 1, 77, 3, 128, "float32", batch_major=True),
    "relu": Layer("rnn_relu", 2, 9, 24, 100, "float16", batch_major=True),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", LARGE)
def test_on_a_gpu(gpu: Any, name: str) -> None:
    drawn = Drawn(LARGE[name], gpu.properties()["numSms"])
    assert_right(drawn, lambda *given: run(gpu, *given))
