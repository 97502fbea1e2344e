"""oneDNN's C API through ctypes: its functions, and classes that own its objects.

The functions' types are those of the library's header (`api.py`). Each object of the library has
one Python owner and is destroyed with it. The version is checked when the library is loaded.
Nothing here imports a framework.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_float, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from golow.levels.direct.onednn.bindings.api import FUNCTIONS, dnnl_exec_arg_t
from golow.levels.direct.onednn.bindings.constants import (
    ANY,
    AVX_512,
    BF16,
    BLOCKED_BY_8,
    BLOCKED_BY_16,
    CPU,
    DATA_TYPES,
    DEFAULT_STREAM,
    MAX_DIMENSIONS,
    OPAQUE,
    QUERY_DATA_TYPE,
    QUERY_DIMS,
    QUERY_FORMAT_KIND,
    QUERY_INNER_BLOCKS,
    QUERY_INNER_COUNT,
    QUERY_INNER_INDICES,
    QUERY_NDIMS,
    QUERY_OFFSET,
    QUERY_STRIDES,
    STATUS,
    VNNI,
)
from golow.levels.direct.onednn.bindings.origins import (
    Origin,
    Part,
    Permuted,
    Reshaped,
    Strided,
    Tagged,
)

PACKAGE = "onednn-cpu-gomp"
MAJOR = 3
Dims = c_int64 * MAX_DIMENSIONS
ExecArg = dnnl_exec_arg_t  # which argument, and its memory


class OneDnnError(Exception):
    """A call of the library failed; the message has the library's name for the error."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"{call}: {STATUS.get(status, status)}")
        self.status = status


def find_library() -> Path | None:
    """Return the path of the package's shared library; None if it is not installed."""
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        return None
    for file in files:
        if file.name == f"libdnnl.so.{MAJOR}":
            return Path(str(file.locate())).resolve()
    return None


@cache
def library() -> SimpleNamespace:
    """Return the functions of the loaded library. Raises OSError if it is missing or has another
    major version."""
    path = find_library()
    if path is None:
        raise OSError(f"the package {PACKAGE} is not installed")
    loaded = ctypes.CDLL(str(path))
    found = _typed(loaded, "dnnl_version")().contents
    if found.major != MAJOR:
        raise OSError(f"{path} is oneDNN {found.major}.{found.minor}, golow needs {MAJOR}")
    return SimpleNamespace(**{name: _typed(loaded, name) for name in FUNCTIONS})


def _typed(loaded: ctypes.CDLL, name: str) -> Any:
    function = getattr(loaded, name)
    function.restype, function.argtypes = FUNCTIONS[name]
    return function


class ChannelBlock(NamedTuple):
    """Number of channels in a block of a blocked layout, and its format tag."""

    size: int
    tag: int


@cache
def channel_block() -> ChannelBlock:
    """Return the block in which this CPU's convolutions compute: as many channels as a register
    holds. For other blocks oneDNN has only its reference code, which is hundreds of times slower.
    """
    wide = library().dnnl_get_effective_cpu_isa() & AVX_512
    return ChannelBlock(16, BLOCKED_BY_16) if wide else ChannelBlock(8, BLOCKED_BY_8)


@cache
def has_vnni() -> bool:
    """True if this CPU adds products of 8-bit numbers up in 32 bits."""
    return bool(library().dnnl_get_effective_cpu_isa() & VNNI)


def has_bf16() -> bool:
    """True if this CPU adds products of bfloat16 up in float32."""
    return bool(library().dnnl_get_effective_cpu_isa() & BF16)


def version() -> str:
    """Return the version of the loaded library, for example 3.2.0."""
    found = library().dnnl_version().contents
    return f"{found.major}.{found.minor}.{found.patch}"


def call(name: str, *arguments: Any) -> None:
    """Call the function of that name; raises `OneDnnError` unless it succeeds."""
    status = getattr(library(), name)(*arguments)
    if status:
        raise OneDnnError(name, status)


class Owned:
    """A handle of the library that is destroyed with this object."""

    destroy = ""

    def __init__(self, handle: c_void_p) -> None:
        self.handle = handle

    def __del__(self) -> None:
        # At exit the module may be gone before the object.
        if self.handle and library is not None:
            getattr(library(), self.destroy)(self.handle)


