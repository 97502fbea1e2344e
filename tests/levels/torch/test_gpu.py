"""The levels inside PyTorch on a GPU: the protocol, precisions, graphs, whole comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import golow
from golow.levels.torch import cudagraph, eager
from golow.levels.torch.program import TorchProgram
from golow.records.workload import Mode, Optimizer, Precision
from golow.worker.protocol import CopiesReport
from golow.workload.bundle import write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.workers.bundles import NETWORKS
from support.workers.conversation import Conversation
from support.workers.gpu_precisions import MEANT, Convolution, Product, outputs
from support.workers.gpu_subjects import ON_GPU, gpu_bundle, gpu_subject
from support.workers.out_of_memory import require_out_of_memory_recorded
from support.workers.workers_kept import kept_loaded

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

pytestmark = pytest.mark.gpu
MODES: list[Mode] = ["infer", "train"]


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where bundles and builds of this session are stored."""
    return tmp_path_factory.mktemp("gpu")


# ---------------------------------------------------------------- the protocol

LEVELS: list[tuple[str, tuple[Mode, ...], Precision]] = [
    ("eager", ("infer", "train"), "ieee"),
    ("eager", ("train",), "fp16"),
    ("eager:channels_last", ("infer",), "bf16"),
    ("torchscript", ("infer", "train"), "bf16"),
    ("cudagraph", ("infer", "train"), "ieee"),
    ("cudagraph", ("train",), "fp16"),
    ("cudagraph:channels_last", ("train",), "bf16"),
    ("compile", ("train",), "bf16"),
    ("compile:freezing-cudagraphs", ("infer",), "ieee"),
    ("compile:cudagraphs", ("train",), "ieee"),
]
WORKERS = [
    pytest.param(
        (name, mode, precision),
        id=f"{name}-{mode}-{precision}",
        marks=pytest.mark.whole_network if name.startswith("compile") else (),
    )
    for name, modes, precision in LEVELS
    for mode in modes
]


@pytest.fixture(scope="module")
def conversation(
    request: pytest.FixtureRequest, workshop: Path
) -> Iterator[Callable[[], Conversation]]:
    with kept_loaded(gpu_subject(workshop, *request.param)) as loaded:
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


@pytest.mark.parametrize("conversation", WORKERS, indirect=True)
def test_a_plain_loop_copies_its_batch(conversation: Callable[[], Conversation]) -> None:
    """All of it, from memory that nobody has pinned, and nothing else of its size."""
    worker = conversation()
    answer = worker.ask(do="copies", iterations=4)
    report = CopiesReport(**{name: answer[name] for name in ("bytes", "nanoseconds", "kind")})
    batches = load_file(worker.subject.bundle.file("batches.safetensors"))
    given = sum(tensor.nbytes for name, tensor in batches.items() if name.startswith("0/"))
    assert given <= report.bytes < 1.2 * given + 1000
    assert report.nanoseconds > 0
    assert report.kind == "pageable"


# ---------------------------------------------------------------- precisions


@pytest.mark.parametrize("name", ["eager", "cudagraph"])
@pytest.mark.parametrize(("precision", "product", "convolution"), MEANT)
def test_a_precision_is_in_force(
    name: str,
    precision: Precision,
    product: tuple[float, float],
    convolution: tuple[float, float],
    tmp_path: Path,
) -> None:
    """Each in a process of its own, because torch's flags are the process's."""
    torch.manual_seed(0)
    for module, shape, (least, most) in (
        (Product(), (256, 512), product),
        (Convolution(), (8, 64, 32, 32), convolution),
    ):
        prepared = prepare(Request(module, torch.randn(shape), device="cuda", precision=precision))
        folder = tmp_path / type(module).__name__
        bundle, _ = write_bundle(prepared, folder)
        exact = outputs("eager:float64", bundle, folder.with_suffix(".double"))
        found = outputs(name, bundle, folder.with_suffix(".found"))
        assert found.dtype == torch.float32
        error = float((found.double() - exact).norm() / exact.norm())
        print(f"{type(module).__name__} in {precision}: {error:.1e}")
        assert least <= error <= most


@pytest.mark.parametrize(("variant", "size"), [("float64", 2**29), ("", 2**28)])
def test_eager_and_its_reference_leave_the_card_to_each_other(
    variant: str, size: int, tmp_path: Path
) -> None:
    """Neither keeps what its convolution's output took."""
    prepared = prepare(Request(Convolution(), torch.randn(64, 64, 128, 128), device="cuda"))
    bundle, _ = write_bundle(prepared, tmp_path / "bundle")
    program = eager.program(variant)
    program.load(bundle.folder)
    torch.cuda.reset_peak_memory_stats()
    program.outputs([0], 0.1, tmp_path / "outputs")
    peak, kept = torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved()
    assert peak - torch.cuda.memory_allocated() >= size
    assert kept - torch.cuda.memory_allocated() < size / 2


def test_what_the_first_try_took_is_given_back() -> None:
    """The layer's matrix product, first of the process, has its workspace where the output of the
    convolution was."""
    network = nn.Sequential(nn.Conv2d(3, 256, 3, 2, 1), nn.AvgPool2d(64), nn.Flatten())
    network.append(nn.Linear(256, 10))
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    prepare(Request(network, torch.randn(128, 3, 128, 128), device="cuda"))  # of 512 MiB
    assert torch.cuda.memory_reserved() - before < 2**28


