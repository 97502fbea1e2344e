"""cuBLASLt's C API through ctypes: matrix products with bias, residual and relu in one kernel.

It binds the part of ``cublasLt.h`` that golow uses, under the library's own names. Each object of
the library has one Python owner and is destroyed with it. Importing this module loads nothing; the
first object loads the library and checks its version.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    byref,
    c_float,
    c_int,
    c_int8,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from typing import Any, NamedTuple

from golow.levels.direct.cudnn.problems.gemm import BEST_ALIGNMENT, Matrix, Problem
from golow.lower.operators.quantize import E4M3

OLDEST = 12_00_00  # major, minor and patch, as cublasLtGetVersion encodes them

# The numbers of cublasLt.h are written out: nvidia-ml-py has none of them. nvmath-python 1.0.0 has
# the same ones and runs on an H100, but is a further dependency, and 0.7 s of a start.
# cudaDataType: CUDA_R_32F, 16F, 16BF, 8I, 32I, 8F_E4M3
DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14, "int8": 3, "int32": 10, E4M3: 28}
# cublasComputeType_t: CUBLAS_COMPUTE_32F, which multiplies and adds in float32 (products of 16-bit
# floats and of e4m3 are exact in it), CUBLAS_COMPUTE_32F_FAST_TF32, which rounds the factors, and
# CUBLAS_COMPUTE_32I.
COMPUTE_TYPES = {"ieee": 68, "tf32": 77, "half": 68, "quarter": 68}
COMPUTE_32I = 72
TRANSPOSED = 1  # cublasOperation_t: CUBLAS_OP_T

# cublasLtEpilogue_t; bias and relu may be combined by adding them.
EPILOGUE_DEFAULT, EPILOGUE_RELU, EPILOGUE_BIAS, EPILOGUE_GELU, EPILOGUE_BGRADB = 1, 2, 4, 32, 512

# cublasLtMatmulDescAttributes_t
DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS_POINTER = 3, 4, 7, 8
# Numbers for A and B by which sums are multiplied, and what they belong to. Fast accumulation adds
# all products of e4m3 in the few bits that tensor cores have for sums.
DESC_A_SCALE_POINTER, DESC_B_SCALE_POINTER, DESC_FAST_ACCUM = 17, 18, 25
DESC_A_SCALE_MODE, DESC_B_SCALE_MODE = 31, 32
SCALE_OUTER_VEC = 3  # cublasLtMatmulMatrixScale_t: one for each row of A, or column of B
SCALES = ((DESC_A_SCALE_MODE, DESC_A_SCALE_POINTER), (DESC_B_SCALE_MODE, DESC_B_SCALE_POINTER))
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
    made = Owned("MatmulDesc", *computing(problem))
    made.set(DESC_TRANSA, c_int(TRANSPOSED * problem.transpose_b))
    made.set(DESC_TRANSB, c_int(TRANSPOSED * problem.transpose_a))
    made.set(DESC_EPILOGUE, c_uint32(epilogue(problem)))
    if problem.bias or problem.bias_gradient:
        # The heuristic needs a pointer here and derives the alignment from it.
        made.set(DESC_BIAS_POINTER, c_void_p(problem.alignment))
    if problem.dtype == E4M3:
        made.set(DESC_FAST_ACCUM, c_int8(0))
    if problem.scaled:
        for mode, pointer in SCALES:
            made.set(mode, c_int32(SCALE_OUTER_VEC))
            made.set(pointer, c_void_p(problem.alignment))  # the heuristic may look for one
    return made


def computing(problem: Problem) -> tuple[int, int]:
    """Return the type in which sums are added (cublasComputeType_t), and that of alpha and beta
    (cudaDataType)."""
    if problem.dtype == "int8":
        return COMPUTE_32I, DATA_TYPES["int32"]
    return COMPUTE_TYPES[problem.arithmetic], DATA_TYPES["float32"]


def epilogue(problem: Problem) -> int:
    """Return what follows the product in the same kernel (cublasLtEpilogue_t)."""
    if problem.bias_gradient:
        return EPILOGUE_BGRADB
    activation = EPILOGUE_RELU * problem.relu + EPILOGUE_GELU * problem.gelu
    return EPILOGUE_BIAS * problem.bias + activation or EPILOGUE_DEFAULT


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
        columns: int = 0,
        rows: int = 0,
        workspace: int = 0,
    ) -> None:
        """Enqueue the product on device addresses. bias: read with ``bias``, written with
        ``bias_gradient``; columns, rows: the numbers of ``scaled``; workspace: the address of as
        many bytes as the algorithm needs.

        Raises ValueError for an address that is missing, superfluous or misaligned, and
        `CublasLtError` if the library refuses.
        """
        given = {"a": a, "b": b, "c": c, "d": d, "bias": bias, "columns": columns, "rows": rows}
        self._check(algorithm, given, workspace)
        pointers = (DESC_BIAS_POINTER, DESC_A_SCALE_POINTER, DESC_B_SCALE_POINTER)
        for pointer, place in zip(pointers, (bias, columns, rows), strict=True):
            if place:
                self._operation.set(pointer, c_void_p(place))
        left, right, added, result = (item.handle for item in self._layouts)
        alpha: c_float | c_int32 = c_float(self.problem.factor)
        beta: c_float | c_int32 = c_float(self.problem.residual)
        if self.problem.dtype == "int8":
            alpha, beta = c_int32(1), c_int32(0)
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
        wanted |= {"columns", "rows"} if problem.scaled else set()
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


def solved(
    lt: CublasLt, problem: Problem, workspace_limit: int, count: int
) -> list[tuple[Matmul, Algorithm]]:
    """Return the problem with each of its algorithms, as of `Matmul.candidates`; none of 8 bits if
    the library is older than the product."""
    try:
        matmul = Matmul(lt, problem)
        return [(matmul, found) for found in matmul.candidates(workspace_limit, count)]
    except CublasLtError:
        if problem.arithmetic == "quarter":
            return []
        raise
