"""golow's own kernels for recurrent layers in training, forward and then backward: on this
processor, each block a thread, and on a GPU; against PyTorch's gradients in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as some
from torch import Tensor

from golow.levels.direct.cudnn.shared_kernels.recurrent import Layer, recurrent, slices
from golow.levels.direct.cudnn.shared_kernels.recurrent_backward import (
    Columns,
    columns,
    recurrent_backward,
    words,
)
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import gpu, on_host, run, torch_type
from support.direct.recurrent_cases import KINDS, LIMITS, NUMBER, Made, made
from support.examples import examples

__all__ = ["gpu"]  # a fixture
NONE = torch.empty(0)


class Drawn(NamedTuple):
    """A layer and how many multiprocessors share it. ends: whether the gradients of the first
    states are read, and that of the last cell is given."""

    layer: Layer
    multiprocessors: int
    ends: bool = True


@some.composite
def layers(draw: some.DrawFn) -> Drawn:
    """Of few units, on as few multiprocessors as may hold them, or more; with gates or tanh: see
    `assert_right`."""
    layer = Layer(
        kind=draw(some.sampled_from(KINDS[:3])), sides=draw(some.integers(1, 2)),
        steps=draw(some.integers(1, 5)), rows=draw(some.integers(1, 19)),
        units=draw(some.integers(1, 40)), dtype=draw(some.sampled_from(list(LIMITS))),
        batch_major=False, trains=True,
    )  # fmt: skip
    most = 2 * -(-layer.units // 4)
    both = [n for n in range(1, most + 1) if slices(layer, n) and columns(layer, n)]
    return Drawn(layer, draw(some.sampled_from(both)), draw(some.booleans()))


def right(drawn: Drawn, operands: Made, of_y: Tensor, of_last: Tensor) -> dict[str, Tensor]:
    """PyTorch's gradients of the input, of both weights and biases of each direction, and of the
    first states, if they are asked for."""
    states = [state.requires_grad_() for state in operands.states]
    x = operands.x.requires_grad_()
    y, last = operands.module(x, tuple(states) if len(states) > 1 else states[0])
    total = (y * of_y.double()).sum()
    if of_last.numel():
        total = total + (last[1] * of_last.double()).sum()
    total.backward()
    found = {"x": x} | {
        f"{name}{side}": operands.module.get_parameter(f"{name}_l0{end}")
        for side, end in enumerate(("", "_reverse")[: drawn.layer.sides])
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    }
    if drawn.ends:
        found |= {f"first{index}": state for index, state in enumerate(states)}
    return {name: tensor.grad for name, tensor in found.items() if tensor.grad is not None}


def gradients(drawn: Drawn, launch: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What follows from the results of both launches, and what is right, by the same names."""
    layer, operands = drawn.layer, made(drawn.layer)
    dtype, lstm = torch_type(layer.dtype), layer.kind == "lstm"
    shared, own = slices(layer, drawn.multiprocessors), columns(layer, drawn.multiprocessors)
    assert shared is not None and own is not None
    absent = torch.empty(0, dtype=dtype)
    order = (layer.steps, layer.rows, layer.sides, layer.units)
    state = (layer.sides, layer.rows, layer.units)
    _, weight, *_, first_cell = operands.inputs

    y = torch.empty(layer.y_elements, dtype=dtype)
    gates = torch.empty(operands.inputs[0].shape)
    kept = torch.empty(order if layer.gates > 1 else 0)
    # As they are for the second launch, which reads them.
    scratch = [y, gates, kept, absent, absent, torch.zeros(layer.words, dtype=torch.int64)]
    launch(recurrent(layer, shared, NUMBER), operands.inputs, [], scratch)

    of_y = torch.randn(order).to(dtype)
    of_last = torch.randn(state).to(dtype) if drawn.ends and lstm else absent
    wanted = right(drawn, operands, of_y.flatten(2), of_last)
    of_input = torch.empty(*order[:3], layer.gates, layer.units, dtype=dtype)
    of_state = torch.empty_like(of_input) if layer.kind == "gru" else absent
    firsts = [torch.empty(state if there else 0, dtype=dtype) for there in (True, lstm)]
    firsts = firsts if drawn.ends else [absent, absent]
    launch(
        recurrent_backward(layer, own, NUMBER),
        [of_y, gates, kept, y, weight, first_cell, of_last],
        [of_input, of_state, *firsts],
        [torch.zeros(words(layer), dtype=torch.int64)],
    )
    found = {f"first{index}": item for index, item in enumerate(firsts) if item.numel()}
    weights = [operands.module.get_parameter(n).detach() for n in _ends(layer, "weight_ih")]
    of_input = of_input.double().flatten(3)
    of_state = of_state.double().flatten(3) if of_state.numel() else of_input
    found["x"] = sum(of_input[:, :, side] @ weight for side, weight in enumerate(weights))  # type: ignore[assignment]
    padded = y[layer.lead - layer.step_elements :].view(layer.steps + 2, *order[1:]).double()
    for side in range(layer.sides):
        before = padded[2:] if side else padded[:-2]
        for name, of, read in (("ih", of_input, operands.x), ("hh", of_state, before[:, :, side])):
            rows = of[:, :, side].flatten(0, 1)
            found[f"weight_{name}{side}"] = rows.T @ read.detach().double().flatten(0, 1)
            found[f"bias_{name}{side}"] = rows.sum(0)
    return found, wanted


