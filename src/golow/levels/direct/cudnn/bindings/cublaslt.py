"""cuBLASLt's C API through ctypes: matrix products with bias, residual and relu in one kernel.

It binds the part of ``cublasLt.h`` that golow uses, under the library's own names. Each object of
the library has one Python owner and is destroyed with it. Importing this module loads nothing; the
first object loads the library and checks its version.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.products import Arithmetic

OLDEST = 12_00_00  # major, minor and patch, as cublasLtGetVersion encodes them
BEST_ALIGNMENT = 256  # bytes; what cuMemAlloc returns and a workspace requires

# The numbers of cublasLt.h are written out: nvidia-ml-py has none of them. nvmath-python 1.0.0 has
# the same ones and runs on an H100, but is a further dependency, and 0.7 s of a start.
DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}  # cudaDataType: CUDA_R_32F, 16F, 16BF
# cublasComputeType_t: CUBLAS_COMPUTE_32F, which multiplies and adds in float32 (products of 16-bit
# floats are exact in it), and CUBLAS_COMPUTE_32F_FAST_TF32, which rounds the factors.
COMPUTE_TYPES = {"ieee": 68, "tf32": 77, "half": 68}
TRANSPOSED = 1  # cublasOperation_t: CUBLAS_OP_T

# cublasLtEpilogue_t; bias and relu may be combined by adding them.
EPILOGUE_DEFAULT, EPILOGUE_RELU, EPILOGUE_BIAS, EPILOGUE_BGRADB = 1, 2, 4, 512

# cublasLtMatmulDescAttributes_t
DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS_POINTER = 3, 4, 7, 8
# cublasLtMatrixLayoutAttribute_t
LAYOUT_BATCH_COUNT, LAYOUT_STRIDED_BATCH_OFFSET = 5, 6
# cublasLtMatmulPreferenceAttributes_t; the alignments are those of A, B, C and D
PREF_MAX_WORKSPACE_BYTES, PREF_REDUCTION_SCHEME_MASK = 1, 3
PREF_MIN_ALIGNMENT_BYTES = (5, 6, 7, 8)
# cublasLtReductionScheme_t: the parts of a split sum stay in float32 and are added in fixed order.
# The other schemes round them to the result's type, or add them in the order of arrival.
REDUCTION_SCHEME_COMPUTE_TYPE = 2


class CublasLtError(RuntimeError):
    """A call of the library failed. status: the library's own name for the error."""

    def __init__(self, call: str, status: str) -> None:
        super().__init__(f"{call}: {status}")
        self.status = status


# ---------------------------------------------------------------- the problem


class Strides(NamedTuple):
    """Elements from one stored row of a matrix to the next, and from one matrix of a batch to the
    next; None where there is no gap between them."""

    row: int | None = None
    batch: int | None = None


CONTIGUOUS = Strides()


class Matrix(NamedTuple):
    """A row-major matrix as stored, with its batch; strides in elements."""

    rows: int
    columns: int
    row: int
    batch: int

    def extent(self, batch: int) -> int:
        """Elements from the first to the last of a batch of this size."""
        return (batch - 1) * self.batch + (self.rows - 1) * self.row + self.columns