# ---------------------------------------------------------------- graphs


class Dropped(nn.Module):
    """A network that draws at random."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("precision", ["ieee", "fp16"])
def test_a_graph_trains_as_eager_does_without_dropout_and_draws_anew_with_it(
    momentum: float, precision: Precision, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    settings = Optimizer(learning_rate=0.0, momentum=momentum)
    prepared = prepare(
        Request(
            Dropped(),
            torch.randn(32, 16),
            mode="train",
            targets=torch.randint(10, (32,)),
            optimizer=settings,
            device="cuda",
            precision=precision,
        )
    )
    bundle, _ = write_bundle(prepared, tmp_path / "bundle")
    program = cudagraph.program("")
    eager = TorchProgram()
    found = []
    for one in (eager, program):
        one.load(bundle.folder)
        one.outputs([0, 1], 0.1, tmp_path / "outputs")
        found.append(load_file(tmp_path / "outputs"))
    assert found[0].keys() == found[1].keys()
    for name, tensor in found[0].items():
        assert torch.allclose(tensor, found[1][name], rtol=1e-2, atol=1e-3), name
    # Nothing is learnt at this rate: what changes the loss of one batch is dropout alone.
    losses = []
    for _ in range(2 * len(program.inputs)):
        program.iterate()
        losses.append(program.last())
    half = len(program.inputs)
    assert not np.allclose(losses[:half], losses[half:], rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_program_says_what_it_holds(mode: Mode, workshop: Path) -> None:
    bundle = gpu_bundle(workshop, mode, "ieee")
    for program in (TorchProgram(), cudagraph.program("")):
        program.load(bundle.folder)
        peak = program.allocated_peak()
        assert peak is not None
        # At least the activations of the first convolution.
        assert 8 * 16 * 16 * 16 * 4 <= peak < 2**30


@pytest.mark.parametrize("mode", MODES)
def test_layers_are_timed_by_the_device(mode: Mode, workshop: Path) -> None:
    program = TorchProgram()
    program.load(gpu_bundle(workshop, mode, "bf16").folder)
    layers = program.layers(3)
    assert all(ns >= 0 for step in layers for ns in step.ns)
    places = {(step.modules[0], step.phase) for step in layers}
    assert {("conv1", "forward"), ("fc", "forward")} <= places
    assert ("conv1", "backward") in places or mode == "infer"


# ---------------------------------------------------------------- whole comparisons


@pytest.mark.whole_network
@pytest.mark.parametrize("precision", ["default", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("mode", MODES)
def test_lenet5_down_the_levels(mode: Mode, precision: Precision, tmp_path: Path) -> None:
    names = "eager eager:channels_last torchscript compile:cudagraphs cudagraph libtorch".split()
    result = golow.compare(
        "lenet5",
        mode=mode,
        levels=names,
        batch=64,
        device="cuda",
        precision=precision,
        cold=precision == "bf16",
        time_limit=5,
        cache=tmp_path,
    )
    verdicts = {run.level: (run.check.verdict, run.check.reason) for run in result.comparison.runs}
    assert verdicts == dict.fromkeys(names, ("match", ""))
    workload = result.comparison.workload
    assert (workload.device, workload.precision) == ("cuda", precision)
    image = 4 * math.prod(workload.inputs[0].shape)
    for run in result.comparison.runs:
        assert run.time is not None
        assert all(block.device_ns for block in run.blocks)
        assert run.conditions.device == "cuda"
        assert run.conditions.cache == ("cold" if precision == "bf16" else "warm")
        assert run.level == "libtorch" or (run.quantity("copied") or 0) >= image


def test_out_of_memory_is_a_recorded_result(tmp_path: Path) -> None:
    require_out_of_memory_recorded(tmp_path, "cuda")


def test_a_batch_too_large_for_the_gpu_is_explained() -> None:
    class Large(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.expand(2**40, -1).contiguous()

    with pytest.raises(golow.GolowError, match="the GPU has too little memory") as raised:
        prepare(Request(Large(), torch.randn(1, 64), device="cuda"))
    assert "--batch" in raised.value.hint


def test_a_module_on_the_gpu_stays_there() -> None:
    module = nn.Linear(4, 4).cuda()
    prepared = prepare(Request(module, torch.randn(2, 4, device="cuda"), device="cuda"))
    assert module.weight.is_cuda
    assert not prepared.module.get_parameter("weight").is_cuda
    assert not prepared.batches[0].inputs[0].is_cuda


def test_the_networks_file_runs_on_the_gpu(tmp_path: Path) -> None:
    result = golow.compare(
        f"{NETWORKS}:Network",
        input_shape=(3, 16, 16),
        levels=["cudagraph", "cudagraph:channels_last"],
        device="cuda",
        by_layer=True,
        time_limit=2,
        cache=tmp_path,
    )
    assert {run.check.verdict for run in result.comparison.runs} == {"match"}
    assert result.run("eager").layers
    assert "replayed as a whole" in result.run("cudagraph").layers_missing
