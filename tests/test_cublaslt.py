"""cuBLASLt's C API through ctypes: the real library, against NumPy in float64.

Its descriptors need no GPU: what they say is read back from the library and carried out in NumPy.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pytest

from golow.levels.cudnn import cublaslt
from golow.levels.cudnn.cublaslt import (
    Algorithm,
    CublasLt,
    CublasLtError,
    Matmul,
    Matrix,
    Owned,
    Problem,
    Strides,
    layout,
    library,
    operation,
    preference,
)

KINDS = [  # dtype, result, arithmetic
    ("float32", "float32", "ieee"),
    ("float32", "float32", "tf32"),
    ("bfloat16", "bfloat16", "half"),
    ("bfloat16", "float32", "half"),
    ("float16", "float16", "half"),
    ("float16", "float32", "half"),
]
TRANSPOSES = list(itertools.product((False, True), repeat=2))
LIMIT = 32 << 20


@pytest.fixture(scope="module")
def loaded() -> None:
    """The library is there; a GPU need not be."""
    try:
        library()
    except OSError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def gpu(loaded: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("cuda.core")
    from cuda.bindings import driver

    try:
        if driver.cuInit(0)[0] != driver.CUresult.CUDA_SUCCESS:
            pytest.skip("no GPU")
    except RuntimeError:  # the bindings' way to say that there is no driver
        pytest.skip("no GPU driver")
    from golow.levels.cudnn.device import Gpu

    return Gpu(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="module")
def lt(gpu: Any) -> CublasLt:
    return CublasLt()


# ---------------------------------------------------------------- arrays as they lie in memory


def places(matrix: Matrix, batch: int) -> np.ndarray:
    """Where in memory the elements [batch, row, column] are."""
    steps = (matrix.batch, matrix.row, 1)
    sizes = (batch, matrix.rows, matrix.columns)
    return sum(
        (np.arange(size) * step).reshape([-1 if i == axis else 1 for i in range(3)])
        for axis, (size, step) in enumerate(zip(sizes, steps, strict=True))
    )


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Rounded to the storage type; bfloat16 as its bits, since NumPy does not have it."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def read(memory: np.ndarray, dtype: str) -> np.ndarray:
    """In float64."""
    if dtype == "bfloat16":
        memory = (memory.astype(np.uint32) << 16).view(np.float32)
    return memory.astype(np.float64)


@dataclass
class Case:
    """A problem with its operands: `memory` as it lies, padding included."""

    problem: Problem
    memory: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem, draw = self.problem, np.random.default_rng(7).standard_normal
        for name, matrix in problem.matrices.items():
            size = matrix.extent(problem.batch)
            self.memory[name] = stored(draw(size), self.dtype(name))
        self.memory["bias"] = stored(draw(max(problem.m, problem.n)), problem.result)
        self.memory["d"][:] = stored(np.array(np.nan), problem.result)  # never to be read

    def dtype(self, name: str) -> str:
        return self.problem.dtype if name in ("a", "b") else self.problem.result

    def matrix(self, name: str) -> np.ndarray:
        """As stored, [batch, row, column] in float64."""
        where = places(self.problem.matrices[name], self.problem.batch)
        return read(self.memory[name], self.dtype(name))[where]

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        """op(A) and op(B)."""
        a, b = self.matrix("a"), self.matrix("b")
        a = a.swapaxes(1, 2) if self.problem.transpose_a else a
        return a, b.swapaxes(1, 2) if self.problem.transpose_b else b

    def added(self) -> np.ndarray | float:
        """C + bias."""
        problem, total = self.problem, 0.0
        if problem.residual:
            total = total + self.matrix("c")
        if problem.bias:
            total = total + read(self.memory["bias"], problem.result)[: problem.n]
        return total

    @cached_property
    def expected(self) -> np.ndarray:
        a, b = self.factors()
        result = a @ b + self.added()
        return np.maximum(result, 0) if self.problem.relu else result

    @cached_property
    def tolerance(self) -> np.ndarray:
        """What the roundings of the arithmetic can come to, element by element."""
        a, b = self.factors()
        factor = {"ieee": 0.0, "tf32": 2.0**-9, "half": 0.0}[self.problem.arithmetic]
        # Tensor cores cut off what they shift out of a sum, which costs up to four times as much.
        step = 2.0**-24 if self.problem.arithmetic == "ieee" else 2.0**-22
        scale = np.abs(a) @ np.abs(b) + np.abs(self.added())
        last = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
        # Some kernels round the product to the result's type before they add to it.
        terms = np.abs(self.expected) + np.abs(a @ b)
        terms = terms + (np.abs(self.matrix("c")) if self.problem.residual else 0)
        roundings = last[self.problem.result] * terms
        return scale * (factor + step * (self.problem.k + 4)) + roundings + 1e-6


# ---------------------------------------------------------------- without the library


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, r"2 x 3 x 0: sizes and batch must be at least 1"),
        ({"batch": 0}, "the batch is 0"),
        ({"dtype": "float64"}, "dtype 'float64' is none of float32, float16, bfloat16"),
        ({"result": "bfloat16"}, "result 'bfloat16' must be float32 or float32"),
        ({"arithmetic": "half"}, "arithmetic 'half' must be ieee or tf32 for float32"),
        ({"dtype": "float16", "arithmetic": "tf32"}, "arithmetic 'tf32' must be half for float16"),
        ({"bias_gradient": True, "relu": True}, "bias_gradient goes with neither"),
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
        "import sys; import golow.levels.cudnn.cublaslt as c; "
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
        as_the_library_reads_it(item, read(case.memory[name], case.dtype(name)))
        for item, name in ((b, "b"), (a, "a"), (c, "c"))
    )
    left, right = (
        matrix.swapaxes(1, 2) if attribute(described, number, ctypes.c_int32) else matrix
        for matrix, number in ((left, cublaslt.DESC_TRANSA), (right, cublaslt.DESC_TRANSB))
    )
    bias = read(case.memory["bias"], problem.result)[: left.shape[1], None]  # along its rows
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
        ({"bias_gradient": True}, 512),
    ],
)
def test_epilogues(settings: dict[str, bool], epilogue: int) -> None:
    described = operation(Problem(2, 3, 4, alignment=16, **settings))
    assert attribute(described, cublaslt.DESC_EPILOGUE, ctypes.c_uint32) == epilogue
    pointer = attribute(described, cublaslt.DESC_BIAS_POINTER, ctypes.c_void_p)
    assert pointer == (16 if epilogue >= 4 else None)


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
        "import sys; from golow.levels.cudnn.cublaslt import Problem, operation; "
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
        ({}, {"b": 528}, "the address 0x210 of b is no multiple of 256; give the problem a smal"),
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


# ---------------------------------------------------------------- on a GPU


class Solver:
    """Runs a case on the GPU, from memory of its own."""

    def __init__(
        self, gpu: Any, lt: CublasLt, case: Case, *, in_place: bool = False, offset: int = 0
    ) -> None:
        from golow.levels.cudnn.device import Region

        self.gpu, self.case, self.in_place = gpu, case, in_place
        self.matmul = Matmul(lt, case.problem)
        self.workspace = Region(LIMIT)
        self.regions = {n: Region(offset + array.nbytes) for n, array in case.memory.items()}
        self.at = {name: region.address + offset for name, region in self.regions.items()}

    def algorithms(self) -> list[Algorithm]:
        return self.matmul.candidates(LIMIT)

    def enqueue(self, algorithm: Algorithm) -> None:
        problem, at = self.case.problem, self.at
        optional = {"c": at["d"] if self.in_place else at["c"]} if problem.residual else {}
        if problem.bias or problem.bias_gradient:
            optional["bias"] = at["bias"]
        self.matmul.run(
            algorithm, a=at["a"], b=at["b"], d=at["d"], stream=self.gpu.stream,
            workspace=self.workspace.address, **optional,
        )  # fmt: skip

    def upload(self) -> None:
        from cuda.bindings import driver

        for name, address in self.at.items():
            source = "c" if name == "d" and self.in_place else name
            self.gpu.upload(address, self.case.memory[source])
        driver.cuCtxSynchronize()  # the GPU's own stream does not wait for other streams

    def download(self, name: str) -> np.ndarray:
        array = self.case.memory[name]
        return self.gpu.download(self.at[name], array.shape, array.dtype)

    def check(self) -> None:
        """The result is right, and nothing beside it was written."""
        problem, memory = self.case.problem, self.download("d")
        where = places(problem.matrices["d"], problem.batch)
        result, expected = read(memory, problem.result)[where], self.case.expected
        error, allowed = np.abs(result - expected), self.case.tolerance
        worst = np.nanmax(error / allowed)
        assert (error <= allowed).all(), f"{problem}: {worst:.3g} times the tolerance"
        beside = np.ones(len(memory), bool)
        beside[where] = False
        before = self.case.memory["c" if self.in_place else "d"]
        np.testing.assert_array_equal(memory[beside], before[beside])

    def check_all(self) -> None:
        algorithms = self.algorithms()
        assert algorithms, f"no algorithm for {self.case.problem}"
        for algorithm in algorithms:
            assert algorithm.workspace <= LIMIT
            self.upload()
            self.enqueue(algorithm)
            self.check()


SIZES = [
    *[(1, 1, 1), (3, 10, 84), (84, 3, 1000), (1000, 84, 10), (10, 1000, 3), (1, 1000, 84)],
    *[(84, 1, 10), (3, 3, 1), (1, 3, 1000), (1000, 1, 3), (64, 128, 256), (1000, 1000, 1000)],
]
EPILOGUES = [
    {"bias": True},
    {"relu": True},
    {"bias": True, "relu": True},
    {"residual": True},
    {"residual": True, "bias": True, "relu": True},
]


@pytest.mark.gpu
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
@pytest.mark.parametrize(("dtype", "result", "arithmetic"), KINDS)
def test_products_of_all_sizes(
    gpu: Any, lt: CublasLt, dtype: str, result: str, arithmetic: str,
    transpose_a: bool, transpose_b: bool,
) -> None:  # fmt: skip
    kind = (dtype, result, arithmetic, transpose_a, transpose_b)
    for size in SIZES:
        Solver(gpu, lt, Case(Problem(*size, *kind))).check_all()


@pytest.mark.gpu
@pytest.mark.parametrize("epilogue", EPILOGUES, ids="+".join)
@pytest.mark.parametrize(("dtype", "result", "arithmetic"), KINDS)
def test_epilogues_are_computed(
    gpu: Any, lt: CublasLt, dtype: str, result: str, arithmetic: str, epilogue: dict[str, bool]
) -> None:
    for size in [(32, 1000, 512), (49, 64, 256), (8, 10, 84), (3, 1000, 10), (1000, 3, 10)]:
        problem = Problem(*size, dtype, result, arithmetic, transpose_b=True, **epilogue)
        Solver(gpu, lt, Case(problem)).check_all()


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "result", "arithmetic"), KINDS)
def test_a_result_may_lie_on_its_residual(
    gpu: Any, lt: CublasLt, dtype: str, result: str, arithmetic: str
) -> None:
    gaps = {"c": Strides(72), "d": Strides(72)}
    problem = Problem(49, 64, 256, dtype, result, arithmetic, residual=True, relu=True, **gaps)
    Solver(gpu, lt, Case(problem), in_place=True).check_all()


@pytest.mark.gpu
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
@pytest.mark.parametrize(("dtype", "result", "arithmetic"), KINDS)
def test_batches_and_padded_rows(
    gpu: Any, lt: CublasLt, dtype: str, result: str, arithmetic: str,
    transpose_a: bool, transpose_b: bool,
) -> None:  # fmt: skip
    kind = (dtype, result, arithmetic, transpose_a, transpose_b)
    alone = Problem(20, 24, 16, *kind, residual=True, bias=True, relu=True)
    gaps = {name: Strides(row=32) for name in "abcd"}
    shared = {"b": Strides(row=32, batch=0), "d": Strides(row=5 * 24, batch=24)}  # side by side
    for problem in (
        replace(alone, **gaps),
        replace(alone, batch=5),
        replace(alone, batch=5, **(gaps | shared)),
        replace(alone, **{name: Strides(row=33) for name in "abcd"}),
    ):
        Solver(gpu, lt, Case(problem)).check_all()


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "result", "arithmetic"), KINDS)
def test_the_gradient_of_a_bias_comes_with_that_of_the_weight(
    gpu: Any, lt: CublasLt, dtype: str, result: str, arithmetic: str
) -> None:
    problem = Problem(64, 96, 128, dtype, result, arithmetic, transpose_a=True, bias_gradient=True)
    solver = Solver(gpu, lt, Case(problem))
    if not solver.algorithms():
        pytest.skip(f"cuBLASLt has none from {dtype} to {result} with {arithmetic}")
    solver.check_all()
    gradient = solver.case.factors()[0][0]
    allowed = Case(replace(problem, n=1, bias_gradient=False))
    allowed.memory["b"] = stored(np.ones(problem.k), dtype)  # the sum is a product with ones
    error = np.abs(read(solver.download("bias"), result)[: problem.m] - gradient.sum(axis=1))
    assert (error <= allowed.tolerance[0, :, 0]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("alignment", [4, 16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_operands_within_a_larger_buffer(
    gpu: Any, lt: CublasLt, dtype: str, alignment: int
) -> None:
    arithmetic = "ieee" if dtype == "float32" else "half"
    problem = Problem(
        64, 32, 48, dtype, dtype, arithmetic, alignment=alignment, residual=True, bias=True
    )
    Solver(gpu, lt, Case(problem), offset=alignment).check_all()


@pytest.mark.gpu
def test_a_stored_algorithm_replays_within_a_graph(gpu: Any, lt: CublasLt) -> None:
    case = Case(Problem(49, 64, 256, transpose_b=True, bias=True, residual=True, relu=True))
    first = Solver(gpu, lt, case).algorithms()[0]
    solver = Solver(gpu, lt, case)
    again = msgspec.json.decode(msgspec.json.encode(first), type=Algorithm)
    solver.enqueue(again)  # what the library loads lazily cannot be loaded during the capture
    graph = gpu.capture(lambda: solver.enqueue(again))
    solver.upload()
    gpu.replay(graph)
    solver.check()


@pytest.mark.gpu
def test_candidates_keep_to_the_limits(gpu: Any, lt: CublasLt) -> None:
    matmul = Matmul(lt, Problem(64, 64, 1 << 16, transpose_a=True))
    assert all(algorithm.workspace == 0 for algorithm in matmul.candidates(0))
    assert len(matmul.candidates(LIMIT, count=1)) == 1
    assert len({algorithm.data for algorithm in matmul.candidates(LIMIT)}) > 1
    assert lt.version.count(".") == 2
