"""Times by layer: they are where the work is, they add up to less than the iteration, and they
leave no trace."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import golow
from golow.levels import ladder
from golow.levels.libtorch.emit import emit_program
from golow.levels.torch.program import TorchProgram
from golow.levels.torch.step import Parts
from golow.lower.capture.capture import capture_inference, capture_training
from golow.programs.comparison import store
from golow.records.comparison import LayerTime
from golow.records.errors import Unsupported, WorkerFailure
from golow.records.workload import Mode
from golow.worker.client import Worker
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.models.networks import Pause
from support.one_run import program_cache
from support.workers.bundles import NETWORKS, network_bundle, product_bundle

pytestmark = pytest.mark.usefixtures("forked")

MODES: list[Mode] = ["infer", "train"]
SLOW = pytest.mark.whole_network


def loaded(bundle: Bundle) -> TorchProgram:
    program = TorchProgram()
    program.load(bundle.folder)
    return program


def bundle_of(model: Any, folder: Path, mode: Mode, **settings: Any) -> Bundle:
    return write_bundle(
        prepare(Request(model, mode=mode, threads=1, **settings)), folder / "bundle"
    )[0]


def by_place(layers: tuple[LayerTime, ...]) -> dict[tuple[str, str], float]:
    """Median seconds of each step of a level that runs a layer a step."""
    assert all(len(step.modules) == 1 for step in layers)
    found = {(step.modules[0], step.phase): median(step.ns) / 1e9 for step in layers}
    assert len(found) == len(layers)
    return found


# ---------------------------------------------------------------- eager


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_layer_of_known_cost_is_found_at_its_place(mode: Mode, tmp_path: Path) -> None:
    bundle = bundle_of(f"{NETWORKS}:Slow", tmp_path, mode, batch=4, input_shape=(16,))
    found = by_place(loaded(bundle).layers(5))
    for phase in ("forward", "backward") if mode == "train" else ("forward",):
        within = {module: seconds for (module, p), seconds in found.items() if p == phase}
        slow = within.pop("middle.1")
        assert slow >= Pause.SECONDS
        assert slow > sum(within.values())
    assert ("", "update") in found or mode == "infer"


class Watched(TorchProgram):
    """Notes when each iteration by layer begins."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[int] = []

    def _iterate_in_parts(self, parts: Parts) -> None:
        self.begun.append(time.perf_counter_ns())
        super()._iterate_in_parts(parts)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_layers_add_up_to_most_of_an_iteration_and_never_more(
    mode: Mode, tmp_path: Path
) -> None:
    program = Watched()
    program.load(bundle_of("resnet18", tmp_path, mode, batch=2, resolution=64).folder)
    layers = program.layers(9)
    walls = [
        after - before for before, after in zip(program.begun, program.begun[1:], strict=False)
    ]
    sums = [sum(step.ns[i] for step in layers) for i in range(len(walls))]
    assert all(total < wall for total, wall in zip(sums, walls, strict=True))
    assert median(total / wall for total, wall in zip(sums, walls, strict=True)) > 0.5
    paths = {path for path, child in program.module.named_modules() if not list(child.children())}
    places = by_place(layers)
    assert {path for path, phase in places if phase == "forward"} >= paths
    if mode == "train":
        # Some two thirds of the work of a training step are the backward pass.
        whole = sum(places.values())
        backward = sum(s for (_, phase), s in places.items() if phase == "backward")
        assert 0.2 < backward / whole < 0.9
        trained = {path.rpartition(".")[0] for path, _ in program.module.named_parameters()}
        assert {path for path, phase in places if phase == "backward"} >= trained


@pytest.mark.slow
def test_layers_come_in_order_of_execution_and_a_module_behind_its_children(
    tmp_path: Path,
) -> None:
    bundle = bundle_of("resnet18", tmp_path, "train", batch=2, resolution=64)
    places = list(by_place(loaded(bundle).layers(1)))
    forward = [path for path, phase in places if phase == "forward"]
    backward = [path for path, phase in places if phase == "backward"]
    block = ["layer1.0.conv1", "layer1.0.bn1", "layer1.0.conv2", "layer1.0.bn2", "layer1.0"]
    assert [path for path in forward if path in block] == block
    assert [path for path in backward if path in block[:4]] == block[3::-1]
    assert forward[-1] == ""
    assert places[-1] == ("", "update")


