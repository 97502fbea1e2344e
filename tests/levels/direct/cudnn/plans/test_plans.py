"""The plans of `cudnn` without a GPU: which steps a network takes and where their operands are
stored. The engines are asked for and not run; `test_cudnn_level.py` runs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor, nn

from golow.levels.direct.cudnn.build.branches import joins, runs_beside
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.layouts import (
    Layout,
    packed,
    same_memory,
    unpacked,
)
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.problems.products import Convolution, FirstConvolution
from golow.levels.direct.cudnn.steps.built_plan import (
    WINDOW,
    Built,
    EngineCall,
    FlatCall,
    KernelCall,
)
from golow.lower.plan.plan import Operand, Step
from golow.records.workload import Mode
from support.direct.cudnn_plans import Scaled, assert_sound, built
from support.direct.kernel_compilation import assert_compile
from support.examples import examples, most_in_training
from support.models.many_networks import CASES, Two, same
from support.models.rare_operators import FURTHER

both_modes = pytest.mark.parametrize("mode", ["infer", "train"])


@both_modes
@pytest.mark.parametrize("name", CASES)
def test_every_small_network_has_a_plan(name: str, mode: Mode) -> None:
    module = CASES[name].make()
    for precision in ("default", "bf16", "fp16"):
        assert_sound(built(module, mode, precision, *CASES[name].shape)[0])  # type: ignore[arg-type]


@pytest.mark.slow
@most_in_training
@pytest.mark.parametrize("name", FURTHER)
def test_a_network_of_further_operators_has_a_plan(name: str, mode: Mode) -> None:
    """And kernels that compile, where there is a compiler. A training step has the operators of
    inference, and their gradients."""
    kernels, module = [], FURTHER[name].make()  # lowered once for both precisions
    for precision in ("default", "bf16"):
        made = built(module, mode, precision, *FURTHER[name].shape)[0]  # type: ignore[arg-type]
        assert_sound(made)
        kernels += [call.kernel for call in made.calls if isinstance(call, KernelCall)]
    assert_compile(kernels)


@pytest.mark.slow
@both_modes
@pytest.mark.parametrize(
    ("model", "resolution"), [("lenet5", 28), ("resnet18", 64), ("mobilenet_v2", 32)]
)
def test_a_network_of_the_zoo_has_a_plan(model: str, resolution: int, mode: Mode) -> None:
    for precision in TYPES:
        assert_sound(built(model, mode, precision, resolution)[0])


def test_a_block_in_inference_is_one_step_a_convolution() -> None:
    made, engines = built("resnet18", "infer")
    steps = Counter(step.operation for step in made.plan.steps)
    assert steps == {"convolution": 20, "max_pool": 1, "linear": 1,
                     "adaptive_average_pool": 1}  # fmt: skip
    convolutions = [op for op in engines.operations if not isinstance(op, Problem)]
    assert all(getattr(op, "convolution", op).bias for op in convolutions)


def test_a_block_in_training_has_nothing_between_its_products_and_norms() -> None:
    made, _ = built("resnet18", "train")
    steps = Counter(step.operation for step in made.plan.steps)
    assert not [s for s in made.plan.steps if s.phase == "forward" and s.operation == "fused"]
    assert steps["sgd"] == 4  # vectors, and weights in parts of 16 MiB
    assert steps["count"] == 1


def test_followers_lie_beside_their_masters() -> None:
    made, _ = built("resnet18", "train", "bf16")
    buffers = made.plan.buffers
    assert made.copies
    for master, copy in made.copies:
        assert buffers[copy.buffer].offset * 2 == buffers[master.buffer].offset
    for (kind, target), momentum in made.inputs.items():
        if kind == "momentum":
            master = made.inputs[("parameter", target)]
            assert buffers[momentum.buffer].offset == buffers[master.buffer].offset
    masters = {p: size for p, size in made.plan.sizes.items() if p.startswith("master.")}
    assert len(masters) == 4
    for place, size in masters.items():
        assert made.plan.sizes[place.replace("master", "momentum")] == size


def test_gradients_have_memory_from_the_first_of_a_part_to_its_update() -> None:
    made, _ = built("resnet18", "train")
    plan = made.plan
    assert set(plan.pieces) == {"gradient.vectors", *(f"gradient.weights.{k}" for k in range(3))}
    updates = [i for i, step in enumerate(plan.steps) if step.operation == "sgd"]
    # The last parts' gradients are stored where the first part's lay.
    assert plan.sizes["arena"] < sum(size for _, size in plan.pieces.values()) * 1.7
    for update in updates:
        for operand in plan.steps[update].reads:
            written = [i for i, s in enumerate(plan.steps) if operand.buffer in buffers(s.writes)]
            assert written
            assert max(written) < update


def test_gradients_that_are_clipped_or_scaled_keep_their_own_memory() -> None:
    plan = built("resnet18", "train", "fp16")[0].plan
    assert not plan.pieces
    assert any(place.startswith("gradient.weights") for place in plan.sizes)


@pytest.mark.parametrize(
    "model", ["resnet18", pytest.param("mobilenet_v2", marks=pytest.mark.whole_network)]
)
def test_gradients_of_weights_join_before_their_memory_is_touched(model: str) -> None:
    made, _ = built(model, "train")
    assert_joined(made)


def test_a_gradient_that_a_later_sum_overwrites_is_waited_for() -> None:
    """Without a norm between them the sum of a block's two gradients is made in place, over what
    the gradient of the convolution's weight still reads beside it."""
    block = Two(torch.add, same(8), nn.Identity())
    module = nn.Sequential(nn.Conv2d(3, 8, 1), block, nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Flatten())
    made, _ = built(module, "train", "default", 2, 3, 6, 6)
    steps, before = made.plan.steps, joins(made.calls, made.plan.steps)
    overwritten = [
        (started, position)
        for started, call in enumerate(made.calls)
        if runs_beside(call)
        for position in range(started + 1, len(steps))
        if buffers(steps[started].reads) & buffers(steps[position].writes)
    ]
    assert overwritten
    for started, position in overwritten:
        assert any(started in before[p] for p in range(started + 1, position + 1))
    assert_joined(made)


