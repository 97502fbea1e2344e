"""Every choice of a GPU, in real workers on one: the values by default, that each alternative
takes effect, and that batches from the host arrive with their marks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import golow
from golow.levels.choices import cuda_driver
from golow.levels.choices.choice import Alternative, Choice
from golow.levels.direct.cudnn import level as cudnn
from golow.levels.ladder import LADDER, choose
from golow.levels.starter import Starter
from golow.records.errors import Unsupported
from golow.records.workload import Mode, Precision
from golow.worker.client import Worker
from golow.worker.process import worker_environment
from golow.worker.protocol import Challenge, Marks
from golow.workload.bundle import Bundle
from support.workers.bundles import NETWORKS, network_bundle
from support.workers.precisions import in_precision
from support.workers.protocol_driver import RawWorker
from support.workers.torch_choices import CHOICES

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

pytestmark = pytest.mark.gpu
LEVELS = [
    "eager",
    "libtorch",
    pytest.param(
        "cudnn",
        marks=pytest.mark.skipif(not cudnn.probe().available, reason="NVIDIA's packages"),
    ),
]
# Without autocast there is nothing to choose.
OUT_OF_PLACE = ("autocast_cache",)
PICTURES = 8 * 3 * 16 * 16  # elements of a batch


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where bundles and builds are stored."""
    return tmp_path_factory.mktemp("choices")


def gpu_bundle(workshop: Path, mode: Mode, precision: Precision = "default") -> Bundle:
    folder = workshop / f"{mode}-{precision}"
    if folder.exists():
        return Bundle(folder)
    return in_precision(network_bundle(folder, mode), precision, "cuda")


@contextmanager
def loaded(name: str, bundle: Bundle, workshop: Path) -> Iterator[Worker]:
    """A worker of that level with its choices, which must all be in effect to load."""
    chosen = choose(name, bundle.workload.mode, "cuda")
    launch = chosen.prepare(bundle, workshop / "cache")
    with Starter() as starter, starter.worker(name, launch, bundle) as worker:
        worker.load(bundle.folder)
        yield worker


def offered(level: str, mode: Mode = "infer") -> list[tuple[Choice, Alternative]]:
    return [
        (choice, alternative)
        for choice in CHOICES.values()
        if choice.name not in OUT_OF_PLACE
        for alternative in choice.offered(level, mode, "cuda")
    ]


# ---------------------------------------------------------------- what is in effect


@pytest.mark.parametrize("level", LEVELS)
def test_defaults_are_read_and_differ_from_the_alternatives(level: str, workshop: Path) -> None:
    with loaded(level, gpu_bundle(workshop, "infer"), workshop) as worker:
        # LibTorch's worker does not say what the GPU's administrator decides.
        wanted = [
            choice.name
            for choice in CHOICES.values()
            if choice.applies(level, "infer", "cuda") and (choice.alternatives or level == "eager")
        ]
        found = worker.choices(wanted)
    assert sorted(found) == sorted(wanted)
    assert cuda_driver.UNKNOWN not in found.values(), found
    for name, value in found.items():
        values = [one.value for one in CHOICES[name].offered(level, "infer", "cuda")]
        both_ways = name.startswith("tf32")  # on and off: one of the two is the default
        assert (values.count(value) == 1) if both_ways else (value not in values), (name, value)


@pytest.mark.parametrize("level", LEVELS)
def test_every_call_takes_effect(level: str, workshop: Path) -> None:
    """In one process, which loads once for each alternative."""
    bundle = gpu_bundle(workshop, "infer")
    launch = choose(level, "infer", "cuda").prepare(bundle, workshop / "cache")
    environment = worker_environment(launch.command[0], 1, launch.environment)
    with raw_worker(launch.command, environment) as worker:
        for choice, alternative in offered(level):
            if alternative.environment:
                continue
            request = {"bundle": str(bundle.folder), "choices": [alternative.name]}
            assert worker.request(do="load", **request)["ok"], alternative.name
            found = worker.request(do="choices", names=[choice.name])["choices"]
            assert found == {choice.name: alternative.value}, alternative.name
            timed = worker.request(do="time", iterations=2, warmup=1)
            assert timed["ok"], (alternative.name, timed)


@contextmanager
def raw_worker(command: tuple[str, ...], environment: dict[str, str]) -> Iterator[RawWorker]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        worker = RawWorker(command)
    with worker:
        yield worker


@pytest.mark.parametrize("level", LEVELS)
def test_every_variable_takes_effect(level: str, workshop: Path) -> None:
    """Each in a process of its own, which computes with it."""
    bundle = gpu_bundle(workshop, "infer")
    for _, alternative in offered(level):
        if not alternative.environment:
            continue
        with loaded(f"{level}+{alternative.name}", bundle, workshop) as worker:
            assert worker.time(2, 1).device_ns, alternative.name


@pytest.mark.parametrize("level", ["eager", "libtorch"])
def test_what_nobody_counts_is_no_figure(level: str, workshop: Path) -> None:
    """Without a cache PyTorch counts nothing: its peak would be zero."""
    with loaded(f"{level}+no_cuda_cache", gpu_bundle(workshop, "infer"), workshop) as worker:
        assert worker.allocated_peak() is None
    with loaded(level, gpu_bundle(workshop, "infer"), workshop) as worker:
        assert (worker.allocated_peak() or 0) > 0