@dataclass(frozen=True)
class Problem:
    """D = relu(factor op(A) op(B) + C + bias), for row-major matrices; a batch of them for
    batch > 1.

    op(A) is [m, k] and op(B) [k, n]; A is stored [k, m] with transpose_a, B [n, k] with
    transpose_b. D and C are [m, n]. dtype: storage of A and B; result: storage of C, D and the
    bias, which is dtype or float32. arithmetic: "ieee" or "tf32" for float32, "half" for 16-bit
    floats; sums are always float32.

    residual: whether there is a C; D may be the same memory as C if their strides are equal. bias:
    a vector [n], the same for every row and batch. bias_gradient: also write a vector [m], the sums
    of op(A)'s rows; for dW = dY^T X it is the gradient of the bias. alignment: every address is a
    multiple of so many bytes. frozen: B is the same in every iteration; cold: and not in the
    GPU's cache. Order of the operands: A, B[, bias or its gradient][, C], D.

    Raises ValueError for a contradictory problem. A valid problem that the library does not support
    has no candidates.
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    result: str = "float32"
    arithmetic: Arithmetic = "ieee"
    transpose_a: bool = False
    transpose_b: bool = False
    bias: bool = False
    residual: bool = False
    relu: bool = False
    bias_gradient: bool = False
    factor: float = 1.0
    batch: int = 1
    alignment: int = BEST_ALIGNMENT
    frozen: bool = False
    cold: bool = False
    a: Strides = CONTIGUOUS
    b: Strides = CONTIGUOUS
    c: Strides = CONTIGUOUS
    d: Strides = CONTIGUOUS

    def __post_init__(self) -> None:
        for fault in self._faults():
            raise ValueError(f"matrix product {self.m} x {self.n} x {self.k}: {fault}")

    @property
    def matrices(self) -> dict[str, Matrix]:
        """A, B, C and D, by their lower-case letters."""
        m, n, k = self.m, self.n, self.k
        shape_a = (k, m) if self.transpose_a else (m, k)
        shape_b = (n, k) if self.transpose_b else (k, n)
        return {
            "a": _stored(*shape_a, self.a),
            "b": _stored(*shape_b, self.b),
            "c": _stored(m, n, self.c if self.residual else self.d),  # D stands in for C
            "d": _stored(m, n, self.d),
        }

    @property
    def operand_bytes(self) -> tuple[int, ...]:
        """Sizes of the operands in their order, including gaps."""
        read, written = ITEM_BYTES[self.dtype], ITEM_BYTES[self.result]
        a, b, c, d = (matrix.extent(self.batch) for matrix in self.matrices.values())
        bias = (self.m if self.bias_gradient else self.n,)
        others = bias * (self.bias or self.bias_gradient) + (c,) * self.residual + (d,)
        return a * read, b * read, *(size * written for size in others)

    @property
    def flops(self) -> int:
        """Its arithmetic, two a multiplication with addition."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def epilogue(self) -> int:
        """cublasLtEpilogue_t."""
        if self.bias_gradient:
            return EPILOGUE_BGRADB
        wanted = EPILOGUE_BIAS * self.bias + EPILOGUE_RELU * self.relu
        return wanted or EPILOGUE_DEFAULT

    def _faults(self) -> Iterator[str]:
        if min(self.m, self.n, self.k, self.batch) < 1:
            yield f"sizes and batch must be at least 1, the batch is {self.batch}"
        if self.dtype not in DATA_TYPES:
            yield f"dtype {self.dtype!r} is not one of {', '.join(DATA_TYPES)}"
        if self.result not in (self.dtype, "float32"):
            yield f"result {self.result!r} must be {self.dtype} or float32"
        allowed = ("ieee", "tf32") if self.dtype == "float32" else ("half",)
        if self.arithmetic not in allowed:
            choice = " or ".join(allowed)
            yield f"arithmetic {self.arithmetic!r} must be {choice} for {self.dtype}"
        if self.bias_gradient and (self.bias or self.relu or self.batch > 1):
            yield "bias_gradient goes with neither bias nor relu nor a batch"
        yield from self._stride_faults()
        least, most = ITEM_BYTES[self.result], BEST_ALIGNMENT
        if self.alignment.bit_count() != 1 or not least <= self.alignment <= most:
            yield f"alignment {self.alignment} must be a power of two from {least} to {most}"

    def _stride_faults(self) -> Iterator[str]:
        if self.c != CONTIGUOUS and not self.residual:
            yield "strides of C are given, but no residual"
        for name, matrix in self.matrices.items():
            if matrix.row < matrix.columns:
                yield (
                    f"{name.upper()}'s row stride {matrix.row} is less than its rows' "
                    f"{matrix.columns} elements"
                )
            # A batch may share an operand that is only read.
            least = matrix.columns if name == "d" and self.batch > 1 else 0
            if matrix.batch < least:
                yield f"{name.upper()}'s batch stride {matrix.batch} is less than {least}"


def _stored(rows: int, columns: int, strides: Strides) -> Matrix:
    row = columns if strides.row is None else strides.row
    return Matrix(rows, columns, row, rows * row if strides.batch is None else strides.batch)


class Algorithm(NamedTuple):
    """One of the library's ways to solve a problem.

    data: the library's own 64 bytes; they are valid for the same problem in another process, on the
    same version and kind of GPU. workspace: bytes that it needs. waves: how many times its blocks
    fill the GPU.
    """

    data: bytes
    workspace: int
    waves: float