def test_a_step_of_loading_is_no_place_to_wait() -> None:
    """Iterations leave it out: the step after it waits for what has run beside for a window."""
    engine: Any = None  # none runs
    step = Step("copy", ("",), "backward", (), ())
    calls = [EngineCall(engine, (), None, side=not k) for k in range(WINDOW + 2)]
    steps = [step._replace(once=k == WINDOW) for k in range(WINDOW + 2)]
    assert joins(calls, steps) == [*[[]] * (WINDOW + 1), [0]]


def assert_joined(made: Built) -> None:
    """No step begins while one beside it reads or writes what it writes, or writes what it reads,
    in the plan's buffers or, since buffers share memory, in the arena's bytes."""
    steps, before = made.plan.steps, joins(made.calls, made.plan.steps)
    open_: set[int] = set()
    assert any(runs_beside(call) for call in made.calls)
    for position, (call, step) in enumerate(zip(made.calls, steps, strict=True)):
        open_ -= set(before[position])
        assert not (open_ and isinstance(call, FlatCall))
        for started in open_:
            other = steps[started]
            assert not overlap(made, step.writes, (*other.reads, *other.writes))
            assert not overlap(made, step.reads, other.writes)
        if runs_beside(call):
            open_.add(position)


def buffers(operands: Sequence[Operand]) -> set[int]:
    return {operand.buffer for operand in operands}


def overlap(made: Built, some: Sequence[Operand], others: Sequence[Operand]) -> bool:
    found = [[made.plan.buffers[index] for index in buffers(group)] for group in (some, others)]
    return any(
        one.place == other.place
        and one.offset < other.offset + other.bytes
        and other.offset < one.offset + one.bytes
        for one in found[0]
        for other in found[1]
    )


def test_halves_halve_what_an_iteration_holds() -> None:
    full = built("resnet18", "train")[0].plan.sizes
    half = built("resnet18", "train", "bf16")[0].plan.sizes
    assert half["arena"] < 0.6 * full["arena"]


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_first_convolution_reads_its_batch_in_place(mode: Mode) -> None:
    made, engines = built("resnet18", mode, "bf16")
    first = [op for op in engines.operations if isinstance(op, FirstConvolution)]
    directions = {"infer": ["forward"], "train": ["forward", "backward_weight"]}[mode]
    assert [op.convolution.direction for op in first] == directions
    assert all(op.convolution.image[1] == 3 for op in first)
    images = [
        step
        for step in made.plan.steps
        if step.operation == "fetch" and len(step.writes[0].shape) == 4
    ]
    assert not images


