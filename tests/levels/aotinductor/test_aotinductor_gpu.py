"""The level aotinductor on a GPU: called, and replayed as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import golow
from golow.levels.aotinductor import level as aotinductor
from golow.records.workload import Precision
from golow.worker.process import worker_environment
from golow.workload.bundle import write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.one_run import program_cache
from support.workers.bundles import network_bundle
from support.workers.conversation import Conversation, Subject
from support.workers.gpu_subjects import ON_GPU
from support.workers.precisions import in_precision
from support.workers.workers_kept import kept_loaded

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

pytestmark = pytest.mark.gpu
SUBJECTS: list[tuple[str, Precision]] = [
    ("", "ieee"),
    ("cudagraph", "ieee"),
    ("", "bf16"),
    ("cudagraph", "bf16"),
]
LEVELS = ("aotinductor", "aotinductor:cudagraph")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program_cache(tmp_path_factory.getbasetemp())


@pytest.fixture(
    scope="module", params=SUBJECTS, ids=lambda subject: "-".join(filter(None, subject))
)
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache: Path
) -> Subject:
    variant, precision = request.param
    bundle = network_bundle(tmp_path_factory.mktemp("gpu") / "bundle", "infer")
    # The bundle's digest does not cover the precision that is written into it here.
    launch = aotinductor.prepare(
        in_precision(bundle, precision, "cuda"), variant, cache / precision
    )
    environment = worker_environment(launch.command[0], 1, launch.environment)
    return Subject(launch.command, environment, in_precision(bundle, precision, "cuda"))


@pytest.fixture(scope="module")
def conversation(subject: Subject) -> Iterator[Callable[[], Conversation]]:
    with kept_loaded(subject) as loaded:
        yield loaded


@pytest.mark.parametrize("check", ON_GPU, ids=lambda check: check.__name__)
def test_the_worker_conforms(
    conversation: Callable[[], Conversation], check: Callable[[Conversation], None]
) -> None:
    check(conversation())


def test_several_loads_give_the_same(subject: Subject) -> None:
    """A graph that was replayed ends with its session, and its memory with it."""
    with Conversation(subject) as worker:
        found = []
        for _ in range(3):
            worker.load()
            worker.time(5, 1)
            found.append(worker.outputs(1, 0, 1))
    for name, tensor in found[0].items():
        assert all((other[name] == tensor).all() for other in found)
    assert (found[0]["0/output/0"] == found[0]["2/output/0"]).all()
    assert (found[0]["0/output/0"] != found[0]["1/output/0"]).any()


def test_a_recording_is_told(
    conversation: Callable[[], Conversation], request: pytest.FixtureRequest
) -> None:
    """`capture` is the part of the load in which the pass was recorded."""
    variant, _ = request.node.callspec.params["subject"]
    assert ("capture" in conversation().loaded["phases"]) == (variant == "cudagraph")


@pytest.mark.parametrize("precision", ["tf32", "fp16"])
def test_lenet_matches(precision: Precision, cache: Path) -> None:
    result = golow.compare(
        "lenet5",
        levels=["eager", *LEVELS],
        batch=8,
        device="cuda",
        precision=precision,
        threads=1,
        time_limit=1,
        cache=cache,
    )
    for name in LEVELS:
        run = result.run(name)
        assert (run.check.verdict, run.check.reason) == ("match", "")
        assert run.time is not None
        assert (run.quantity("allocated_peak") or 0) > 0


def test_a_pass_that_does_not_fit_is_out_of_memory(cache: Path, tmp_path: Path) -> None:
    """Inductor's own words do not say so; the allocator's count does."""
    request = Request("resnet18", batch=64, resolution=224, device="cuda", threads=1)
    bundle = write_bundle(prepare(request), tmp_path / "bundle")[0]
    launch = aotinductor.prepare(bundle, "", cache)
    environment = worker_environment(launch.command[0], 1, launch.environment)
    with Conversation(Subject(launch.command, environment, bundle)) as worker:
        worker.load()
        free, _ = torch.cuda.mem_get_info()
        held = torch.empty(free - (100 << 20), dtype=torch.uint8, device="cuda")
        answer = worker.ask(do="time", iterations=1, warmup=0)
        del held
        torch.cuda.empty_cache()
        print(answer)
        assert (answer["ok"], answer["error"]) == (False, "out_of_memory")
        assert worker.ask(do="time", iterations=1, warmup=0)["ok"] is True