# ---------------------------------------------------------------- the library


class _HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algo", c_uint64 * 8),
        ("workspace_size", c_size_t),
        ("state", c_int),
        ("waves_count", c_float),
        ("reserved", c_int * 4),
    ]


@cache
def library() -> ctypes.CDLL:
    """The loaded library. Raises OSError where it is missing or too old."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("cublasLt").abs_path
    except (ImportError, RuntimeError) as error:  # pathfinder's own errors are RuntimeErrors
        raise OSError("cuBLASLt was not found; the package nvidia-cublas brings it") from error
    loaded = ctypes.CDLL(path)
    loaded.cublasLtGetStatusName.restype = ctypes.c_char_p
    loaded.cublasLtGetVersion.restype = c_size_t
    if (found := loaded.cublasLtGetVersion()) < OLDEST:
        raise OSError(f"{path} is cuBLASLt {_dotted(found)}, golow needs {_dotted(OLDEST)}")
    return loaded


def _dotted(number: int) -> str:
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def call(name: str, *arguments: Any) -> None:
    """Call the function of that name; raises `CublasLtError` unless it succeeds."""
    if status := getattr(library(), name)(*arguments):
        raise CublasLtError(name, library().cublasLtGetStatusName(status).decode())


class Owned:
    """A handle of the library that is destroyed with this object. kind: as in the function name
    ``cublasLt{kind}Create``."""

    def __init__(self, kind: str, *arguments: Any) -> None:
        self.handle = c_void_p()
        self._kind = kind
        # Stored here because at exit the module may be gone before the object.
        self._destroy = getattr(library(), f"cublasLt{kind}Destroy")
        call(f"cublasLt{kind}Create", byref(self.handle), *arguments)

    def set(self, attribute: int, value: Any) -> None:
        """Set an attribute to a ctypes value, whose size must be the attribute's."""
        size = c_size_t(ctypes.sizeof(value))
        call(f"cublasLt{self._kind}SetAttribute", self.handle, attribute, byref(value), size)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._destroy(self.handle)


class CublasLt(Owned):
    """The library on the current device; version: for example 13.1.0. Raises OSError if the library
    is missing or too old, `CublasLtError` if there is no device."""

    def __init__(self) -> None:
        super().__init__("")
        self.version = _dotted(library().cublasLtGetVersion())


# The library's matrices are column-major, so it sees a row-major matrix as its transpose. It
# therefore computes D^T = op(B)^T op(A)^T: its A is golow's B and its B golow's A. Its rows, along
# which it adds the bias, are golow's columns.


def operation(problem: Problem) -> Owned:
    """Describe the problem without its layouts (cublasLtMatmulDesc_t)."""
    compute, scale = COMPUTE_TYPES[problem.arithmetic], DATA_TYPES["float32"]
    made = Owned("MatmulDesc", compute, scale)
    made.set(DESC_TRANSA, c_int(TRANSPOSED * problem.transpose_b))
    made.set(DESC_TRANSB, c_int(TRANSPOSED * problem.transpose_a))
    made.set(DESC_EPILOGUE, c_uint32(problem.epilogue))
    if problem.bias or problem.bias_gradient:
        # The heuristic needs a pointer here and derives the alignment from it.
        made.set(DESC_BIAS_POINTER, c_void_p(problem.alignment))
    return made


def layout(matrix: Matrix, dtype: str, batch: int) -> Owned:
    """Describe how the library reads a row-major matrix (cublasLtMatrixLayout_t)."""
    sizes = c_uint64(matrix.columns), c_uint64(matrix.rows), c_int64(matrix.row)
    made = Owned("MatrixLayout", DATA_TYPES[dtype], *sizes)
    if batch > 1:
        made.set(LAYOUT_BATCH_COUNT, c_int(batch))
        made.set(LAYOUT_STRIDED_BATCH_OFFSET, c_int64(matrix.batch))
    return made


