"""The level libtorch on a GPU: the same program text, the same protocol, the device's own clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from golow.levels.libtorch.build import build
from golow.levels.libtorch.level import prepare, probe
from golow.lower.capture.capture import capture_inference, capture_training
from golow.records.record import encode
from golow.records.workload import Mode, Optimizer, Precision
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle
from support.models import optimizers
from support.models.everything import Everything, loss
from support.one_run import program_cache
from support.workers.bundles import network_bundle
from support.workers.conformance import CHECKS, ENDINGS
from support.workers.conversation import Conversation, Subject
from support.workers.libtorch_bundle import (
    Batch,
    eager_inference,
    eager_training,
    workload,
    write_bundle,
)
from support.workers.protocol_driver import RawWorker
from support.workers.workers_kept import kept_loaded

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

pytestmark = pytest.mark.gpu
OPTIMIZER = Optimizer(learning_rate=0.05, momentum=0.9, weight_decay=0.01)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program_cache(tmp_path_factory.getbasetemp())


WORKLOADS: list[tuple[Mode, Precision]] = [
    ("infer", "ieee"),
    ("train", "ieee"),
    ("train", "bf16"),
    ("train", "fp16"),
]


@pytest.fixture(scope="module", params=WORKLOADS, ids="-".join)
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache: Path
) -> Subject:
    mode, precision = request.param
    bundle = network_bundle(tmp_path_factory.mktemp("gpu") / mode, mode)
    described = msgspec.structs.replace(bundle.workload, device="cuda", precision=precision)
    bundle.file("workload.json").write_bytes(encode(described))
    bundle = Bundle(bundle.folder)
    launch = prepare(bundle, "", cache)
    environment = worker_environment(launch.command[0], 1, launch.environment)
    return Subject(launch.command, environment, bundle)


@pytest.fixture(scope="module")
def conversation(subject: Subject) -> Iterator[Callable[[], Conversation]]:
    with kept_loaded(subject) as loaded:
        yield loaded


def test_the_probe_finds_what_it_needs() -> None:
    assert probe("cuda").available


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_worker_conforms(
    conversation: Callable[[], Conversation], check: Callable[[Conversation], None]
) -> None:
    check(conversation())


@pytest.mark.parametrize("check", ENDINGS, ids=lambda check: check.__name__)
def test_the_worker_ends(subject: Subject, check: Callable[[Subject], None]) -> None:
    check(subject)


@pytest.mark.parametrize("cold", [False, True])
def test_every_iteration_has_the_time_of_the_device(
    conversation: Callable[[], Conversation], cold: bool
) -> None:
    answer = conversation().ask(do="time", iterations=20, warmup=3, cold=cold)
    for clock in ("host_ns", "device_ns"):
        assert len(answer[clock]) == 20
        assert all(isinstance(ns, int) and ns > 0 for ns in answer[clock])


def test_the_layers_are_timed_by_the_device(conversation: Callable[[], Conversation]) -> None:
    layers = conversation().ask(do="layers", iterations=3)["layers"]
    assert all(ns >= 0 for layer in layers for ns in layer["ns"])
    assert all(sum(layer["ns"][i] for layer in layers) > 0 for i in range(3))


def test_memory_is_the_allocators_of_the_gpu(conversation: Callable[[], Conversation]) -> None:
    peaks = [conversation().ask(do="memory")["allocated_peak"] for _ in range(2)]
    # Blocks of the allocator, which need not be the same in every iteration.
    assert all(peak > 0 and peak % 512 == 0 for peak in peaks)


# ---------------------------------------------------------------- numbers


def run(program: Path, bundle: Path, batches: list[int], rate: float = 0.05) -> dict[str, Tensor]:
    """What the worker writes; the iterations before must leave no trace in it."""
    file = bundle / "outputs.safetensors"
    with RawWorker([program]) as worker:
        answer = worker.request(do="load", bundle=str(bundle))
        assert answer["ok"], answer
        assert worker.request(do="time", iterations=2, warmup=1)["ok"]
        asked = {"batches": batches, "learning_rate": rate, "file": str(file)}
        assert worker.request(do="outputs", **asked) == {"ok": True}
    return load_file(file)


def everything() -> tuple[Everything, list[Batch]]:
    torch.manual_seed(0)
    return Everything(), [(torch.randn(4, 3, 16, 16), torch.randint(5, (4,))) for _ in range(3)]


def assert_near(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert sorted(found) == sorted(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(
            found[name], tensor, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("ieee", 1e-4), ("default", 2e-2), ("bf16", 0.1), ("fp16", 2e-2)]
)
def test_inference_is_eager(
    tmp_path: Path, cache: Path, precision: Precision, tolerance: float
) -> None:
    module, batches = everything()
    captured = capture_inference("everything", module, (batches[0][0],))
    described = msgspec.structs.replace(
        workload("infer", batches), device="cuda", precision=precision
    )
    bundle = write_bundle(tmp_path, module, captured, described, batches)
    found = run(build(captured.graph, cache, "cuda").program, bundle, [2, 0])
    # The second output is a sum of thousands, in which half precision has no digits left.
    near = {name: tensor for name, tensor in found.items() if name.endswith("output/0")}
    expected = eager_inference(module, [batches[2], batches[0]])
    assert sorted(found) == sorted(expected)
    assert_near(near, {name: expected[name] for name in near}, tolerance)


@pytest.mark.parametrize("optimizer", [OPTIMIZER, *optimizers.ALL], ids=str)
def test_a_training_step_is_eager(tmp_path: Path, cache: Path, optimizer: Optimizer) -> None:
    module, batches = everything()
    image, target = batches[0]
    if optimizer.name != "sgd":
        # A bias before a norm has a gradient of rounding alone, by whose size they would divide.
        optimizer = msgspec.structs.replace(optimizer, epsilon=1e-3)
    captured = capture_training("everything", module, (image,), (target,), loss)
    described = msgspec.structs.replace(
        workload("train", batches, optimizer), device="cuda", precision="ieee"
    )
    bundle = write_bundle(tmp_path, module, captured, described, batches)
    found = run(
        build(captured.graph, cache, "cuda").program, bundle, [1, 0], optimizer.learning_rate
    )
    expected = eager_training(module, [batches[1], batches[0]], loss, optimizer)
    assert_near(found, expected, 2e-3)


class Both(nn.Module):
    """One convolution and one matrix product, large enough that a GPU has TF32 kernels for both."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(64, 64, 3, padding=1)
        self.product = nn.Linear(1024, 1024)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.convolution(x), self.product(x.flatten(2))


