"""cuBLASLt's C API through ctypes: the real library, against NumPy in float64.

Its descriptors need no GPU: what they say is read back from the library and carried out in NumPy.
"""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from golow.levels.direct.cudnn.bindings import cublaslt
from golow.levels.direct.cudnn.bindings.cublaslt import (
    Algorithm,
    CublasLt,
    CublasLtError,
    Matmul,
    Owned,
    layout,
    library,
    operation,
    preference,
)
from golow.levels.direct.cudnn.problems.gemm import Matrix, Problem, Strides
from golow.lower.operators.quantize import E4M3
from support.direct.cublaslt_cases import KINDS, LIMIT, TRANSPOSES, Case, places, require_library

EIGHT = {"dtype": "int8", "result": "int32", "arithmetic": "quarter", "transpose_b": True}
E4M3_BITS = EIGHT | {"dtype": E4M3, "result": "float32"}


def test_the_numbers_are_those_of_nvidias_own_bindings() -> None:
    """nvmath-python is not needed otherwise: it would be a package more in the worker, and take a
    second to import."""
    pytest.importorskip("nvmath.bindings", exc_type=ImportError)
    from nvmath.bindings import cublas
    from nvmath.bindings import cublasLt as lt

    described, laid, preferred = (
        lt.MatmulDescAttribute,
        lt.MatrixLayoutAttribute,
        lt.MatmulPreferenceAttribute,
    )
    pairs = {
        "DESC_TRANSA": described.TRANSA,
        "DESC_TRANSB": described.TRANSB,
        "DESC_EPILOGUE": described.EPILOGUE,
        "DESC_BIAS_POINTER": described.BIAS_POINTER,
        "DESC_A_SCALE_POINTER": described.A_SCALE_POINTER,
        "DESC_B_SCALE_POINTER": described.B_SCALE_POINTER,
        "DESC_A_SCALE_MODE": described.A_SCALE_MODE,
        "DESC_B_SCALE_MODE": described.B_SCALE_MODE,
        "DESC_FAST_ACCUM": described.FAST_ACCUM,
        "SCALE_OUTER_VEC": lt.MatmulMatrixScale.OUTER_VEC_32F,
        "LAYOUT_BATCH_COUNT": laid.BATCH_COUNT,
        "LAYOUT_STRIDED_BATCH_OFFSET": laid.STRIDED_BATCH_OFFSET,
        "PREF_MAX_WORKSPACE_BYTES": preferred.MAX_WORKSPACE_BYTES,
        "PREF_REDUCTION_SCHEME_MASK": preferred.REDUCTION_SCHEME_MASK,
        "REDUCTION_SCHEME_COMPUTE_TYPE": lt.ReductionScheme.COMPUTE_TYPE,
        "EPILOGUE_DEFAULT": lt.Epilogue.DEFAULT,
        "EPILOGUE_RELU": lt.Epilogue.RELU,
        "EPILOGUE_BIAS": lt.Epilogue.BIAS,
        "EPILOGUE_GELU": lt.Epilogue.GELU,
        "EPILOGUE_BGRADB": lt.Epilogue.BGRADB,
        "TRANSPOSED": cublas.Operation.T,
    }
    assert {name: getattr(cublaslt, name) for name in pairs} == pairs
    alignments = (getattr(preferred, f"MIN_ALIGNMENT_{matrix}_BYTES") for matrix in "ABCD")
    assert tuple(alignments) == cublaslt.PREF_MIN_ALIGNMENT_BYTES
    computing = cublas.ComputeType.COMPUTE_32F, cublas.ComputeType.COMPUTE_32F_FAST_TF32
    assert (cublaslt.COMPUTE_TYPES["ieee"], cublaslt.COMPUTE_TYPES["tf32"]) == computing
    assert cublaslt.COMPUTE_32I == cublas.ComputeType.COMPUTE_32I


@pytest.fixture(scope="module")
def loaded() -> None:
    require_library()


