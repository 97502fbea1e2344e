"""Which engine an operation gets, on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from golow.levels.direct.cudnn.level import probe
from golow.levels.direct.cudnn.problems.products import Convolution

if not probe().available:
    pytest.skip(probe().missing, allow_module_level=True)

from cuda.bindings import driver

from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.bindings.frontend import Frontend
from golow.levels.direct.cudnn.engines.engines import Engine, Engines, workspace_limit
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.delay import delay
from golow.levels.direct.formulas.activation_formulas import RELU
from golow.levels.nvidia.memory import Region, checked

pytestmark = pytest.mark.gpu

# The last blocks of ResNet-50 on 1024 images of 8x8: one pixel is left of each. Of the ways that
# cuDNN 9.19 knows for it on an H200 some want gigabytes.
GRADIENT = Convolution(
    direction="backward_weight", image=(1024, 512, 1, 1), output=(1024, 512, 1, 1), kernel=(3, 3),
    stride=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1,
    dtype="float32", result="float32", arithmetic="tf32",
)  # fmt: skip

SMALL = msgspec.structs.replace(GRADIENT, image=(8, 16, 12, 12), output=(8, 16, 12, 12))

PIXELS = Convolution(
    direction="forward", image=(8, 64, 7, 7), output=(8, 256, 7, 7), kernel=(1, 1), stride=(1, 1),
    padding=(0, 0, 0, 0), dilation=(1, 1), groups=1, dtype="bfloat16", result="bfloat16",
    arithmetic="half",
)  # fmt: skip


class Waiting:
    """An engine that does nothing for a while."""

    kind = name = "waiting"
    workspace = 0

    def __init__(self, gpu: Gpu, ns: float) -> None:
        self.gpu, self.ns, self.runs = gpu, ns, 0

    def run(self, addresses: Sequence[int], workspace: int, side: bool = False) -> None:
        self.runs += 1
        self.gpu.launch(delay(int(self.ns)), [])

    def encode(self) -> bytes:
        return b""


def test_no_plan_needs_more_workspace_than_it_may(tmp_path: Path) -> None:
    frontend = Frontend(Gpu(tmp_path))
    wanted = [plan.workspace for plan in frontend.plans(GRADIENT, 100, 1 << 60)]
    middle = sorted(wanted)[len(wanted) // 2]
    fitting = [plan.workspace for plan in frontend.plans(GRADIENT, 100, middle)]
    assert fitting == [size for size in wanted if size <= middle]
    assert 0 < len(fitting) < len(wanted), "the plans' workspaces differ"


def test_plans_that_need_too_much_are_taken_where_there_is_no_other(tmp_path: Path) -> None:
    frontend = Frontend(Gpu(tmp_path))
    every = [plan.name for plan in frontend.plans(GRADIENT, 100, 1 << 60)]
    assert [plan.name for plan in frontend.plans(GRADIENT, 100, -1)] == every
    assert [plan.name for plan in frontend.plans(GRADIENT, 2, -1)] == every[:2]


def test_a_gradient_has_the_same_bits_in_each_run(tmp_path: Path) -> None:
    """In float32 the library's first choice may add up parts in the order of their arrival."""
    gpu, sizes = Gpu(tmp_path), SMALL.operand_bytes
    engine = Engines(gpu, tmp_path, autotune=False).choose(SMALL)
    assert engine is not None
    image, outer, gradient = regions = [Region(size) for size in sizes]
    workspace = Region(engine.workspace)
    for region in (image, outer):
        noise = np.random.default_rng(0).standard_normal(region.size // 4).astype(np.float32)
        gpu.upload(region.address, noise)
    found = set()
    for _ in range(50):
        engine.run([region.address for region in regions], workspace.address)
        found.add(gpu.download(gradient.address, (sizes[2],), np.uint8).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("autotune", [False, True])
def test_the_chosen_engine_is_within_the_limit(tmp_path: Path, autotune: bool) -> None:
    engine = Engines(Gpu(tmp_path / "kernels"), tmp_path, autotune).choose(GRADIENT)
    assert engine is not None
    assert engine.workspace <= workspace_limit(GRADIENT)


@pytest.mark.parametrize("size", [300, 1 << 20, (3 << 20) + 5])
def test_what_engines_are_timed_on_is_full_of_small_numbers(tmp_path: Path, size: int) -> None:
    engines, region = Engines(Gpu(tmp_path / "kernels"), tmp_path, True), Region(size)
    engines._fill(region)
    found = engines.gpu.download(region.address, (size,), np.uint8)
    assert (found.min(), found.max()) == (0x38, 0x3B)


@pytest.mark.parametrize(("longest", "single"), [(1e5, False), (3e6, True)])
def test_the_fastest_engine_is_chosen(tmp_path: Path, longest: float, single: bool) -> None:
    """Of engines that do nothing but wait, in whatever order they come."""
    engines = Engines(Gpu(tmp_path / "kernels"), tmp_path, True)
    for shares in permutations((0.5, 1.0, 0.2)):
        waiting = [Waiting(engines.gpu, share * longest) for share in shares]
        chosen = engines._pick_fastest(GRADIENT, waiting)
        assert chosen is min(waiting, key=lambda engine: engine.ns)
    assert all(engine.runs <= 3 for engine in waiting) == single


@pytest.mark.parametrize("cold", [False, True])
def test_a_cold_weight_has_a_copy_for_every_repetition(tmp_path: Path, cold: bool) -> None:
    """And the cache is emptied before each run."""
    operation = msgspec.structs.replace(PIXELS, frozen=True, cold=cold)
    engines = Engines(Gpu(tmp_path / "kernels"), tmp_path, True)
    with engines._operands(operation, [Waiting(engines.gpu, 1.0)]) as operands:
        weights = {addresses[1] for addresses in operands.addresses}
        others = {(addresses[0], *addresses[2:]) for addresses in operands.addresses}
        assert (len(weights), len(others)) == (10 if cold else 1, 1)
        assert (operands.flushed is not None) == cold
        size = operation.operand_bytes[1]
        for address in weights:
            found = engines.gpu.download(address, (size,), np.uint8)
            assert found.min() >= 0x38


@pytest.mark.parametrize(("images", "timed"), [(1, False), (32, True)])
def test_what_is_large_is_timed_without_autotuning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: int, timed: bool
) -> None:
    """The last convolution of a first block of ResNet-50 on pictures of 1024x1024."""
    operation = Convolution(
        direction="forward", image=(images, 64, 256, 256), output=(images, 256, 256, 256),
        kernel=(1, 1), stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1,
        dtype="float32", result="float32", arithmetic="tf32", bias=True, residual=True,
        clip=RELU,
    )  # fmt: skip
    times: list[tuple[float, Engine]] = []
    clock = Engines._time

    def seen(self: Engines, engine: Engine, *rest: Any) -> float:
        times.append((clock(self, engine, *rest), engine))
        return times[-1][0]

    monkeypatch.setattr(Engines, "_time", seen)
    chosen = Engines(Gpu(tmp_path / "kernels"), tmp_path, False).choose(operation)
    assert chosen is not None
    assert (len(times) > 1) == timed
    assert not timed or min(times, key=lambda taken: taken[0])[1] is chosen


def test_a_suggestion_that_is_far_too_slow_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without autotuning, too; one that takes twice as long as it should is kept."""
    operation = Convolution(
        direction="forward", image=(8, 64, 56, 56), output=(8, 64, 56, 56), kernel=(1, 1),
        stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1, dtype="bfloat16",
        result="bfloat16", arithmetic="half",
    )  # fmt: skip
    candidates = Engines._candidates
    for slow, replaced in ((20e6, True), (10e3, False)):
        engines = Engines(Gpu(tmp_path / "kernels"), tmp_path / str(replaced), False)
        waiting = Waiting(engines.gpu, slow)

        def first(self: Engines, wanted: Any, most: int, waiting: Engine = waiting) -> Any:
            yield waiting
            yield from candidates(self, wanted, most)

        monkeypatch.setattr(Engines, "_candidates", first)
        assert (engines.choose(operation) is not waiting) == replaced


def test_a_kernel_finds_the_stack_that_it_needs(tmp_path: Path) -> None:
    """The context keeps none beforehand."""
    gpu = Gpu(tmp_path)
    limit = driver.CUlimit.CU_LIMIT_STACK_SIZE
    assert checked(driver.cuCtxGetLimit(limit), "cuCtxGetLimit") == 0
    code = """
    __global__ void sums(int* result) {
        int kept[256];
        for (int i = 0; i < 256; ++i) kept[i * 5 % 256] = i + threadIdx.x;
        int sum = 0;
        for (int i = 0; i < 256; ++i) sum += kept[(i * result[0] + result[1]) % 256] % 7;
        __syncthreads();
        result[threadIdx.x] = sum;
    }
    """
    region = Region(4 * 256)
    gpu.upload(region.address, np.array([3, 1], np.int32))
    kernel = Kernel(FOLDER / "delay.cu", "sums", (1, 1, 1), (256, 1, 1), code=code)
    gpu.launch(kernel, [region.address])
    expected = (np.arange(256) + np.arange(256)[:, None]) % 7
    found = gpu.download(region.address, (256,), np.int32)
    np.testing.assert_array_equal(found, expected.sum(1))
    assert checked(driver.cuCtxGetLimit(limit), "cuCtxGetLimit") >= 4 * 256
