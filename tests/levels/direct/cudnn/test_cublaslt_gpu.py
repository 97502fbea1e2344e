"""cuBLASLt's products on a GPU, against NumPy in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from golow.levels.direct.cudnn.bindings.cublaslt import Algorithm, CublasLt, Matmul
from golow.levels.direct.cudnn.problems.gemm import Problem, Strides
from golow.lower.operators.quantize import E4M3
from support.direct.cublaslt_cases import (
    KINDS,
    LIMIT,
    NARROW,
    TRANSPOSES,
    Case,
    places,
    require_library,
    stored,
)


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Any:
    require_library()
    pytest.importorskip("cuda.core")
    from cuda.bindings import driver

    try:
        if driver.cuInit(0)[0] != driver.CUresult.CUDA_SUCCESS:
            pytest.skip("no GPU")
    except RuntimeError:  # the bindings' way to say that there is no driver
        pytest.skip("no GPU driver")
    from golow.levels.direct.cudnn.bindings.device import Gpu

    return Gpu(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="module")
def lt(gpu: Any) -> CublasLt:
    return CublasLt()


class Solver:
    """Runs a case on the GPU, from memory of its own."""

    def __init__(
        self, gpu: Any, lt: CublasLt, case: Case, *, in_place: bool = False, offset: int = 0
    ) -> None:
        from golow.levels.nvidia.memory import Region

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
        if problem.scaled:
            optional |= {"columns": at["columns"], "rows": at["rows"]}
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
        result, expected = memory.astype(np.float64)[where], self.case.expected
        error, allowed = np.abs(result - expected), self.case.tolerance
        worst = np.nanmax(error / allowed)
        assert (error <= allowed).all(), f"{problem}: {worst:.3g} times the tolerance"
        beside = np.ones(len(memory), bool)
        beside[where] = False
        before = self.case.memory["c" if self.in_place else "d"]
        assert memory[beside].tobytes() == before[beside].tobytes()

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
    {"gelu": True},
    {"bias": True, "gelu": True},
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
@pytest.mark.parametrize(("dtype", "result", "scaled"), NARROW)
def test_products_of_8_bits(gpu: Any, lt: CublasLt, dtype: str, result: str, scaled: bool) -> None:
    if dtype == E4M3 and gpu.architecture != "sm_90":
        pytest.skip("a scale for each row and column is of sm_90")
    for size in [(64, 128, 256), (4096, 768, 768), (197, 3072, 768), (100, 64, 4096), (1, 32, 48)]:
        problem = Problem(*size, dtype, result, "quarter", transpose_b=True, scaled=scaled)
        further: list[dict[str, bool]] = [{}]
        if scaled:
            biased = result != "float32"
            further += [{"residual": True}, {"bias": biased, "relu": True, "residual": True}]
        for settings in further:
            solver = Solver(gpu, lt, Case(replace(problem, **settings)))
            if size[0] == 1 and not solver.algorithms():
                continue  # the level multiplies in another type then
            solver.check_all()


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
        replace(alone, batch=5, factor=-0.25),
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
    error = np.abs(solver.download("bias").astype(np.float64)[: problem.m] - gradient.sum(axis=1))
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