# ---------------------------------------------------------------- without the library


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, r"2 x 3 x 0: sizes and batch must be at least 1"),
        ({"batch": 0}, "the batch is 0"),
        ({"dtype": "float64"}, "dtype 'float64' is not one of float32, float16, bfloat16"),
        ({"result": "bfloat16"}, "result 'bfloat16' must be float32"),
        ({"scaled": True}, "products of float32 are not scaled"),
        (EIGHT | {"result": "float32"}, "result 'float32' must be int32"),
        (EIGHT | {"transpose_b": False}, "8 bits are multiplied by rows of a single A"),
        (EIGHT | {"bias": True}, "sums of int8 are written as they are"),
        (E4M3_BITS | {"bias": True}, "nor a bias of float32 with 8 bits"),
        (E4M3_BITS | {"gelu": True}, "it has neither gelu nor a gradient"),
        ({"arithmetic": "half"}, "arithmetic 'half' must be ieee or tf32 for float32"),
        ({"dtype": "float16", "arithmetic": "tf32"}, "arithmetic 'tf32' must be half for float16"),
        ({"bias_gradient": True, "relu": True}, "bias_gradient goes with neither"),
        ({"relu": True, "gelu": True}, "it has one activation"),
        ({"bias_gradient": True, "batch": 2}, "bias_gradient goes with neither"),
        ({"c": Strides(9)}, "strides of C are given, but no residual"),
        ({"a": Strides(row=3)}, "A's row stride 3 is less than its rows' 4 elements"),
        ({"transpose_b": True, "b": Strides(row=3)}, "B's row stride 3 is less than"),
        ({"a": Strides(batch=-1)}, "A's batch stride -1 is less than 0"),
        ({"batch": 2, "d": Strides(batch=0)}, "D's batch stride 0 is less than 3"),
        ({"alignment": 24}, "alignment 24 must be a power of two from 4 to 256"),
        ({"alignment": 2}, "alignment 2 must be"),
        ({"alignment": 512}, "alignment 512 must be"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Problem(**({"m": 2, "n": 3, "k": 4} | settings))


def test_matrices_as_they_are_stored() -> None:
    plain = Problem(2, 3, 4, transpose_b=True)
    assert (plain.matrices["a"], plain.matrices["b"]) == (Matrix(2, 4, 4, 8), Matrix(3, 4, 4, 12))
    padded = Problem(2, 3, 4, transpose_a=True, a=Strides(5), d=Strides(row=8, batch=3), batch=2)
    assert padded.matrices["a"] == Matrix(4, 2, 5, 20)
    assert padded.matrices["c"] == padded.matrices["d"] == Matrix(2, 3, 8, 3)
    for problem in (plain, padded):
        for matrix in problem.matrices.values():
            assert places(matrix, problem.batch).max() == matrix.extent(problem.batch) - 1


def test_operands_have_an_order_and_sizes() -> None:
    half = {"dtype": "bfloat16", "result": "float32", "arithmetic": "half"}
    assert Problem(2, 3, 5, **half).operand_bytes == (20, 30, 24)
    assert Problem(2, 3, 5, bias=True, residual=True).operand_bytes == (40, 60, 12, 24, 24)
    assert Problem(2, 3, 5, bias_gradient=True).operand_bytes == (40, 60, 8, 24)
    assert Problem(2, 3, 5, batch=2, d=Strides(4, 100)).operand_bytes == (80, 120, 428)


def test_an_algorithm_travels_as_json() -> None:
    algorithm = Algorithm(bytes(range(64)), 1 << 20, 0.75)
    text = msgspec.json.encode(algorithm)
    assert msgspec.json.decode(text, type=Algorithm) == algorithm


def python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_importing_loads_nothing() -> None:
    code = (
        "import sys; import golow.levels.direct.cudnn.bindings.cublaslt as c; "
        "assert not c.library.cache_info().currsize; "
        "assert not any(name.split('.')[0] in ('cuda', 'torch') for name in sys.modules)"
    )
    assert (done := python(code)).returncode == 0, done.stderr


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    with pytest.raises(OSError, match="cuBLASLt was not found; the package nvidia-cublas"):
        library.__wrapped__()


# ---------------------------------------------------------------- with it, without a GPU


@pytest.mark.usefixtures("loaded")
def test_an_old_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "OLDEST", 99_01_02)
    with pytest.raises(OSError, match=r"is cuBLASLt 1\d\.\d+\.\d+, golow needs 99\.1\.2"):
        library.__wrapped__()


def attribute(owned: Owned, number: int, kind: Callable[[], Any]) -> Any:
    """Read back from the library."""
    value, written = kind(), ctypes.c_size_t()
    size = ctypes.c_size_t(ctypes.sizeof(value))
    name = f"cublasLt{owned._kind}GetAttribute"
    cublaslt.call(name, owned.handle, number, ctypes.byref(value), size, ctypes.byref(written))
    assert written.value == size.value
    return value.value