def test_the_precision_is_in_force(tmp_path: Path, cache: Path) -> None:
    torch.manual_seed(0)
    module = Both()
    batches: list[Batch] = [(torch.randn(16, 64, 32, 32), torch.zeros(16))]
    captured = capture_inference("both", module, (batches[0][0],))
    program = build(captured.graph, cache, "cuda").program
    with torch.inference_mode():
        exact = module.double()(batches[0][0].double())
    module.float()
    errors = {}
    for precision in ("ieee", "default", "tf32", "bf16"):
        described = msgspec.structs.replace(
            workload("infer", batches), device="cuda", precision=precision
        )
        bundle = write_bundle(tmp_path / precision, module, captured, described, batches)
        found = run(program, bundle, [0])
        errors[precision] = [
            float((found[f"0/output/{i}"].double() - exact[i]).abs().max()) for i in range(2)
        ]
    plain, coarse = errors["ieee"], errors["tf32"]
    assert max(plain) < 1e-4
    assert all(10 * p < c for p, c in zip(plain, coarse, strict=True))
    # PyTorch unless told: TF32 in convolutions, IEEE in matrix products.
    assert errors["default"][0] == pytest.approx(coarse[0], rel=0.5)
    assert errors["default"][1] == pytest.approx(plain[1], rel=0.5)
    assert all(2 * c < b for c, b in zip(coarse, errors["bf16"], strict=True))


class Boundless(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.repeat(1 << 28, 1).sum()


def test_a_gpu_that_is_full_is_an_answer(tmp_path: Path, cache: Path) -> None:
    batches: list[Batch] = [(torch.randn(4, 1024), torch.zeros(4))]
    captured = capture_inference("boundless", Boundless(), (batches[0][0],))
    described = msgspec.structs.replace(workload("infer", batches), device="cuda")
    bundle = write_bundle(tmp_path, Boundless(), captured, described, batches)
    with RawWorker([build(captured.graph, cache, "cuda").program]) as worker:
        assert worker.request(do="load", bundle=str(bundle))["ok"]
        answer = worker.request(do="time", iterations=1, warmup=0)
        assert answer["error"] == "out_of_memory"
        assert "out of memory" in answer["message"]
        assert worker.request(do="quit") == {"ok": True}
