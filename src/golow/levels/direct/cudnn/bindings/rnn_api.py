"""cuDNN's API for recurrent networks, through ctypes.

It binds the part of ``cudnn_adv.h`` (version 9) that golow uses, under the library's own names.
Each object of the library has one Python owner and is destroyed with it. The library is the one
that the front end has loaded, and works on the front end's handle.
https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/cudnn-adv-library.html
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any, NamedTuple

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.recurrent_network import (
    Operand,
    Parameter,
    RecurrentNetwork,
)

DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}  # cudnnDataType_t
# cudnnMathType_t. CUDNN_FMA_MATH uses no tensor cores; CUDNN_DEFAULT_MATH permits TF32, as PyTorch
# asks for it; CUDNN_TENSOR_OP_MATH multiplies 16-bit numbers and adds in float32. The fourth,
# CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION, would round float32 to 16 bits.
MATH_TYPES = {"ieee": 3, "tf32": 0, "half": 1}
CELLS = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}  # cudnnRNNMode_t
# cudnnRNNAlgo_t. A persistent algorithm is one kernel for all time steps, which keeps the weights
# in registers; it exists only for some sizes and types.
ALGORITHMS = {"standard": 0, "persist_static": 1, "persist_static_small_h": 3}
NO_BIAS, DOUBLE_BIAS = 0, 2  # cudnnRNNBiasMode_t
LINEAR_INPUT = 0  # cudnnRNNInputMode_t
SEQUENCE_MAJOR, BATCH_MAJOR = 0, 2  # cudnnRNNDataLayout_t, both unpacked
PADDED_IO = 1  # what both layouts require, also if all sequences are as long
INFERENCE, TRAINING = 0, 1  # cudnnForwardMode_t
ADD = 0  # cudnnWgradMode_t; the other is not implemented
PROJECTION = 8  # the number of an LSTM's projection among its matrices
MESSAGE_BYTES = 512
# Where a space of weights is stated to begin, to learn where each of them is in it.
ANY_ADDRESS = 1 << 32


class CudnnError(RuntimeError):
    """A call of the library failed; the message has the library's own words."""


@cache
def library() -> ctypes.CDLL:
    """The loaded library. Raises OSError where it is missing."""
    loaded = ctypes.CDLL("libcudnn.so.9")
    loaded.cudnnGetErrorString.restype = ctypes.c_char_p
    return loaded


def call(name: str, *arguments: Any) -> None:
    """Call the function of that name; raises `CudnnError` unless it succeeds."""
    status = getattr(library(), name)(*arguments)
    if status:
        details = ctypes.create_string_buffer(MESSAGE_BYTES)
        library().cudnnGetLastErrorString(details, c_size_t(MESSAGE_BYTES))
        text = library().cudnnGetErrorString(status).decode()
        raise CudnnError(f"{name}: {text} {details.value.decode(errors='replace')}".strip())


class Owned:
    """A descriptor of the library that is destroyed with this object. kind: as in the name of the
    function ``cudnnCreate{kind}Descriptor``."""

    def __init__(self, kind: str) -> None:
        self.handle = c_void_p()
        # Stored here because at exit the module may be gone before the object.
        self._destroy = getattr(library(), f"cudnnDestroy{kind}Descriptor")
        call(f"cudnnCreate{kind}Descriptor", byref(self.handle))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._destroy(self.handle)


# ---------------------------------------------------------------- descriptors


def data(network: RecurrentNetwork, width: int) -> Owned:
    """Describe the rows of every time step: those of x or of the results."""
    made = Owned("RNNData")
    lengths = (c_int * network.rows)(*[network.steps] * network.rows)
    layout = BATCH_MAJOR if network.batch_major else SEQUENCE_MAJOR
    sizes = (network.steps, network.rows, width)
    dtype, no_fill = DATA_TYPES[network.dtype], c_void_p()
    call("cudnnSetRNNDataDescriptor", made.handle, dtype, layout, *sizes, lengths, no_fill)
    return made


