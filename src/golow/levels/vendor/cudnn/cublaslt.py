"""cuBLASLt's C API through ctypes: matrix products with bias, residual and relu in one kernel.

What golow uses of ``cublasLt.h``, under the library's own names. Every object of the library is
owned by one Python object and destroyed with it. Importing this loads nothing; the library is
loaded, and its version checked, with the first object.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from golow.levels.vendor.cudnn.kernels import ITEM_BYTES

OLDEST = 12_00_00  # major, minor and patch as cublasLtGetVersion writes them
BEST_ALIGNMENT = 256  # bytes; what cuMemAlloc gives, and what a workspace must have

DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}  # cudaDataType: CUDA_R_32F, 16F, 16BF
# cublasComputeType_t: CUBLAS_COMPUTE_32F, which multiplies and adds in float32 (products of halves
# are exact in it), and CUBLAS_COMPUTE_32F_FAST_TF32, which rounds the factors.
COMPUTE_TYPES = {"ieee": 68, "tf32": 77, "half": 68}
TRANSPOSED = 1  # cublasOperation_t: CUBLAS_OP_T

# cublasLtEpilogue_t; bias and relu may be added to one another.
EPILOGUE_DEFAULT, EPILOGUE_RELU, EPILOGUE_BIAS, EPILOGUE_BGRADB = 1, 2, 4, 512

# cublasLtMatmulDescAttributes_t
DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS_POINTER = 3, 4, 7, 8
# cublasLtMatrixLayoutAttribute_t
LAYOUT_BATCH_COUNT, LAYOUT_STRIDED_BATCH_OFFSET = 5, 6
# cublasLtMatmulPreferenceAttributes_t; the alignments are those of A, B, C and D
PREF_MAX_WORKSPACE_BYTES, PREF_REDUCTION_SCHEME_MASK = 1, 3
PREF_MIN_ALIGNMENT_BYTES = (5, 6, 7, 8)
# cublasLtReductionScheme_t: parts of a sum that was split are kept in float32 and added in a fixed
# order. The other schemes round them to the result's type, or add them in the order of arrival.
REDUCTION_SCHEME_COMPUTE_TYPE = 2


class CublasLtError(RuntimeError):
    """A call of the library that did not succeed. status: the library's own name for it."""

    def __init__(self, call: str, status: str) -> None:
        super().__init__(f"{call}: {status}")
        self.status = status


# ---------------------------------------------------------------- what is to be computed


class Strides(NamedTuple):
    """Elements from one row of a matrix to the next as it is stored, and from one matrix of a
    batch to the next; None where they follow on one another without a gap."""

    row: int | None = None
    batch: int | None = None


CONTIGUOUS = Strides()


class Matrix(NamedTuple):
    """A row-major matrix as it is stored, batch after batch; the strides in elements."""

    rows: int
    columns: int
    row: int
    batch: int

    def extent(self, batch: int) -> int:
        """Elements from the first to the last of so many."""
        return (batch - 1) * self.batch + (self.rows - 1) * self.row + self.columns


@dataclass(frozen=True)
class Problem:
    """D = relu(op(A) op(B) + C + bias), for row-major matrices; a batch of them for batch > 1.

    op(A) is [m, k] and op(B) [k, n]; A is stored [k, m] with transpose_a, B [n, k] with
    transpose_b. D and C are [m, n]. dtype: storage of A and B; result: storage of C, D and the
    bias, which is dtype or float32. arithmetic: "ieee" or "tf32" for float32, "half" for halves;
    sums are always float32.

    residual: C is there; D may be its own C, if their strides are the same. bias: a vector [n],
    the same in every row and batch. bias_gradient: a vector [m] is written, the sums of op(A)'s
    rows: for dW = dY^T X it is the gradient of the bias. alignment: bytes that every address is a
    multiple of. Operands in this order: A, B[, bias or its gradient][, C], D.

    Raises ValueError for what makes no sense. What makes sense but is beyond the library has no
    candidates.
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    result: str = "float32"
    arithmetic: str = "ieee"
    transpose_a: bool = False
    transpose_b: bool = False
    bias: bool = False
    residual: bool = False
    relu: bool = False
    bias_gradient: bool = False
    batch: int = 1
    alignment: int = BEST_ALIGNMENT
    a: Strides = CONTIGUOUS
    b: Strides = CONTIGUOUS
    c: Strides = CONTIGUOUS
    d: Strides = CONTIGUOUS

    def __post_init__(self) -> None:
        for fault in self._faults():
            raise ValueError(f"matrix product {self.m} x {self.n} x {self.k}: {fault}")

    @property
    def matrices(self) -> dict[str, Matrix]:
        """A, B, C and D by their small letters."""
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
        """Sizes of the operands in their order, the gaps within them included."""
        read, written = ITEM_BYTES[self.dtype], ITEM_BYTES[self.result]
        a, b, c, d = (matrix.extent(self.batch) for matrix in self.matrices.values())
        bias = (self.m if self.bias_gradient else self.n,)
        others = bias * (self.bias or self.bias_gradient) + (c,) * self.residual + (d,)
        return a * read, b * read, *(size * written for size in others)

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
            yield f"dtype {self.dtype!r} is none of {', '.join(DATA_TYPES)}"
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
            # What is only read may be the same for the whole batch.
            least = matrix.columns if name == "d" and self.batch > 1 else 0
            if matrix.batch < least:
                yield f"{name.upper()}'s batch stride {matrix.batch} is less than {least}"


def _stored(rows: int, columns: int, strides: Strides) -> Matrix:
    row = columns if strides.row is None else strides.row
    return Matrix(rows, columns, row, rows * row if strides.batch is None else strides.batch)


class Algorithm(NamedTuple):
    """One of the library's ways to solve a problem.

    data: the library's own 64 bytes, which serve the same problem in another process with the same
    version on the same kind of GPU. workspace: bytes that it needs. waves: how many times its
    blocks fill the GPU.
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
    """A handle of the library that is destroyed with this object. kind: as in the functions'
    names, ``cublasLt{kind}Create``."""

    def __init__(self, kind: str, *arguments: Any) -> None:
        self.handle = c_void_p()
        self._kind = kind
        # Kept here because the module may be gone before the object at the interpreter's end.
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
    """The library on the current device; version: as 13.1.0. Raises OSError where the library is
    missing, `CublasLtError` where there is no device."""

    def __init__(self) -> None:
        super().__init__("")
        self.version = _dotted(library().cublasLtGetVersion())