def _ends(layer: Layer, name: str) -> list[str]:
    return [f"{name}_l0{end}" for end in ("", "_reverse")[: layer.sides]]


def assert_right(drawn: Drawn, launch: Any) -> None:
    """Each element, but of a relu's gradients only nearly all: a sum that rounds to the other side
    of zero has another derivative, and so have the steps before it."""
    found, wanted = gradients(drawn, launch)
    assert found.keys() == wanted.keys()
    limit = 4 * LIMITS[drawn.layer.dtype] * (1 + drawn.layer.steps) ** 0.5
    for name, tensor in found.items():
        right = wanted[name]
        wrong = (tensor.double() - right).abs() > limit * right.abs().max()
        most = 0.02 if drawn.layer.kind == "rnn_relu" else 0.0
        assert wrong.double().mean() <= most, f"{name}: {int(wrong.sum())} of {wrong.numel()}"


SMALL = Layer("lstm", 2, 4, 9, 37, "bfloat16", batch_major=False, trains=True)


@pytest.mark.slow
@examples(25)
@example(Drawn(SMALL, 20))
@example(Drawn(SMALL._replace(kind="gru", dtype="float32", rows=17), 20))
@example(Drawn(SMALL._replace(kind="rnn_relu", dtype="float32", rows=17), 20))
@given(layers())
def test_they_are_right(drawn: Drawn) -> None:
    torch.manual_seed(0)
    assert_right(drawn, on_host)


def test_units_are_shared_by_as_many_blocks_as_run_at_once() -> None:
    medium = Layer("lstm", 1, 128, 8, 650, "bfloat16", batch_major=False, trains=True)
    assert columns(medium, 132) == Columns(1, 21)
    assert columns(medium, 81) == Columns(2, 21)
    assert columns(medium._replace(units=1024, sides=2), 132) == Columns(2, 32)
    assert columns(medium._replace(units=1024, sides=2, dtype="float32"), 132) is None
    assert columns(medium._replace(rows=600), 132) is None


def test_they_compile() -> None:
    found = []
    for kind in KINDS:
        for dtype in LIMITS:
            for units, rows in ((650, 1), (1024, 8), (64, 32)):
                layer = Layer(kind, 1, 16, rows, units, dtype, batch_major=False, trains=True)
                shared, own = slices(layer, 132), columns(layer, 132)
                if shared is not None and own is not None:
                    found.append(recurrent(layer, shared, NUMBER))
                    found.append(recurrent_backward(layer, own, NUMBER))
    assert len(found) > 60
    assert_compile(found)


LARGE = {
    "one row": Layer("lstm", 1, 128, 1, 650, "bfloat16", batch_major=False, trains=True),
    "eight rows": Layer("lstm", 1, 100, 8, 650, "float32", batch_major=False, trains=True),
    "both directions": Layer("lstm", 2, 60, 16, 256, "float16", batch_major=False, trains=True),
    "gru": Layer("gru", 2, 50, 5, 333, "bfloat16", batch_major=False, trains=True),
    "many rows": Layer("gru", 1, 30, 64, 512, "float32", batch_major=False, trains=True),
    "wide": Layer("lstm", 1, 40, 8, 1024, "bfloat16", batch_major=False, trains=True),
    "wide floats": Layer("lstm", 1, 40, 32, 1024, "float32", batch_major=False, trains=True),
    "both wide": Layer("lstm", 2, 40, 32, 1024, "bfloat16", batch_major=False, trains=True),
    "tanh": Layer("rnn_tanh", 1, 77, 3, 128, "float32", batch_major=False, trains=True),
    "relu": Layer("rnn_relu", 2, 9, 24, 100, "float16", batch_major=False, trains=True),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", LARGE)
def test_on_a_gpu(gpu: Any, name: str) -> None:
    torch.manual_seed(0)
    drawn = Drawn(LARGE[name], gpu.properties()["numSms"])
    assert_right(drawn, lambda *given: run(gpu, *given))