def states(network: RecurrentNetwork, width: int) -> Owned:
    """Describe a state of every layer and side, [S, N, width]."""
    made = Owned("Tensor")
    shape = (network.layers * network.sides, network.rows, width)
    strides = (network.rows * width, width, 1)
    arrays = (c_int * 3)(*shape), (c_int * 3)(*strides)
    call("cudnnSetTensorNdDescriptor", made.handle, DATA_TYPES[network.dtype], 3, *arrays)
    return made


def no_dropout(handle: int) -> Owned:
    """Describe dropout of nothing."""
    made = Owned("Dropout")
    none = (c_float(0), c_void_p(), c_size_t(0), c_uint64(0))
    call("cudnnSetDropoutDescriptor", made.handle, c_void_p(handle), *none)
    return made


def network_descriptor(network: RecurrentNetwork, algorithm: str, dropout: Owned | None) -> Owned:
    """Describe the network; sums are in float32."""
    made = Owned("RNN")
    call(
        "cudnnSetRNNDescriptor_v8", made.handle,
        ALGORITHMS[algorithm], CELLS[network.kind],
        DOUBLE_BIAS if network.biased else NO_BIAS, network.sides - 1, LINEAR_INPUT,
        DATA_TYPES[network.dtype], DATA_TYPES["float32"], MATH_TYPES[network.arithmetic],
        *(c_int32(n) for n in (network.inputs, network.hidden, network.results, network.layers)),
        dropout.handle if dropout else c_void_p(), c_uint32(PADDED_IO),
    )  # fmt: skip
    return made


# ---------------------------------------------------------------- the place of each weight


class Lies(NamedTuple):
    """Where a matrix or vector begins in the space of weights, in bytes, and its elements."""

    offset: int
    elements: int


Look = Callable[[int, int], tuple[Lies, Lies]]
"""Function of one layer's side and a number of a matrix: the matrix and its bias."""


