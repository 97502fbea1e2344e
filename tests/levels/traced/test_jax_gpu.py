"""The level `jax` on a GPU: the protocol, the clock, precisions, whole comparisons."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import golow
from golow.levels.traced.jax import level as jax
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.errors import Unsupported
from golow.records.workload import Mode, Precision
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.workers.conversation import Conversation, Subject
from support.workers.gpu_precisions import MEANT, Convolution, Product, outputs
from support.workers.gpu_subjects import ON_GPU, gpu_subject
from support.workers.workers_kept import kept_loaded


def runs() -> bool:
    """True if JAX can use a GPU here, as far as its packages say."""
    try:
        jax.require_gpu()
    except Unsupported:
        return False
    return jax.probe().available and torch.cuda.is_available()


if not runs():
    pytest.skip("JAX has no GPU", allow_module_level=True)

pytestmark = pytest.mark.gpu
WORKERS = [
    pytest.param((level, mode, precision), id=f"{level}-{mode}-{precision}")
    for level, mode, precision in (
        ("jax", "infer", "ieee"),
        ("jax", "train", "ieee"),
        ("jax", "infer", "bf16"),
        ("jax", "train", "bf16"),
        ("jax", "train", "fp16"),
        ("jax:freezing", "infer", "ieee"),
        ("jax:freezing", "infer", "bf16"),
    )
]


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where bundles and builds of this session are stored."""
    return tmp_path_factory.mktemp("jax-gpu")


@pytest.fixture(scope="module")
def conversation(
    request: pytest.FixtureRequest, workshop: Path
) -> Iterator[Callable[[], Conversation]]:
    level, mode, precision = request.param
    with kept_loaded(gpu_subject(workshop, level, mode, precision)) as loaded:
        yield loaded


@pytest.mark.parametrize("conversation", WORKERS, indirect=True)
@pytest.mark.parametrize("check", ON_GPU, ids=lambda check: check.__name__)
def test_a_worker_conforms(
    conversation: Callable[[], Conversation], check: Callable[[Conversation], None]
) -> None:
    check(conversation())


@pytest.mark.parametrize("conversation", WORKERS, indirect=True)
@pytest.mark.parametrize("cold", [False, True])
def test_every_iteration_has_a_time_of_the_device(
    conversation: Callable[[], Conversation], cold: bool
) -> None:
    answer = conversation().ask(do="time", iterations=5, warmup=2, cold=cold)
    assert len(answer["device_ns"]) == len(answer["host_ns"]) == 5
    assert all(ns > 0 for ns in (*answer["device_ns"], *answer["host_ns"]))


def test_the_events_lie_around_the_whole_work(tmp_path: Path) -> None:
    """Few iterations of much work, which the host enqueues at once: events that do not wait for
    the work would be over with the enqueueing."""
    network = nn.Sequential(*(nn.Linear(4096, 4096, bias=False) for _ in range(3)))
    request = Request(network, torch.randn(4096, 4096), device="cuda", precision="ieee")
    subject = jax_subject(request, tmp_path)
    with Conversation(subject) as worker:
        worker.load()
        worker.time(5, 5)
        began = time.perf_counter_ns()
        answer = worker.ask(do="time", iterations=20, warmup=0)
        passed = time.perf_counter_ns() - began
    spent = sum(answer["device_ns"])
    print(f"events: {spent / passed:.2f} of the time of the request")
    assert 0.5 * passed <= spent <= passed


def jax_subject(request: Request, folder: Path) -> Subject:
    bundle = jax_bundle(request, folder / "bundle")
    launch = jax.prepare(bundle, "", folder / "cache")
    environment = worker_environment(launch.command[0], 1, launch.environment)
    return Subject(launch.command, environment, bundle)


def jax_bundle(request: Request, folder: Path) -> Bundle:
    """The bundle of a workload, with its graph."""
    bundle, prepared = write_bundle(prepare(request), folder)
    captured = capture(prepared)
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)
    return bundle


@pytest.mark.parametrize(("precision", "product", "convolution"), MEANT)
def test_a_precision_is_in_force(
    precision: Precision,
    product: tuple[float, float],
    convolution: tuple[float, float],
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    for module, shape, (least, most) in (
        (Product(), (256, 512), product),
        (Convolution(), (8, 64, 32, 32), convolution),
    ):
        request = Request(module, torch.randn(shape), device="cuda", precision=precision)
        folder = tmp_path / type(module).__name__
        bundle = jax_bundle(request, folder)
        exact = outputs("eager:float64", bundle, folder.with_suffix(".double"))
        found = outputs("jax", bundle, folder.with_suffix(".found"))
        error = float((found.double() - exact).norm() / exact.norm())
        print(f"{type(module).__name__} in {precision}: {error:.1e}")
        assert least <= error <= most


@pytest.mark.parametrize("precision", ["default", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_lenet5_matches_and_is_timed(mode: Mode, precision: Precision, tmp_path: Path) -> None:
    levels = ["eager", "jax", *(["jax:freezing"] if mode == "infer" else [])]
    result = golow.compare(
        "lenet5",
        mode=mode,
        levels=levels,
        batch=64,
        device="cuda",
        precision=precision,
        cold=precision == "bf16",
        time_limit=5,
        cache=tmp_path,
    )
    found = {run.level: (run.check.verdict, run.check.reason) for run in result.comparison.runs}
    assert found == dict.fromkeys(levels, ("match", ""))
    for run in result.comparison.runs:
        assert run.time is not None
        assert all(block.device_ns for block in run.blocks)