class Awkward(nn.Module):
    """What breaks hooks on the backward pass: in place, shared, checkpointed, without a module."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.relu = nn.ReLU(inplace=True)
        self.shared = nn.Linear(8, 8)
        self.again = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.scale = nn.Parameter(torch.full((8,), 0.5))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.stem(x))
        x = x + self.relu(self.shared(self.shared(x))) * self.scale
        x += 1
        again = checkpoint(self.again, x, use_reentrant=False)
        assert isinstance(again, Tensor)
        return self.head(again)


@pytest.mark.slow
def test_timing_layers_changes_no_result_and_leaves_no_hook(tmp_path: Path) -> None:
    torch.manual_seed(0)
    bundle = bundle_of(
        Awkward(),
        tmp_path,
        "train",
        example_inputs=torch.randn(4, 8),
        loss="mse_loss",
        targets=torch.randn(4, 4),
    )
    plain, divided = loaded(bundle), loaded(bundle)
    for _ in range(3):
        plain.iterate()
    layers = divided.layers(3)
    assert divided.last() == plain.last()
    for name, parameter in plain.module.named_parameters():
        assert torch.equal(parameter, divided.module.get_parameter(name))
    backward = {step.modules[0] for step in layers if step.phase == "backward"}
    assert {"stem", "shared", "head", "again.0"} <= backward
    assert hooks(divided.module) == 0
    before, after = tmp_path / "before", tmp_path / "after"
    plain.outputs([0, 1], 0.1, before)
    divided.outputs([0, 1], 0.1, after)
    expected, found = load_file(before), load_file(after)
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())


@pytest.mark.slow
def test_an_iteration_that_fails_leaves_no_hook(tmp_path: Path) -> None:
    program = loaded(network_bundle(tmp_path / "bundle", "infer"))
    program.inputs[0][0].resize_(1, 7, 16, 16)  # the batch that an iteration takes
    with pytest.raises(RuntimeError):
        program.layers(2)
    assert hooks(program.module) == 0


def hooks(module: nn.Module) -> int:
    """Hooks on the module and on all below it."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(child, kind)) for child in module.modules() for kind in kinds)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torchscript", "compile"])
def test_a_level_that_cannot_be_divided_says_why(name: str, tmp_path: Path) -> None:
    bundle = network_bundle(tmp_path / "bundle", "infer")
    program = importlib.import_module(f"golow.levels.torch.{name}").program("")
    program.builds_on_first_iteration = False  # nothing is compiled for the answer
    program.load(bundle.folder)
    with pytest.raises(Unsupported, match=r"TorchScript|compile"):
        program.layers(1)


# ---------------------------------------------------------------- libtorch