def as_the_library_reads_it(described: Owned, memory: np.ndarray) -> np.ndarray:
    """The matrices [batch, row, column] of a column-major layout."""
    order, batch = (attribute(described, number, ctypes.c_int32) for number in (1, 5))
    rows, columns = (attribute(described, number, ctypes.c_uint64) for number in (2, 3))
    leading, step = (attribute(described, number, ctypes.c_int64) for number in (4, 6))
    assert order == 0
    b, row, column = np.ogrid[:batch, :rows, :columns]
    return memory[b * step + row + column * leading]


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("strides", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_descriptors_say_the_row_major_product(
    transpose_a: bool, transpose_b: bool, batch: int, strides: bool
) -> None:
    gaps = {name: Strides(7 + i, 50 + i) for i, name in enumerate("abcd")} if strides else {}
    problem = Problem(
        2, 3, 5, transpose_a=transpose_a, transpose_b=transpose_b, batch=batch, residual=True,
        bias=True, **gaps,
    )  # fmt: skip
    case, described = Case(problem), operation(problem)
    b, a, c, d = (
        layout(problem.matrices[name], case.dtype(name), batch) for name in ("b", "a", "c", "d")
    )
    left, right, added = (
        as_the_library_reads_it(item, case.memory[name].astype(np.float64))
        for item, name in ((b, "b"), (a, "a"), (c, "c"))
    )
    left, right = (
        matrix.swapaxes(1, 2) if attribute(described, number, ctypes.c_int32) else matrix
        for matrix, number in ((left, cublaslt.DESC_TRANSA), (right, cublaslt.DESC_TRANSB))
    )
    bias = case.memory["bias"].astype(np.float64)[: left.shape[1], None]  # along its rows
    size = len(case.memory["d"])
    written = as_the_library_reads_it(d, np.arange(size))
    result = np.full(size, np.nan)
    result[written] = left @ right + added + bias
    np.testing.assert_allclose(result[places(problem.matrices["d"], batch)], case.expected)


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("settings", "epilogue"),
    [
        ({}, 1),
        ({"relu": True}, 2),
        ({"bias": True}, 4),
        ({"bias": True, "relu": True}, 6),
        ({"gelu": True}, 32),
        ({"bias": True, "gelu": True}, 36),
        ({"bias_gradient": True}, 512),
    ],
)
def test_epilogues(settings: dict[str, bool], epilogue: int) -> None:
    described = operation(Problem(2, 3, 4, alignment=16, **settings))
    assert attribute(described, cublaslt.DESC_EPILOGUE, ctypes.c_uint32) == epilogue
    pointer = attribute(described, cublaslt.DESC_BIAS_POINTER, ctypes.c_void_p)
    assert pointer == (16 if settings.keys() & {"bias", "bias_gradient"} else None)


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(("dtype", "result", "arithmetic"), KINDS)
def test_types(dtype: str, result: str, arithmetic: str) -> None:
    problem = Problem(2, 3, 4, dtype, result, arithmetic)
    described = operation(problem)
    assert attribute(described, 0, ctypes.c_int32) == (77 if arithmetic == "tf32" else 68)
    assert attribute(described, 1, ctypes.c_int32) == 0  # alpha and beta are float32
    matrix = layout(problem.matrices["a"], dtype, 1)
    assert attribute(matrix, 0, ctypes.c_uint32) == cublaslt.DATA_TYPES[dtype]


@pytest.mark.usefixtures("loaded")
def test_sums_of_e4m3_are_scaled_and_not_those_of_fast_accumulation() -> None:
    described = operation(Problem(16, 32, 48, **E4M3_BITS, scaled=True, alignment=16))
    for mode, pointer in cublaslt.SCALES:
        assert attribute(described, mode, ctypes.c_int32) == cublaslt.SCALE_OUTER_VEC
        assert attribute(described, pointer, ctypes.c_void_p) == 16
    assert attribute(described, cublaslt.DESC_FAST_ACCUM, ctypes.c_int8) == 0


@pytest.mark.usefixtures("loaded")
def test_sums_of_int8_are_whole_numbers() -> None:
    described = operation(Problem(16, 32, 48, **EIGHT))
    assert attribute(described, 0, ctypes.c_int32) == cublaslt.COMPUTE_32I
    assert attribute(described, 1, ctypes.c_int32) == cublaslt.DATA_TYPES["int32"]