def preference(problem: Problem, workspace_limit: int) -> Owned:
    """Say what the heuristic may choose from (cublasLtMatmulPreference_t)."""
    made = Owned("MatmulPreference")
    made.set(PREF_MAX_WORKSPACE_BYTES, c_uint64(workspace_limit))
    made.set(PREF_REDUCTION_SCHEME_MASK, c_uint32(REDUCTION_SCHEME_COMPUTE_TYPE))
    for attribute in PREF_MIN_ALIGNMENT_BYTES:
        made.set(attribute, c_uint32(problem.alignment))
    return made


class Matmul:
    """A problem, ready to be solved repeatedly on one GPU."""

    def __init__(self, lt: CublasLt, problem: Problem) -> None:
        self.problem = problem
        self._lt = lt
        self._operation = operation(problem)
        matrices, dtype, result = problem.matrices, problem.dtype, problem.result
        self._layouts = [  # in the library's order
            layout(matrices[name], dtype if name in "ba" else result, problem.batch)
            for name in "bacd"
        ]

    def candidates(self, workspace_limit: int, count: int = 8) -> list[Algorithm]:
        """Return at most ``count`` algorithms that need at most ``workspace_limit`` bytes, in the
        library's expected order of speed; none if it cannot solve the problem.

        Raises ValueError for a negative limit or a count below 1, `CublasLtError` if another call
        fails.
        """
        if workspace_limit < 0 or count < 1:
            raise ValueError(f"workspace_limit {workspace_limit} or count {count} is too small")
        wanted = preference(self.problem, workspace_limit)
        results, found = (_HeuristicResult * count)(), c_int()
        descriptors = [item.handle for item in (self._operation, *self._layouts, wanted)]
        arguments = (self._lt.handle, *descriptors, count, results, byref(found))
        try:
            call("cublasLtMatmulAlgoGetHeuristic", *arguments)
        except CublasLtError as error:
            if error.status == "CUBLAS_STATUS_NOT_SUPPORTED":
                return []
            raise
        return [
            Algorithm(bytes(result.algo), result.workspace_size, result.waves_count)
            for result in results[: found.value]
            if result.state == 0
        ]

    def run(
        self,
        algorithm: Algorithm,
        *,
        a: int,
        b: int,
        d: int,
        stream: int,
        c: int = 0,
        bias: int = 0,
        workspace: int = 0,
    ) -> None:
        """Enqueue the product on device addresses. bias: read with ``bias``, written with
        ``bias_gradient``; workspace: the address of as many bytes as the algorithm needs.

        Raises ValueError for an address that is missing, superfluous or misaligned, and
        `CublasLtError` if the library refuses.
        """
        self._check(algorithm, {"a": a, "b": b, "c": c, "d": d, "bias": bias}, workspace)
        if bias:
            self._operation.set(DESC_BIAS_POINTER, c_void_p(bias))
        left, right, added, result = (item.handle for item in self._layouts)
        alpha, beta = c_float(self.problem.factor), c_float(self.problem.residual)
        algo = (c_uint64 * 8).from_buffer_copy(algorithm.data)
        call(
            "cublasLtMatmul",
            *(self._lt.handle, self._operation.handle),
            *(byref(alpha), c_void_p(b), left, c_void_p(a), right),
            *(byref(beta), c_void_p(c or d), added, c_void_p(d), result),
            *(byref(algo), c_void_p(workspace), c_size_t(algorithm.workspace), c_void_p(stream)),
        )

    def _check(self, algorithm: Algorithm, addresses: dict[str, int], workspace: int) -> None:
        if len(algorithm.data) != ctypes.sizeof(c_uint64) * 8:
            raise ValueError(f"an algorithm has 64 bytes of data, not {len(algorithm.data)}")
        problem = self.problem
        wanted = {"a", "b", "d"} | ({"c"} if problem.residual else set())
        wanted |= {"bias"} if problem.bias or problem.bias_gradient else set()
        for name, place in addresses.items():
            if bool(place) != (name in wanted):
                raise ValueError(f"the address of {name} is {'not wanted' if place else 'missing'}")
            if place % problem.alignment:
                raise ValueError(
                    f"the address {place:#x} of {name} is not a multiple of {problem.alignment}; "
                    "give the problem a smaller alignment"
                )
        if algorithm.workspace and (not workspace or workspace % BEST_ALIGNMENT):
            raise ValueError(
                f"the algorithm needs {algorithm.workspace} bytes of workspace at a multiple of "
                f"{BEST_ALIGNMENT}, not at {workspace:#x}"
            )