class Small(nn.Module):
    """A residual sum outside of the layers, and a layer that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = x + functional.relu(self.norm(self.norm(self.conv(x))))
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize("mode", MODES)
def test_the_emitted_program_has_a_mark_behind_every_node(mode: Mode) -> None:
    image, target = torch.randn(2, 3, 8, 8), torch.randint(5, (2,))
    graph = (
        capture_inference("small", Small(), (image,))
        if mode == "infer"
        else capture_training("small", Small(), (image,), (target,), functional.cross_entropy)
    ).graph
    step, _, table = emit_program(graph).partition("::operations() const {\n")
    marks = [line.strip() for line in step.splitlines() if line.strip().startswith("mark(")]
    assert marks == [f"mark({i});" for i in range(len(graph.nodes))]
    rows = [line.strip() for line in table.splitlines() if line.strip().startswith('{"')]
    assert [row.split('"')[1] for row in rows] == [node.module for node in graph.nodes]
    assert [row.split('"')[3] for row in rows] == [node.phase for node in graph.nodes]


@SLOW
@pytest.mark.parametrize("mode", MODES)
def test_libtorch_times_every_node(mode: Mode, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp(f"layers-{mode}")
    bundle = network_bundle(folder / "bundle", mode)
    graph = bundle.graph
    assert graph is not None
    launch = ladder.choose("libtorch", mode).level.prepare(bundle, "", program_cache(folder.parent))
    with Worker("libtorch", launch.command, threads=1) as worker:
        worker.load(bundle.folder)
        worker.outputs([0, 1], 0.1, folder / "before")
        layers = worker.layers(7).steps
        sample = worker.time(7, 1)
        worker.outputs([0, 1], 0.1, folder / "after")
    update = [("", "update")] if mode == "train" else []
    places = [(step.modules[0], step.phase) for step in layers]
    assert places == [(node.module, node.phase) for node in graph.nodes] + update
    assert "convolution" in {step.operation for step in layers} or mode == "infer"
    sums = [sum(step.ns[i] for step in layers) for i in range(7)]
    assert 0.2 < median(sums) / median(sample.host_ns) < 5
    before, after = load_file(folder / "before"), load_file(folder / "after")
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


# ---------------------------------------------------------------- the parent


def answering(answer: str) -> Worker:
    """A worker that answers every request but the last with this line."""
    script = f"while read line; do case $line in *quit*) exit;; esac; echo '{answer}'; done"
    return Worker("shell", ["/bin/sh", "-c", script], threads=1)


GOOD = '{"modules": ["a"], "phase": "forward", "operation": "relu", "ns": [1, 2]}'


def test_an_answer_by_layer_is_read() -> None:
    with answering(f'{{"ok": true, "layers": [{GOOD}]}}') as worker:
        [step] = worker.layers(2).steps
    assert step == LayerTime(modules=("a",), phase="forward", operation="relu", ns=(1, 2))


@pytest.mark.parametrize(
    "layers",
    [
        "",
        GOOD.replace("[1, 2]", "[1]"),
        GOOD.replace("[1, 2]", "[1, -2]"),
        GOOD.replace('["a"]', "[]"),
        GOOD.replace("forward", "sideways"),
        GOOD.replace("[1, 2]", '"soon"'),
    ],
)
def test_an_answer_that_breaks_the_protocol_is_a_failure(layers: str) -> None:
    with (
        answering(f'{{"ok": true, "layers": [{layers}]}}') as worker,
        pytest.raises(WorkerFailure) as raised,
    ):
        worker.layers(2)
    assert raised.value.kind == "protocol"


@pytest.mark.parametrize("kind", ["unsupported", "unknown_request"])
def test_a_refusal_has_its_reason_and_ends_nothing(kind: str) -> None:
    with answering(f'{{"ok": false, "error": "{kind}", "message": "no seams"}}') as worker:
        for _ in range(2):
            with pytest.raises(Unsupported, match="no seams"):
                worker.layers(2)


def test_a_program_without_layers_does_not_know_the_request(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "golow.worker.plant", "--products", "1"]
    with Worker("plant", command, threads=1) as worker:
        worker.load(product_bundle(tmp_path / "bundle").folder)
        with pytest.raises(Unsupported, match="does not time its layers"):
            worker.layers(2)
        assert worker.time(2, 0).host_ns


@pytest.mark.slow
def test_a_comparison_by_layer_is_shown_and_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = golow.compare(
        f"{NETWORKS}:Slow",
        levels=["eager", "torchscript"],
        batch=4,
        input_shape=(16,),
        threads=1,
        time_limit=0.1,
        by_layer=True,
        cache=tmp_path,
    )
    eager, script = result.run("eager"), result.run("torchscript")
    assert {run.check.verdict for run in (eager, script)} == {"match"}
    assert max(by_place(eager.layers).items(), key=lambda item: item[1])[0][0] == "middle.1"
    assert (eager.layers_missing, script.layers) == ("", ())
    assert "TorchScript" in script.layers_missing
    result.table()
    shown = capsys.readouterr().out
    assert "middle.1" in shown
    assert f"torchscript has no times by layer: {script.layers_missing}" in " ".join(shown.split())
    assert store.load(result.save(tmp_path / "runs")) == result.comparison