@pytest.mark.parametrize("name", ["expandable_segments", "eager_modules", "launch_blocking"])
def test_an_alternative_without_effect_is_refused(name: str, workshop: Path) -> None:
    """Planted: the worker is told the name, but not given the variable."""
    bundle = gpu_bundle(workshop, "infer")
    chosen = choose(f"eager+{name}", "infer", "cuda")
    launch = chosen.prepare(bundle, workshop / "cache")._replace(environment={})
    with (
        Starter() as starter,
        starter.worker(name, launch, bundle) as worker,
        pytest.raises(Unsupported, match=f"{name} is not in effect"),
    ):
        worker.load(bundle.folder)


def test_choices_of_a_training_take_effect(workshop: Path) -> None:
    bundle = gpu_bundle(workshop, "train", "bf16")
    names = "cudnn_benchmark+full_bf16_reductions+no_autocast_cache+no_cuda_stack+from_host_uint8"
    with loaded(f"eager+{names}", bundle, workshop) as worker:
        assert worker.time(3, 1).device_ns
    names = "cudnn_benchmark+full_bf16_reductions+no_cuda_stack+tf32_products"
    with loaded(f"libtorch+{names}", bundle, workshop) as worker:
        assert worker.time(3, 1).device_ns


# ---------------------------------------------------------------- batches


def sources(level: str = "eager") -> list[str]:
    return [one.name for one in CHOICES["batch_source"].offered(level, "infer", "cuda")]


def timed(worker: Worker, iterations: int = 40) -> list[float]:
    """Results of marked iterations, after a jump; far more are enqueued than there are batches."""
    marks = Marks(input=0, start=3, length=90, low=-0.2, high=0.2, whole=False, seed=1)
    found: list[float] = []
    for first in (0, 7):
        challenge = Challenge(first=first, reset=True, learning_rate=0.01, marks=marks)
        found += worker.time(iterations, 1, challenge=challenge).results
    return found


@pytest.fixture(scope="module")
def expected(workshop: Path) -> dict[Mode, list[float]]:
    """Eager's results with batches that are on the GPU."""
    found: dict[Mode, list[float]] = {}
    for mode in ("infer", "train"):
        with loaded("eager", gpu_bundle(workshop, mode, "ieee"), workshop) as worker:
            assert worker.choices(["batch_source"]) == {"batch_source": "where it is used"}
            found[mode] = timed(worker)
    return found


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", sources())
def test_batches_and_marks_arrive(
    name: str, mode: Mode, workshop: Path, expected: dict[Mode, list[float]]
) -> None:
    with loaded(f"eager+{name}", gpu_bundle(workshop, mode, "ieee"), workshop) as worker:
        assert timed(worker) == pytest.approx(expected[mode], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("level", ["torchscript", "cudagraph"])
@pytest.mark.parametrize("name", ["from_host_pinned_async", "from_host_uint8", "data_loader_2"])
def test_other_levels_take_them_too(
    level: str, name: str, workshop: Path, expected: dict[Mode, list[float]]
) -> None:
    with loaded(f"{level}+{name}", gpu_bundle(workshop, "train", "ieee"), workshop) as worker:
        assert timed(worker) == pytest.approx(expected["train"], rel=1e-3, abs=1e-4)


BYTES = {
    "from_host": (4, "pageable"),
    "from_host_pinned": (4, "pinned"),
    "from_host_pinned_async": (4, "pinned"),
    "from_host_float64": (8, "pageable"),
    "from_host_uint8": (1, "pageable"),
    "data_loader": (4, "pageable"),
    "data_loader_pinned": (4, "pinned"),
}


@pytest.mark.parametrize("name", BYTES)
def test_the_profiler_sees_as_many_bytes(name: str, workshop: Path) -> None:
    """The paper's copies: float64 are twice, uint8 a quarter of float32's bytes."""
    size, kind = BYTES[name]
    with loaded(f"eager+{name}", gpu_bundle(workshop, "infer"), workshop) as worker:
        report = worker.copies(4)
    assert report is not None
    assert report.bytes == size * PICTURES
    assert report.kind == kind


# ---------------------------------------------------------------- a comparison


def test_a_comparison_of_choices(workshop: Path) -> None:
    """All match in float32's own precision: no way of the batch changes a number."""
    names = "cudnn_deterministic no_cudnn cublaslt no_cuda_stack from_host_pinned_async".split()
    names += ["from_host_uint8", "data_loader_2", "expandable_segments"]
    compared = golow.compare(
        f"{NETWORKS}:Network",
        levels=["eager", *(f"eager+{name}" for name in names), "libtorch", "libtorch+no_cudnn"],
        input_shape=(3, 16, 16),
        batch=8,
        device="cuda",
        precision="ieee",
        time_limit=3,
        cache=workshop / "cache",
    )
    verdicts: dict[str, Any] = {run.level: run.check.verdict for run in compared.comparison.runs}
    assert set(verdicts.values()) == {"match"}, verdicts


def test_every_choice_is_of_a_level_that_runs_there() -> None:
    on_a_gpu = {level.name for level in LADDER if "cuda" in level.devices}
    for choice in CHOICES.values():
        assert set(choice.levels) <= on_a_gpu, choice.name