# The library's matrices are column-major. A row-major matrix read so is its transpose, therefore
# D^T = op(B)^T op(A)^T is what the library computes: its A is golow's B, its B golow's A, and its
# rows, along which it adds the bias, are golow's columns.


def operation(problem: Problem) -> Owned:
    """The problem without its layouts (cublasLtMatmulDesc_t)."""
    compute, scale = COMPUTE_TYPES[problem.arithmetic], DATA_TYPES["float32"]
    made = Owned("MatmulDesc", compute, scale)
    made.set(DESC_TRANSA, c_int(TRANSPOSED * problem.transpose_b))
    made.set(DESC_TRANSB, c_int(TRANSPOSED * problem.transpose_a))
    made.set(DESC_EPILOGUE, c_uint32(problem.epilogue))
    if problem.bias or problem.bias_gradient:
        # The heuristic wants a pointer there and takes the alignment from it.
        made.set(DESC_BIAS_POINTER, c_void_p(problem.alignment))
    return made


def layout(matrix: Matrix, dtype: str, batch: int) -> Owned:
    """How the library is to read a row-major matrix (cublasLtMatrixLayout_t)."""
    sizes = c_uint64(matrix.columns), c_uint64(matrix.rows), c_int64(matrix.row)
    made = Owned("MatrixLayout", DATA_TYPES[dtype], *sizes)
    if batch > 1:
        made.set(LAYOUT_BATCH_COUNT, c_int(batch))
        made.set(LAYOUT_STRIDED_BATCH_OFFSET, c_int64(matrix.batch))
    return made


def preference(problem: Problem, workspace_limit: int) -> Owned:
    """What the heuristic may choose from (cublasLtMatmulPreference_t)."""
    made = Owned("MatmulPreference")
    made.set(PREF_MAX_WORKSPACE_BYTES, c_uint64(workspace_limit))
    made.set(PREF_REDUCTION_SCHEME_MASK, c_uint32(REDUCTION_SCHEME_COMPUTE_TYPE))
    for attribute in PREF_MIN_ALIGNMENT_BYTES:
        made.set(attribute, c_uint32(problem.alignment))
    return made


class Matmul:
    """A problem, ready to be solved again and again on one GPU."""

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
        """At most that many algorithms within so many bytes of workspace, what the library expects
        to be fastest first; none where it cannot solve the problem.

        Raises ValueError for a negative limit or no count, `CublasLtError` for other failures.
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
        """Enqueue the product on device addresses. bias: what is read with bias, what is written
        with bias_gradient; workspace: as many bytes as the algorithm says.

        Raises ValueError for an address that is missing, not wanted or not aligned, and
        `CublasLtError` where the library refuses.
        """
        self._check(algorithm, {"a": a, "b": b, "c": c, "d": d, "bias": bias}, workspace)
        if bias:
            self._operation.set(DESC_BIAS_POINTER, c_void_p(bias))
        left, right, added, result = (item.handle for item in self._layouts)
        alpha, beta = c_float(1), c_float(self.problem.residual)
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
                    f"the address {place:#x} of {name} is no multiple of {problem.alignment}; "
                    "give the problem a smaller alignment"
                )
        if algorithm.workspace and (not workspace or workspace % BEST_ALIGNMENT):
            raise ValueError(
                f"the algorithm needs {algorithm.workspace} bytes of workspace at a multiple of "
                f"{BEST_ALIGNMENT}, not at {workspace:#x}"
            )
