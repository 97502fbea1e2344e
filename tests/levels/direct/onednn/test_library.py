"""oneDNN's C API through ctypes: the real library, against NumPy."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from golow.levels.direct.onednn.bindings import library as binding
from golow.levels.direct.onednn.bindings.constants import (
    ANY,
    BIAS,
    BINARY_MUL,
    BLOCKED_BY_16,
    CHANNELS_LAST,
    CONVOLUTION_DIRECT,
    DST,
    FORWARD_INFERENCE,
    POST_OP_STRIDE,
    SCRATCHPAD,
    SRC,
    SRC_1,
    WEIGHTS,
)
from golow.levels.direct.onednn.bindings.library import (
    Descriptor,
    Engine,
    ExecArg,
    Memory,
    OneDnnError,
    call,
    dims,
    find_library,
    library,
)
from golow.levels.direct.onednn.bindings.primitive import PostOp, Primitive
from golow.levels.direct.onednn.level import probe
from golow.levels.direct.onednn.run.shared_weights import Region
from support.examples import examples

pytestmark = pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")

IMAGES = (2, 32, 5, 7)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


def execute(
    engine: Engine, primitive: Primitive, tensors: Mapping[int, tuple[Descriptor, np.ndarray]]
) -> None:
    """Run it once, over these arrays."""
    scratch = Region(primitive.scratchpad.bytes)
    memories = {
        argument: Memory(engine, descriptor, array.ctypes.data)
        for argument, (descriptor, array) in tensors.items()
    }
    memories[SCRATCHPAD] = Memory(engine, primitive.scratchpad, scratch.address)
    pairs = [ExecArg(argument, memory.handle) for argument, memory in memories.items()]
    arguments = (ExecArg * len(pairs))(*pairs)
    stream = engine.stream.handle
    call("dnnl_primitive_execute", primitive.handle, stream, len(pairs), arguments)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)


# ---------------------------------------------------------------- descriptors


@examples(50)
@given(st.lists(st.integers(1, 9), max_size=6))
def test_a_plain_descriptor_is_numpys_order(shape: list[int]) -> None:
    array = np.zeros(shape or (1,), np.float32)
    plain = Descriptor.plain(shape)
    assert plain.shape == array.shape
    assert plain.bytes == array.nbytes
    assert plain.is_plain
    assert plain.blocks == ()
    assert [stride * 4 for stride in plain.strides] == [
        stride if size > 1 else np.prod(array.shape[axis + 1 :]) * 4
        for axis, (stride, size) in enumerate(zip(array.strides, array.shape, strict=True))
    ]


def test_a_descriptor_by_strides() -> None:
    turned = Descriptor.strided((3, 4), (1, 3))
    assert (turned.shape, turned.strides, turned.bytes) == ((3, 4), (1, 3), 48)
    assert not turned.is_plain
    assert turned == Descriptor.plain((4, 3)).permuted((1, 0))
    spaced = Descriptor.strided((3, 4), (8, 1))
    assert spaced.bytes >= (2 * 8 + 4) * 4  # the library counts the last gap, too
    assert not spaced.is_plain


@pytest.mark.parametrize(
    ("tag", "text", "blocks"),
    [(CHANNELS_LAST, "acdb", ()), (BLOCKED_BY_16, "aBcd16b", ((1, 16),))],
)
def test_a_descriptor_by_name(tag: int, text: str, blocks: Sequence[tuple[int, int]]) -> None:
    tagged = Descriptor.tagged(IMAGES, tag)
    assert (str(tagged), tagged.blocks, tagged.shape) == (text, blocks, IMAGES)
    assert tagged.bytes == np.prod(IMAGES) * 4
    assert not tagged.is_plain
    assert str(Descriptor.plain(IMAGES)) == "abcd"


def test_blocks_pad_the_channels() -> None:
    assert Descriptor.tagged((2, 17, 5, 7), BLOCKED_BY_16).bytes == 2 * 32 * 5 * 7 * 4


def test_bytes_of_other_types() -> None:
    assert Descriptor.plain((3, 5), "uint8").bytes == 15
    assert Descriptor.plain((3, 5), "int32").bytes == 60
    assert Descriptor.plain((3, 5), "int32") != Descriptor.plain((3, 5))


def test_equality_is_of_shape_and_layout() -> None:
    assert Descriptor.plain(IMAGES) == Descriptor.plain(IMAGES)
    assert Descriptor.plain(IMAGES) != Descriptor.plain((2, 32, 7, 5))
    assert Descriptor.plain(IMAGES) != Descriptor.tagged(IMAGES, CHANNELS_LAST)
    assert Descriptor.plain((3,)) != "abc"
    with pytest.raises(TypeError):
        hash(Descriptor.plain((3,)))


@pytest.mark.slow
def test_a_copy_outlives_its_source() -> None:
    source = Descriptor.tagged(IMAGES, BLOCKED_BY_16)
    made = Descriptor.copied(source.handle.value or 0, source.origin)
    del source
    gc.collect()
    assert str(made) == "aBcd16b"


def test_reshaping_keeps_the_bytes_or_refuses() -> None:
    assert Descriptor.plain((4, 6)).reshaped((2, 2, 6)) == Descriptor.plain((2, 2, 6))
    assert Descriptor.plain((1, 1)).reshaped(()) == Descriptor.plain(())
    split = Descriptor.tagged(IMAGES, CHANNELS_LAST).reshaped((2, 4, 8, 5, 7))
    assert split.strides == (32 * 35, 8, 1, 7 * 32, 32)
    with pytest.raises(OneDnnError, match="dnnl_memory_desc_reshape: invalid_arguments"):
        Descriptor.tagged(IMAGES, CHANNELS_LAST).reshaped((2, 32 * 35))
    with pytest.raises(OneDnnError):
        Descriptor.plain((4, 6)).reshaped((5, 5))


@examples(50)
@given(st.permutations(range(4)))
def test_permuting_is_numpys_transpose(order: list[int]) -> None:
    array = np.zeros((2, 3, 5, 7), np.float32)
    turned = Descriptor.plain(array.shape).permuted(order)
    expected = array.transpose(order)
    assert turned.shape == expected.shape
    assert tuple(4 * stride for stride in turned.strides) == expected.strides


# ---------------------------------------------------------------- errors, version, finding


def test_an_error_says_the_call_and_the_librarys_word() -> None:
    with pytest.raises(OneDnnError, match="create_with_tag: invalid_arguments") as raised:
        Descriptor.tagged((2, 3), CHANNELS_LAST)
    assert raised.value.status == 2
    assert str(OneDnnError("dnnl_x", 3)) == "dnnl_x: unimplemented"
    assert str(OneDnnError("dnnl_x", 77)) == "dnnl_x: 77"


def test_a_primitive_that_cannot_be_is_refused(engine: Engine) -> None:
    with pytest.raises(OneDnnError, match="invalid_arguments"):
        product(engine, Descriptor.plain((3, 4)), Descriptor.plain((5, 6)))
    with pytest.raises(OneDnnError, match="next_impl: last_impl_reached"):
        product(engine, Descriptor.plain((3, 4)), Descriptor.plain((4, 6)), implementation=99)


def test_the_library_is_the_packages_and_of_the_right_version() -> None:
    found = find_library()
    assert found is not None
    assert found.is_file()
    library()
    assert str(found) in Path("/proc/self/maps").read_text()
    assert binding.version().split(".")[0] == str(binding.MAJOR)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """The library is looked for again, and afterwards once more."""
    library.cache_clear()
    yield
    library.cache_clear()
    library()


@pytest.mark.usefixtures("forgotten")
def test_another_major_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    path = find_library()
    monkeypatch.setattr(binding, "find_library", lambda: path)
    monkeypatch.setattr(binding, "MAJOR", 4)
    with pytest.raises(OSError, match=r"is oneDNN 3\.\d+, golow needs 4"):
        library()


@pytest.mark.usefixtures("forgotten")
def test_a_file_of_another_major_version_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "MAJOR", 4)
    assert find_library() is None
    with pytest.raises(OSError, match="not installed"):
        library()


def test_without_the_package_there_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "PACKAGE", "no-such-package-of-golow")
    assert find_library() is None


# ---------------------------------------------------------------- primitives


def product(
    engine: Engine, a: Descriptor, b: Descriptor, post_ops: Sequence[PostOp] = (), **more: int
) -> Primitive:
    target = Descriptor.plain((a.shape[0], b.shape[1]))
    return Primitive(engine, "matmul", a, b, None, target, post_ops=post_ops, **more)


def test_a_product(engine: Engine) -> None:
    a, b = drawn(5, 7), drawn(7, 9)
    result = np.empty((5, 9), np.float32)
    one, other, target = (Descriptor.plain(x.shape) for x in (a, b, result))
    primitive = product(engine, one, other)
    execute(engine, primitive, {SRC: (one, a), WEIGHTS: (other, b), DST: (target, result)})
    assert np.allclose(result, a.astype(float) @ b.astype(float), atol=1e-5)


def test_the_weights_may_be_a_transposed_view(engine: Engine) -> None:
    a, b = drawn(5, 7), drawn(9, 7)
    result = np.empty((5, 9), np.float32)
    turned = Descriptor.plain(b.shape).permuted((1, 0))
    source, target = Descriptor.plain(a.shape), Descriptor.plain(result.shape)
    primitive = product(engine, source, turned)
    execute(engine, primitive, {SRC: (source, a), WEIGHTS: (turned, b), DST: (target, result)})
    assert np.allclose(result, a.astype(float) @ b.T.astype(float), atol=1e-5)


SIDES = st.lists(st.sampled_from([1, 1, 2, 3, 4, 16]), min_size=4, max_size=4)


@examples(150)
@given(shape=SIDES, order=st.permutations(range(4)), kept=st.lists(st.booleans(), min_size=4))
@example(shape=[2, 1, 4, 16], order=[0, 2, 1, 3], kept=[False, False, False, True])
def test_a_permuted_tensor_times_one_that_is_repeated(
    shape: list[int], order: list[int], kept: list[bool]
) -> None:
    """Axes of size 1 have many strides that give the same memory; oneDNN errs with most."""
    engine, a = Engine(), drawn(*shape)
    turned = Descriptor.plain(shape).permuted(order)
    b = drawn(*(size if keep else 1 for size, keep in zip(turned.shape, kept, strict=False)))
    result, other = np.empty(shape, np.float32), Descriptor.plain(b.shape)
    primitive = Primitive(engine, "binary", BINARY_MUL, turned, other, turned, post_ops=())
    execute(engine, primitive, {SRC: (turned, a), SRC_1: (other, b), DST: (turned, result)})
    assert np.allclose(result.transpose(order), a.transpose(order) * b, rtol=1e-5)


def test_axes_of_size_one_make_no_layout() -> None:
    for dtype in ("float32", "int32"):
        turned = Descriptor.plain((2, 1, 4, 16), dtype).permuted((0, 2, 1, 3))
        assert turned == Descriptor.plain((2, 4, 1, 16), dtype)
    assert Descriptor.plain((2, 3, 1)).permuted((1, 0, 2)) != Descriptor.plain((3, 2, 1))


POST_OPS = {
    "relu": (PostOp("relu"), lambda y: np.maximum(y, 0)),
    "clip_v2": (PostOp("clip_v2", 0.0, 1.5), lambda y: np.clip(y, 0, 1.5)),
    "swish": (PostOp("swish", 1.0), lambda y: y / (1 + np.exp(-y))),
    "linear": (PostOp("linear", 2.0, -1.0), lambda y: 2 * y - 1),
    "elu": (PostOp("elu", 0.5), lambda y: np.where(y > 0, y, 0.5 * np.expm1(y))),
    "hardswish": (PostOp("hardswish", 1 / 6, 0.5), lambda y: y * np.clip(y / 6 + 0.5, 0, 1)),
}


@pytest.mark.parametrize("name", POST_OPS)
def test_a_post_op(engine: Engine, name: str) -> None:
    post_op, meaning = POST_OPS[name]
    a, b = drawn(5, 7), drawn(7, 9)
    result = np.empty((5, 9), np.float32)
    one, other, target = (Descriptor.plain(x.shape) for x in (a, b, result))
    primitive = product(engine, one, other, [post_op])
    execute(engine, primitive, {SRC: (one, a), WEIGHTS: (other, b), DST: (target, result)})
    assert np.allclose(result, meaning(a.astype(float) @ b.astype(float)), atol=1e-5)


def test_post_ops_run_in_their_order(engine: Engine) -> None:
    """What stands in the destination, then another tensor, then the activation, then a factor."""
    a, b, added, factor = drawn(5, 7), drawn(7, 9), drawn(5, 9) + 1, drawn(5, 9)
    old = drawn(5, 9) - 1
    result = old.copy()
    one, other, target = (Descriptor.plain(x.shape) for x in (a, b, result))
    chain = [
        PostOp("sum", 1.0),
        PostOp("add", descriptor=target),
        PostOp("relu"),
        PostOp("mul", descriptor=target),
    ]
    tensors = {SRC: (one, a), WEIGHTS: (other, b), DST: (target, result)}
    tensors |= {POST_OP_STRIDE * (i + 1) | SRC_1: (target, t) for i, t in ((1, added), (3, factor))}
    execute(engine, product(engine, one, other, chain), tensors)
    expected = np.maximum(a.astype(float) @ b + old + added, 0) * factor
    assert np.allclose(result, expected, atol=1e-5)


def naive_convolution(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Stride 2, padding 1 before and 2 after."""
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 2), (1, 2)))
    rows, columns = ((n - 3) // 2 + 1 for n in padded.shape[2:])
    y = np.empty((len(x), len(weight), rows, columns))
    for i in range(rows):
        for j in range(columns):
            patch = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
            y[:, :, i, j] = np.einsum("nchw,kchw->nk", patch, weight.astype(float)) + bias
    return y


@pytest.mark.parametrize("tag", [ANY, CHANNELS_LAST, BLOCKED_BY_16])
def test_a_convolution_in_each_layout(engine: Engine, tag: int) -> None:
    x, weight, bias = drawn(*IMAGES), drawn(48, 32, 3, 3), drawn(48)
    expected = naive_convolution(x, weight, bias)
    sides = (dims((2, 2)), dims((0, 0)), dims((1, 1)), dims((2, 2)))
    primitive = Primitive(
        engine, "convolution_forward", FORWARD_INFERENCE, CONVOLUTION_DIRECT,
        Descriptor.tagged(x.shape, tag), Descriptor.tagged(weight.shape),
        Descriptor.plain(bias.shape), Descriptor.tagged(expected.shape, tag), *sides,
    )  # fmt: skip
    assert primitive.descriptor(BIAS) == Descriptor.plain(bias.shape)
    result = np.empty(primitive.descriptor(DST).bytes // 4, np.float32)
    tensors = {
        SRC: reordered(engine, x, primitive.descriptor(SRC)),
        WEIGHTS: reordered(engine, weight, primitive.descriptor(WEIGHTS)),
        BIAS: (Descriptor.plain(bias.shape), bias),
        DST: (primitive.descriptor(DST), result),
    }
    execute(engine, primitive, tensors)
    found = in_order(engine, primitive.descriptor(DST), result)
    assert np.allclose(found, expected, atol=1e-4)


def reordered(
    engine: Engine, array: np.ndarray, layout: Descriptor
) -> tuple[Descriptor, np.ndarray]:
    plain = Descriptor.plain(array.shape)
    moved = np.full(layout.bytes // 4, np.nan, np.float32)
    primitive = Primitive(engine, "reorder", plain, layout)
    execute(engine, primitive, {SRC: (plain, array), DST: (layout, moved)})
    return layout, moved


def in_order(engine: Engine, layout: Descriptor, data: np.ndarray) -> np.ndarray:
    result = np.full(layout.shape, np.nan, np.float32)
    plain = Descriptor.plain(layout.shape)
    primitive = Primitive(engine, "reorder", layout, plain)
    execute(engine, primitive, {SRC: (layout, data), DST: (plain, result)})
    return result


@pytest.mark.parametrize("channels", [16, 19])
def test_a_reorder_moves_every_element_and_pads_with_zeros(engine: Engine, channels: int) -> None:
    x = drawn(2, channels, 3, 5)
    _, last = reordered(engine, x, Descriptor.tagged(x.shape, CHANNELS_LAST))
    assert np.array_equal(last.reshape(2, 3, 5, channels), x.transpose(0, 2, 3, 1))
    layout, blocked = reordered(engine, x, Descriptor.tagged(x.shape, BLOCKED_BY_16))
    padded = np.pad(x, ((0, 0), (0, -channels % 16), (0, 0), (0, 0)))
    blocks = padded.reshape(2, -1, 16, 3, 5).transpose(0, 1, 3, 4, 2)
    assert np.array_equal(blocked.reshape(blocks.shape), blocks)
    assert np.array_equal(in_order(engine, layout, blocked), x)


def test_a_memory_can_point_elsewhere(engine: Engine) -> None:
    layout = Descriptor.plain((4,))
    one, other, result = np.ones(4, np.float32), np.full(4, 7, np.float32), np.empty(4, np.float32)
    primitive = Primitive(engine, "reorder", layout, layout)
    source, target = (Memory(engine, layout, a.ctypes.data) for a in (one, result))
    arguments = (ExecArg * 2)(ExecArg(SRC, source.handle), ExecArg(DST, target.handle))
    for array in (one, other):
        call("dnnl_memory_set_data_handle", source.handle, ctypes.c_void_p(array.ctypes.data))
        call("dnnl_primitive_execute", primitive.handle, engine.stream.handle, 2, arguments)
        assert np.array_equal(result, array)


@pytest.mark.slow
def test_an_implementation_has_a_name(engine: Engine) -> None:
    a, b = Descriptor.plain((64, 64)), Descriptor.plain((64, 64))
    names: list[str] = []
    with suppress(OneDnnError):  # the last implementation is reached
        while True:
            names.append(product(engine, a, b, implementation=len(names)).implementation)
    assert all(names)
    assert len(set(names)) > 1
    assert "ref" in names[-1]  # the library's last resort is its reference


@pytest.mark.slow
def test_an_object_is_destroyed_once_with_its_owner(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    destroyed = []

    class Watched:
        def __getattr__(self, name: str) -> object:
            return lambda handle: destroyed.append((name, handle.value))

    primitive = product(engine, Descriptor.plain((2, 2)), Descriptor.plain((2, 2)))
    handle, gone = primitive.handle.value, weakref.ref(primitive)
    gc.collect()
    real = library()
    monkeypatch.setattr(binding, "library", lambda: Watched())
    del primitive
    gc.collect()
    monkeypatch.undo()
    assert gone() is None
    assert destroyed.count(("dnnl_primitive_destroy", handle)) == 1
    for name, address in destroyed:  # what only seemed to be destroyed is now
        getattr(real, name)(binding.c_void_p(address))