@pytest.mark.usefixtures("loaded")
def test_preferences() -> None:
    made = preference(Problem(2, 3, 4, alignment=16), 1 << 33)
    assert attribute(made, cublaslt.PREF_MAX_WORKSPACE_BYTES, ctypes.c_uint64) == 1 << 33
    assert attribute(made, cublaslt.PREF_REDUCTION_SCHEME_MASK, ctypes.c_uint32) == 2
    for number in cublaslt.PREF_MIN_ALIGNMENT_BYTES:
        assert attribute(made, number, ctypes.c_uint32) == 16


@pytest.mark.usefixtures("loaded")
def test_a_failed_call_has_the_librarys_own_word() -> None:
    made = operation(Problem(2, 3, 4))
    with pytest.raises(CublasLtError, match="SetAttribute: CUBLAS_STATUS_INVALID_VALUE") as caught:
        made.set(cublaslt.DESC_TRANSA, ctypes.c_int64(1))  # an attribute of four bytes
    assert caught.value.status == "CUBLAS_STATUS_INVALID_VALUE"


@pytest.mark.usefixtures("loaded")
def test_descriptors_are_destroyed_with_their_objects() -> None:
    made = operation(Problem(2, 3, 4))
    destroyed: list[int | None] = []
    destroy = made._destroy
    made._destroy = lambda handle: (destroyed.append(handle.value), destroy(handle))
    handle = made.handle.value
    del made
    gc.collect()
    assert destroyed == [handle]


@pytest.mark.usefixtures("loaded")
def test_objects_may_outlive_the_module() -> None:
    code = (
        "import sys; from golow.levels.direct.cudnn.bindings.cublaslt import operation; "
        "from golow.levels.direct.cudnn.problems.gemm import Problem; "
        "kept = operation(Problem(2, 3, 4)); sys.kept = [kept]; kept.itself = kept"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("loaded")
def test_without_a_device_there_is_no_handle() -> None:
    try:
        CublasLt()
    except CublasLtError as error:
        assert str(error) == "cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED"  # noqa: PT017
    else:
        pytest.skip("there is a GPU")


@pytest.mark.usefixtures("loaded")
def test_calls_reach_the_library() -> None:
    without_handle = CublasLt.__new__(CublasLt)
    without_handle.handle = ctypes.c_void_p()
    matmul = Matmul(without_handle, Problem(2, 3, 4, bias=True, residual=True))
    with pytest.raises(CublasLtError, match="AlgoGetHeuristic: CUBLAS_STATUS_NOT_INITIALIZED"):
        matmul.candidates(LIMIT)
    algorithm = Algorithm(bytes(64), 0, 1.0)
    with pytest.raises(CublasLtError, match="cublasLtMatmul: CUBLAS_STATUS_NOT_INITIALIZED"):
        matmul.run(algorithm, a=256, b=512, c=768, d=1024, bias=1280, stream=0)
    pointer = attribute(matmul._operation, cublaslt.DESC_BIAS_POINTER, ctypes.c_void_p)
    assert pointer == 1280


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("settings", "call", "message"),
    [
        ({}, {"a": 0}, "the address of a is missing"),
        ({}, {"c": 512}, "the address of c is not wanted"),
        ({}, {"bias": 512}, "the address of bias is not wanted"),
        ({"residual": True}, {}, "the address of c is missing"),
        ({"bias_gradient": True}, {}, "the address of bias is missing"),
        (E4M3_BITS | {"scaled": True}, {"columns": 512}, "the address of rows is missing"),
        ({}, {"b": 528}, "the address 0x210 of b is not a multiple of 256; give the problem a s"),
        ({}, {"workspace": 0}, "needs 4096 bytes of workspace at a multiple of 256, not at 0x0"),
        ({}, {"workspace": 264}, "at a multiple of 256, not at 0x108"),
        ({}, {"algorithm": Algorithm(b"abc", 0, 1.0)}, "64 bytes of data, not 3"),
    ],
)
def test_wrong_addresses_never_reach_the_library(
    settings: dict[str, bool], call: dict[str, Any], message: str
) -> None:
    matmul = Matmul(CublasLt.__new__(CublasLt), Problem(2, 3, 4, **settings))
    given = {"a": 256, "b": 256, "d": 256, "workspace": 256, "stream": 0}
    given |= {"algorithm": Algorithm(bytes(64), 4096, 1.0)}
    with pytest.raises(ValueError, match=message):
        matmul.run(**(given | call))
    with pytest.raises(ValueError, match="too small"):
        matmul.candidates(-1)