def weight_places(network: RecurrentNetwork, look: Look) -> tuple[dict[Parameter, int], ...]:
    """Offsets in bytes of each side's parameters in the space of weights, layer by layer.

    The library has a matrix for each gate, first those of the input, in the same order as PyTorch's
    blocks of rows. Raises ValueError if the gates of a parameter are not side by side.
    """
    item, gates, found = ITEM_BYTES[network.dtype], network.gates, []
    first: dict[Parameter, tuple[int, int, int]] = {  # number, how many, 0: matrix, 1: bias
        "input_weight": (0, gates, 0), "hidden_weight": (gates, gates, 0),
        "input_bias": (0, gates, 1), "hidden_bias": (gates, gates, 1),
        "projection": (PROJECTION, 1, 0),
    }  # fmt: skip
    for end in range(network.layers * network.sides):
        places: dict[Parameter, int] = {}
        for name, shape in network.parameters(end // network.sides).items():
            number, count, which = first[name]
            parts = [look(end, number + gate)[which] for gate in range(count)]
            elements = shape[0] * (shape[1] if len(shape) > 1 else 1) // count
            wanted = [Lies(parts[0].offset + i * elements * item, elements) for i in range(count)]
            if parts != wanted:
                raise ValueError(f"cuDNN's {name} has another layout: {parts}, not {wanted}")
            places[name] = parts[0].offset
        found.append(places)
    return tuple(found)


# ---------------------------------------------------------------- a network on the device


class Network:
    """A network with one of the library's algorithms. handle: of the front end. Sizes are in bytes.
    Raises `CudnnError` if the library does not have it."""

    def __init__(self, handle: int, problem: RecurrentNetwork, algorithm: str) -> None:
        self.problem, self.algorithm, self._handle = problem, algorithm, c_void_p(handle)
        self._dropout = no_dropout(handle)
        self._network = network_descriptor(problem, algorithm, self._dropout)
        self._x = data(problem, problem.inputs)
        self._y = data(problem, problem.sides * problem.results)
        self._hidden = states(problem, problem.results)
        self._cell = states(problem, problem.hidden)
        self._mode = TRAINING if problem.trains else INFERENCE
        self.workspace, self.reserve = self._temporary_bytes()
        self.weight_bytes = self._weight_bytes()
        self.places = weight_places(problem, self._look)

    def operand_bytes(self, operand: Operand) -> int:
        """Size of an operand."""
        if operand == "reserve":
            return self.reserve
        if operand in ("weights", "weight_gradients"):
            return self.weight_bytes
        return self.problem.operand_bytes[operand]

    def forward(self, given: Mapping[Operand, int], workspace: int) -> None:
        """Enqueue it on these device addresses; an absent operand is not read or written."""
        call(
            "cudnnRNNForward", self._handle, self._network.handle, self._mode, c_void_p(),
            self._x.handle, *_pointers(given, "x"), self._y.handle, *_pointers(given, "y"),
            self._hidden.handle, *_pointers(given, "hidden", "last_hidden"),
            self._cell.handle, *_pointers(given, "cell", "last_cell"),
            *self._spaces(given, "weights", workspace),
        )  # fmt: skip

    def backward(self, given: Mapping[Operand, int], workspace: int) -> None:
        """Enqueue the gradients; those of weights are added to what is there."""
        none = c_void_p()
        call(
            "cudnnRNNBackwardData_v8", self._handle, self._network.handle, none,
            self._y.handle, *_pointers(given, "y", "gradient"),
            self._x.handle, *_pointers(given, "x_gradient"),
            self._hidden.handle, *_pointers(given, "hidden"), none,
            *_pointers(given, "hidden_gradient"),
            self._cell.handle, *_pointers(given, "cell", "last_cell_gradient", "cell_gradient"),
            *self._spaces(given, "weights", workspace),
        )  # fmt: skip
        call(
            "cudnnRNNBackwardWeights_v8", self._handle, self._network.handle, ADD, none,
            self._x.handle, *_pointers(given, "x"),
            self._hidden.handle, *_pointers(given, "hidden"),
            self._y.handle, *_pointers(given, "y"),
            *self._spaces(given, "weight_gradients", workspace),
        )  # fmt: skip

    def _spaces(
        self, given: Mapping[Operand, int], weights: Operand, workspace: int
    ) -> Sequence[Any]:
        spaces = (
            (self.weight_bytes, given[weights]),
            (self.workspace, workspace),
            (self.reserve, given.get("reserve", 0)),
        )
        return [item for size, at in spaces for item in (c_size_t(size), c_void_p(at))]

    def _temporary_bytes(self) -> tuple[int, int]:
        workspace, reserve = c_size_t(), c_size_t()
        described = (self._network.handle, self._mode, self._x.handle)
        sizes = byref(workspace), byref(reserve)
        call("cudnnGetRNNTempSpaceSizes", self._handle, *described, *sizes)
        return workspace.value, reserve.value

    def _weight_bytes(self) -> int:
        size = c_size_t()
        call("cudnnGetRNNWeightSpaceSize", self._handle, self._network.handle, byref(size))
        return size.value

    def _look(self, end: int, number: int) -> tuple[Lies, Lies]:
        matrix, bias = Owned("Tensor"), Owned("Tensor")
        places = c_void_p(), c_void_p()
        call(
            "cudnnGetRNNWeightParams", self._handle, self._network.handle, c_int32(end),
            c_size_t(self.weight_bytes), c_void_p(ANY_ADDRESS), c_int32(number),
            matrix.handle, byref(places[0]), bias.handle, byref(places[1]),
        )  # fmt: skip
        lies = zip((matrix, bias), places, strict=True)
        first, second = (Lies((at.value or ANY_ADDRESS) - ANY_ADDRESS, _size(d)) for d, at in lies)
        return first, second


def _pointers(given: Mapping[Operand, int], *names: Operand) -> list[c_void_p]:
    return [c_void_p(given.get(name, 0)) for name in names]


def _size(descriptor: Owned) -> int:
    """Elements of a tensor."""
    dtype, count = c_int(), c_int()
    shape, strides = (c_int * 3)(), (c_int * 3)()
    described = (byref(dtype), byref(count), shape, strides)
    call("cudnnGetTensorNdDescriptor", descriptor.handle, 3, *described)
    return shape[0] * shape[1] * shape[2]