def test_without_tensor_cores_an_image_of_three_channels_is_padded() -> None:
    for mode in ("train", "infer"):
        _, engines = built("resnet18", mode, "ieee")  # type: ignore[arg-type]
        first = next(op for op in engines.operations if isinstance(op, Convolution))
        assert first.image[1] == 4


# ---------------------------------------------------------------- layouts


@examples(60)
@given(
    shape=st.tuples(*[st.integers(1, 5)] * 4),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
    more=st.integers(0, 3),
    data=st.data(),
)
def test_a_layout_brings_back_what_it_took(
    shape: tuple[int, ...], dtype: str, more: int, data: st.DataObject
) -> None:
    array = data.draw(arrays.arrays(np.float32, shape, elements=st.integers(-64, 64).map(float)))
    for layout in (Layout(dtype), Layout(dtype, "channels_last", shape[1] + more)):
        flat = packed(array, layout)
        assert flat.size == layout.elements(shape)
        assert np.array_equal(unpacked(flat, shape, layout), array)
        index = tuple(size - 1 for size in shape)
        place = sum(i * stride for i, stride in zip(index, layout.strides(shape), strict=True))
        assert unpacked(flat[place : place + 1], (1,), Layout(dtype))[0] == array[index]


# Bits of float32 numbers whose lower half, which rounding drops, is mostly at or beside a tie.
BITS = st.builds(
    lambda upper, lower: upper << 16 | lower,
    st.integers(0, 0xFFFF),
    st.sampled_from([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF]) | st.integers(0, 0xFFFF),
)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@given(bits=arrays.arrays(np.uint32, 50, elements=BITS))
@example(bits=np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7F800000, 0x7FC00001], np.uint32))
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered in cast")
def test_half_precision_rounds_as_torch_does(dtype: str, bits: np.ndarray) -> None:
    array, layout = bits.view(np.float32), Layout(dtype)
    wanted = torch.from_numpy(array).to(getattr(torch, dtype))
    found = packed(array, layout)
    numbers = ~np.isnan(array)
    as_bits = wanted.view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(found.view(np.uint16)[numbers], as_bits[numbers])
    assert np.isnan(found[~numbers]).all()
    again = unpacked(found, array.shape, layout)
    assert again.dtype == np.float32
    assert np.array_equal(again, wanted.float().numpy(), equal_nan=True)


def test_one_pixel_lies_the_same_in_both_orders() -> None:
    rows, image = Layout("float32"), Layout("float32", "channels_last", 6)
    assert same_memory((3, 6, 1, 1), rows, image)
    assert not same_memory((3, 6, 2, 1), rows, image)
    assert not same_memory((3, 6, 1, 1), rows, Layout("bfloat16", "channels_last", 6))


# ---------------------------------------------------------------- turned matrices, and buffers


def steps_of(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Built:
    made, _ = built(Scaled(function), "train", "ieee", 4, 4)
    assert_sound(made)
    return made


def making_the_gradient(made: Built) -> list[Step]:
    """The steps that write the weight's gradient."""
    buffer = made.outputs["gradient", "weight"].buffer
    return [step for step in made.plan.steps if buffer in buffers(step.writes)]


def test_a_gradient_whose_value_is_turned_is_copied_to_its_place() -> None:
    """What is made in the other order must not be stored where the gradient is read."""
    (copy,) = making_the_gradient(steps_of(lambda x, w, v: w.t() * x))
    assert [operand.layout for operand in copy.reads] == ["float32:transposed"]
    twice = making_the_gradient(steps_of(lambda x, w, v: x @ w.t()))
    assert [step.operation for step in twice] == ["matrix_product"]


def test_a_buffer_with_new_content_is_written_to_the_state() -> None:
    class Running(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4, 4))
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(x.mean(0))
            return x @ self.weight + self.mean

    made, _ = built(Running(), "train", "ieee", 4, 4)
    assert_sound(made)
    state = made.outputs["buffer", "mean"].buffer
    assert made.inputs["buffer", "mean"].buffer == state
    reads = [i for i, s in enumerate(made.plan.steps) if any(o.buffer == state for o in s.reads)]
    (written,) = (i for i, s in enumerate(made.plan.steps) if state in buffers(s.writes))
    assert written > max(reads)
