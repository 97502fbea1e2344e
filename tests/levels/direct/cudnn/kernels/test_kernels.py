"""Geometry, arguments and compilation of golow's own CUDA kernels; nothing here needs a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest

from golow.levels.direct.cudnn.operators import (
    adaptive_average_pool,
    average_pool,
    cross_entropy,
    max_pool,
    nll_loss,
    softmax,
    take,
)
from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import (
    FOLDER,
    Kernel,
    augment_images,
    cast,
    dropout,
    fetch_inputs,
    geometry,
    loss_scale,
    updates,
)
from golow.levels.direct.cudnn.shared_kernels.early_launch import waiting
from golow.levels.direct.cudnn.shared_kernels.pointwise import Operand, pointwise
from golow.levels.direct.cudnn.shared_kernels.pooling import Images, Window
from golow.levels.direct.formulas.activation_formulas import derivative, value
from golow.levels.direct.formulas.literals import number
from golow.lower.ir.graph import Activation
from support.direct.kernel_compilation import assert_compile
from support.models.optimizers import UPDATES

FLOATING = ("float32", "bfloat16", "float16")
MOST_THREADS = 1024
MOST_SHARED = 48 * 1024  # bytes that a block has without asking
WINDOW = Window((3, 3), (2, 2), (1, 1))
FROM_RESULT = [
    Activation(name="relu"), Activation(name="clip", numbers=(0.0, 6.0)), Activation(name="tanh"),
    Activation(name="sigmoid"),
]  # fmt: skip
FROM_ARGUMENT = [
    *FROM_RESULT[:2], *(Activation(name=n) for n in ("silu", "hardswish", "hardsigmoid", "gelu")),
    Activation(name="gelu_tanh"), Activation(name="elu", numbers=(1.0,)),
]  # fmt: skip


def layouts() -> Iterator[Kernel]:
    for source, dtype in product(FLOATING, FLOATING):
        for padded in (*range(1, 9), 16):
            sizes = (32, 1, 28, 28, padded)
            yield fetch_inputs.fetch_image(source, dtype, *sizes)
    for source in C_TYPES:
        for dtype in FLOATING if source not in FLOATING else C_TYPES:
            if dtype not in FLOATING and dtype != source:
                continue
            for count in (1, 6, 1024):
                yield cast.cast(source, dtype, count)
                yield fetch_inputs.fetch_rows(source, dtype, count)
    yield fetch_inputs.fetch_rows("int64", "int64", 32)
    for shape in ((128, 3, 224, 224), (1, 1, 1, 300)):
        yield augment_images.normalise(*shape)


def poolings() -> Iterator[Kernel]:
    for dtype, channels in product(FLOATING, (1, 2, 4, 64)):
        images = Images(8, 28, 28, channels, 14, 14)
        yield max_pool.forward_kernel(dtype, images, WINDOW, taps=False)
        yield max_pool.forward_kernel(dtype, images, WINDOW, taps=True)
        for window in (WINDOW, Window((2, 2), (2, 2)), Window((5, 5), (1, 1), (2, 2))):
            yield max_pool.backward_kernel(dtype, images, window)
        yield average_pool.forward_kernel(dtype, images, WINDOW, count_include_pad=True)
        yield average_pool.backward_kernel(dtype, images, WINDOW, count_include_pad=True)
        for size in (1, 6):
            images = Images(8, 28, 28, channels, size, size)
            yield adaptive_average_pool.forward_kernel(dtype, images)
            yield adaptive_average_pool.backward_kernel(dtype, images)


def formulas() -> Iterator[Kernel]:
    for dtype in FLOATING:
        for activation in {*FROM_RESULT, *FROM_ARGUMENT}:
            yield pointwise([value(activation, "a")], [Operand(dtype)], [dtype], 100)
        for read, from_result in ((FROM_RESULT, True), (FROM_ARGUMENT, False)):
            for activation in read:
                text = derivative(activation, "a", "b", from_result)
                yield pointwise([text], [Operand(dtype), Operand(dtype)], [dtype], 100)
        kinds = [
            Operand(dtype), Operand("float32", "channel"), Operand("float32", "scalar"),
            Operand("bool"), Operand("int64"),
        ]  # fmt: skip
        expressions = ["(a - e) * b + c * d", "a > 0"]
        for count in (600, 6 * 2**31):
            yield pointwise(expressions, kinds, [dtype, "bool"], count, channels=6)


def training() -> Iterator[Kernel]:
    for dtype, columns, flag in product(FLOATING, (10, 1000, 30000), (False, True)):
        yield softmax.forward_kernel(dtype, 32, columns, flag)
        yield softmax.forward_kernel(dtype, 32, columns, flag, "bfloat16")
        yield softmax.backward_kernel((dtype, "float32", dtype), 32, columns, flag)
        yield nll_loss.backward_kernel(32, columns, flag)
        yield cross_entropy.rows_kernel(dtype, 32, columns, columns)
        yield cross_entropy.loss_kernel(dtype, 32, columns, columns, flag)
        for other in FLOATING:
            yield cross_entropy.backward_kernel((dtype, other), 32, columns, (columns,) * 2, flag)
        rows = take.Rows(places=200, outer=1, inner=columns, size=10)
        yield take.order_kernel("int64", 200)
        yield take.sum_kernel((dtype, "int64", "bfloat16"), rows)
        yield take.join_kernel(("int64", "bfloat16"), rows)
    yield nll_loss.forward_kernel(32, 10, mean=True)
    for dtype in FLOATING:
        yield dropout.forward_kernel(dtype, 4096)
    yield dropout.advance_kernel()
    for gradient, copy, settings in product(FLOATING, FLOATING, UPDATES):
        yield updates.update(1000, settings, gradient, copy)
    for gradient in FLOATING:
        yield loss_scale.find_nonfinite(1000, gradient)
        yield updates.squares(1000, gradient)
    yield loss_scale.next_scale()
    yield updates.adam_step((0.9, 0.999))
    yield updates.clip_factor(2048, 1.0)


ALL: dict[str, Callable[[], Iterator[Kernel]]] = {
    "layouts": layouts,
    "poolings": poolings,
    "formulas": formulas,
    "training": training,
}


# ---------------------------------------------------------------- compilation


@pytest.mark.parametrize("family", ALL)
def test_every_instantiation_compiles(family: str) -> None:
    assert_compile(ALL[family]())


@pytest.mark.parametrize("family", ALL)
def test_launches_are_within_the_limits_of_the_device(family: str) -> None:
    for kernel in ALL[family]():
        x, y, z = kernel.grid
        assert 1 <= x < 2**31 and min(y, z) >= 1 and max(y, z) < 2**16, kernel.expression
        threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
        assert 1 <= threads <= MOST_THREADS, kernel.expression
        assert kernel.shared <= MOST_SHARED, kernel.expression


def test_constants_of_both_languages_agree() -> None:
    for file, name, number_there in (("fetch_inputs.cu", "TILE", fetch_inputs.TILE),):
        assert f"constexpr int {name} = {number_there};" in (FOLDER / file).read_text()


# ---------------------------------------------------------------- geometry


@pytest.mark.parametrize("length", [1, 31, 32, 255, 256, 257, 448, 1000, 100_000])
def test_rows_are_cut_into_even_parts(length: int) -> None:
    (rows, parts, _), (threads, _, _) = geometry.rows_of(7, length)
    assert rows == 7
    assert threads % 32 == 0 and threads <= geometry.THREADS
    assert length <= parts * threads < length + 32 * parts + parts


def test_short_tensors_take_one_block_and_long_ones_no_more_than_needed() -> None:
    assert geometry.flat(1, 4)[0] == (1, 1, 1)
    assert geometry.flat(1025, 4)[0] == (2, 1, 1)
    assert geometry.flat(2**34, 4)[0] == (geometry.MOST_BLOCKS, 1, 1)


@pytest.mark.parametrize(
    ("dtype", "channels", "length"),
    [
        ("float32", 64, 4),
        ("float32", 6, 2),
        ("bfloat16", 64, 8),
        ("float16", 12, 4),
        ("float16", 3, 1),
    ],
)
def test_vectors_divide_the_channels(dtype: str, channels: int, length: int) -> None:
    assert geometry.channel_vector(dtype, channels) == length


def test_shapes_choose_the_kernel() -> None:
    half = ("float32", "float16")
    assert "fetch_narrow" in fetch_inputs.fetch_image(*half, 2, 3, 32, 32, 8).expression
    assert "fetch_tiled" in fetch_inputs.fetch_image(*half, 2, 64, 32, 32, 64).expression
    assert "fetch_tiled" in fetch_inputs.fetch_image(*half, 2, 64, 1, 1, 72).expression
    assert "fetch_rows" in fetch_inputs.fetch_image(*half, 2, 64, 1, 1, 64).expression


def test_small_windows_send_their_gradient_back_by_tiles() -> None:
    images = Images(2, 9, 12, 16, 5, 6)
    kernel = max_pool.backward_kernel("bfloat16", images, WINDOW)
    assert kernel.expression == "max_pool_backward_tiles<__nv_bfloat16, 8, 3, 2, 3, 2>"
    assert [int(number) for number in kernel.scalars] == [2, 9, 5, 1, 5, 12, 6, 1, 7]
    assert kernel.grid[0] == 2 * 5 and kernel.grid[1] * kernel.block[0] >= 7 * 2
    for window in (Window((5, 5), (1, 1), (2, 2)), WINDOW._replace(dilation=(1, 2))):
        general = max_pool.backward_kernel("bfloat16", images, window)
        assert general.expression == "max_pool_backward<__nv_bfloat16, 8>"


def test_position_of_a_batch_counts_beyond_32_bits() -> None:
    kernel = fetch_inputs.fetch_image("float32", "float32", 4096, 3, 512, 512, 4)
    assert kernel.scalars[0].nbytes == 8
    assert int(kernel.scalars[0]) == 4096 * 3 * 512 * 512


def test_index_is_wide_only_where_it_must_be() -> None:
    narrow = pointwise(["a"], [Operand("float32")], ["float32"], 2**29)
    wide = pointwise(["a"], [Operand("float32")], ["float32"], 2**31)
    assert "Index = unsigned" in narrow.code and narrow.scalars[0].nbytes == 4
    assert "Index = size_t" in wide.code and wide.scalars[0].nbytes == 8


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.0f"), (-1.5, "-1.5f"), (1e-5, "f"), (float("inf"), "__int_as_float(0x7f800000)")],
)
def test_numbers_are_written_as_floats(value: float, text: str) -> None:
    assert number(value).endswith(text)


# ---------------------------------------------------------------- bad arguments

IMAGES = Images(2, 8, 8, 4, 4, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fetch_inputs.fetch_image("int64", "float32", 1, 1, 1, 1, 1), "source is int64"),
        (
            lambda: fetch_inputs.fetch_image("float32", "float32", 1, 9, 2, 2, 8),
            "fewer than the 9 channels",
        ),
        (lambda: fetch_inputs.fetch_image("float32", "float32", 0, 9, 2, 2, 16), "n is 0"),
        (
            lambda: fetch_inputs.fetch_image("float32", "float32", 1, 1, 2**13, 2**13, 1),
            "one launch takes",
        ),
        (
            lambda: fetch_inputs.fetch_image("float32", "float32", 2**25, 64, 64, 64, 64),
            "one launch",
        ),
        (lambda: cast.cast("float32", "int64", 1), "no cast from float32 to int64"),
        (lambda: cast.cast("float64", "float32", 1), "no type float64"),
        (lambda: cast.cast("float32", "float16", 0), "count is 0"),
        (lambda: fetch_inputs.fetch_rows("int64", "int32", 1), "no cast from int64 to int32"),
        (lambda: augment_images.normalise(1, 0, 2, 2), "c is 0"),
        (lambda: augment_images.normalise(2**20, 64, 64, 64), "rows is 4294967296"),
        (
            lambda: max_pool.forward_kernel("float32", IMAGES, Window((16, 16), (1, 1)), True),
            "256 taps",
        ),
        (
            lambda: max_pool.forward_kernel("float32", IMAGES, Window((2, 2), (0, 1)), True),
            "the stride",
        ),
        (
            lambda: average_pool.forward_kernel(
                "float32", IMAGES, Window((2, 2), (2, 2), (0, 0), (2, 2)), True
            ),
            "dilation",
        ),
        (lambda: adaptive_average_pool.forward_kernel("bool", IMAGES), "dtype is bool"),
        (lambda: adaptive_average_pool.forward_kernel("float32", IMAGES._replace(c=0)), "c is 0"),
        (lambda: pointwise([], [Operand("bool")], ["bool"], 1), "0 expressions for 1 outputs"),
        (lambda: pointwise(["a"], [], ["bool"], 1), "0 inputs"),
        (lambda: pointwise(["a"], [Operand("bool")], ["int64"], 1), "an output of int64"),
        (lambda: pointwise(["a"], [Operand("float64")], ["bool"], 1), "an input of float64"),
        (lambda: pointwise(["a"], [Operand("bool", "row")], ["bool"], 1), "of kind row"),
        (lambda: pointwise(["a"], [Operand("bool")], ["bool"], 7, 2), "7 elements with 2 channels"),
        (lambda: softmax.forward_kernel("float32", 0, 10, True), "rows is 0"),
        (lambda: dropout.forward_kernel("bool", 10), "dtype is bool"),
        (lambda: dropout.forward_kernel("float32", 0), "count is 0"),
        (lambda: updates.update(10, UPDATES[0], copy="int64"), "copy is int64"),
        (lambda: updates.update(0, UPDATES[0]), "count is 0"),
        (lambda: updates.squares(0), "count is 0"),
        (lambda: updates.clip_factor(0, 1.0), "count is 0"),
    ],
)
def test_bad_arguments_are_named(call: Callable[[], Kernel], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_every_kernel_waits_for_the_one_before_it() -> None:
    """It may begin before that has ended, so the wait is its first statement, or where it says."""
    files = [*FOLDER.glob("*.cu"), *(FOLDER.parent / "operators").glob("*.cu")]
    kernels, first, before = 0, 0, set()
    for file in files:
        _, *bodies = waiting(file.read_text()).split("__global__")
        assert all("WAIT_FOR_KERNEL_BEFORE();" in body for body in bodies)
        kernels += len(bodies)
        first += sum("{ WAIT_FOR_KERNEL_BEFORE();" in body for body in bodies)
        before |= {file.stem for body in bodies if "LET_NEXT_KERNEL_BEGIN();" in body}
    assert len(files) > 20 and kernels > 60
    assert first == kernels - 4, "only four kernels have something to do before"
    assert before == {"row_product", "step_attention"}, "these read early what no kernel writes"