class Engine(Owned):
    """The CPU as a oneDNN engine, with the one stream that golow uses."""

    destroy = "dnnl_engine_destroy"

    def __init__(self) -> None:
        super().__init__(c_void_p())
        call("dnnl_engine_create", byref(self.handle), CPU, c_size_t(0))
        self.stream = _Stream(self)


class _Stream(Owned):
    destroy = "dnnl_stream_destroy"

    def __init__(self, engine: Engine) -> None:
        super().__init__(c_void_p())
        call("dnnl_stream_create", byref(self.handle), engine.handle, DEFAULT_STREAM)


# ---------------------------------------------------------------- memory descriptors


class Descriptor(Owned):
    """Shape, data type and layout of a tensor (dnnl_memory_desc_t). origin: what it was made from,
    so that the same calls can be written in another language."""

    destroy = "dnnl_memory_desc_destroy"

    def __init__(self, origin: Origin) -> None:
        super().__init__(c_void_p())
        self.origin = origin

    @classmethod
    def plain(cls, shape: Sequence[int], dtype: str = "float32") -> Descriptor:
        """Row-major, as PyTorch's contiguous tensors; a scalar is one element."""
        strides, step = [], 1
        for size in reversed(shape):
            strides.append(step)
            step *= size
        return cls.strided(shape, strides[::-1], dtype)

    @classmethod
    def strided(
        cls, shape: Sequence[int], strides: Sequence[int], dtype: str = "float32"
    ) -> Descriptor:
        """With the given strides, in elements."""
        shape, strides = (shape, strides) if len(shape) else ((1,), (1,))
        made = cls(Strided(tuple(shape), tuple(strides), dtype))
        arguments = (len(shape), Dims(*shape), DATA_TYPES[dtype], Dims(*strides))
        call("dnnl_memory_desc_create_with_strides", byref(made.handle), *arguments)
        return made

    @classmethod
    def ordered(cls, shape: Sequence[int], order: Sequence[int]) -> Descriptor:
        """Without gaps, with the axes in this order in memory, the outermost first."""
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis] = step
            step *= shape[axis]
        return cls.strided(shape, strides).settled()

    @classmethod
    def tagged(cls, shape: Sequence[int], tag: int = ANY, dtype: str = "float32") -> Descriptor:
        """In a layout that the library names; with ANY, the primitive chooses."""
        made = cls(Tagged(tuple(shape), tag, dtype))
        arguments = (len(shape), Dims(*shape), DATA_TYPES[dtype], tag)
        call("dnnl_memory_desc_create_with_tag", byref(made.handle), *arguments)
        return made

    @classmethod
    def copied(cls, handle: int, origin: Origin) -> Descriptor:
        """Copy a descriptor that has another owner."""
        made = cls(origin)
        call("dnnl_memory_desc_clone", byref(made.handle), c_void_p(handle))
        return made

    def reshaped(self, shape: Sequence[int]) -> Descriptor:
        """Descriptor of the bytes with another shape. Raises `OneDnnError` if the layout forbids
        it."""
        shape = tuple(shape) if len(shape) else (1,)
        made = Descriptor(Reshaped(self, shape))
        call("dnnl_memory_desc_reshape", byref(made.handle), self.handle, len(shape), Dims(*shape))
        return made.settled()

    def permuted(self, order: Sequence[int]) -> Descriptor:
        """Descriptor of the bytes with permuted axes: axis i of the result is axis order[i]
        here."""
        where = [list(order).index(axis) for axis in range(len(order))]
        made = Descriptor(Permuted(self, tuple(where)))
        places = (c_int * len(where))(*where)
        call("dnnl_memory_desc_permute_axes", byref(made.handle), self.handle, places)
        return made.settled()

    def part(self, shape: Sequence[int], offsets: Sequence[int]) -> Descriptor:
        """A box of that shape in the same bytes, starting at these offsets."""
        made = Descriptor(Part(self, tuple(shape), tuple(offsets)))
        arguments = (self.handle, Dims(*shape), Dims(*offsets))
        call("dnnl_memory_desc_create_submemory", byref(made.handle), *arguments)
        return made

    @property
    def bytes(self) -> int:
        """Size in memory, including padding."""
        return int(library().dnnl_memory_desc_get_size(self.handle))

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical dimensions."""
        return self._dimensions(QUERY_DIMS)

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance from one index to the next (for a blocked axis: between blocks), in elements."""
        return self._dimensions(QUERY_STRIDES)

    @property
    def offset(self) -> int:
        """The first element, counted from the start of the memory: of a part of a tensor."""
        found = c_int64()
        call("dnnl_memory_desc_query", self.handle, QUERY_OFFSET, byref(found))
        return found.value

    @property
    def dtype(self) -> str:
        """The type of its elements."""
        found = c_int()
        call("dnnl_memory_desc_query", self.handle, QUERY_DATA_TYPE, byref(found))
        return next(name for name, number in DATA_TYPES.items() if number == found.value)

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """The inner blocks as (axis, size), outermost first; empty for a strided layout."""
        count = c_int()
        call("dnnl_memory_desc_query", self.handle, QUERY_INNER_COUNT, byref(count))
        if not count.value:
            return ()
        sizes, axes = POINTER(c_int64)(), POINTER(c_int64)()
        call("dnnl_memory_desc_query", self.handle, QUERY_INNER_BLOCKS, byref(sizes))
        call("dnnl_memory_desc_query", self.handle, QUERY_INNER_INDICES, byref(axes))
        return tuple((int(axes[i]), int(sizes[i])) for i in range(count.value))

    @property
    def is_opaque(self) -> bool:
        """True if only the library knows the layout."""
        found = c_int()
        call("dnnl_memory_desc_query", self.handle, QUERY_FORMAT_KIND, byref(found))
        return found.value == OPAQUE

    @property
    def is_plain(self) -> bool:
        """True if it is row-major."""
        return self == Descriptor.plain(self.shape, self.dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Descriptor):
            return NotImplemented
        return bool(library().dnnl_memory_desc_equal(self.handle, other.handle))

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        """The layout in oneDNN's notation: ``abcd`` is row-major, ``aBcd16b`` blocked by 16."""
        axes = "abcdefghijkl"
        blocks = self.blocks
        blocked = {axis for axis, _ in blocks}
        order = sorted(range(len(self.shape)), key=lambda i: (-self.strides[i], i))
        outer = "".join(axes[i].upper() if i in blocked else axes[i] for i in order)
        return outer + "".join(f"{size}{axes[axis]}" for axis, size in blocks)

    def settled(self) -> Descriptor:
        """Row-major where only the strides of axes of size 1 say otherwise. A binary primitive of
        oneDNN 3.x that broadcasts takes such strides for another layout, and errs."""
        if self.blocks:
            return self
        plain = Descriptor.plain(self.shape, self.dtype)
        wide = [i for i, size in enumerate(self.shape) if size > 1]
        same = all(self.strides[i] == plain.strides[i] for i in wide)
        return plain if same else self

    def _dimensions(self, query: int) -> tuple[int, ...]:
        count, found = c_int(), POINTER(c_int64)()
        call("dnnl_memory_desc_query", self.handle, QUERY_NDIMS, byref(count))
        call("dnnl_memory_desc_query", self.handle, query, byref(found))
        return tuple(int(found[i]) for i in range(count.value))


class Memory(Owned):
    """A descriptor with the address of its bytes (dnnl_memory_t); the bytes are not owned."""

    destroy = "dnnl_memory_destroy"

    def __init__(self, engine: Engine, descriptor: Descriptor, address: int) -> None:
        super().__init__(c_void_p())
        arguments = (descriptor.handle, engine.handle, c_void_p(address))
        call("dnnl_memory_create", byref(self.handle), *arguments)


class Listed(NamedTuple):
    """An array argument, with what is in it."""

    values: tuple[Any, ...]
    handle: Any


def array(items: Sequence[Descriptor]) -> Listed:
    """An array of descriptors, as concat and sum take them."""
    return Listed(tuple(items), (c_void_p * len(items))(*(item.handle for item in items)))


def dims(values: Sequence[int]) -> Listed:
    """An array of dimensions (dnnl_dims_t)."""
    return Listed(tuple(values), Dims(*values))


def number(value: float) -> c_float:
    """A float argument."""
    return c_float(value)


def numbers(values: Sequence[float]) -> Listed:
    """An array of floats, as sum takes its factors."""
    return Listed(tuple(values), (c_float * len(values))(*values))
