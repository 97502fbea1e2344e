"""Whole epochs at the levels inside PyTorch: the suite of `epochs` over real workers, and what
there is beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from golow.levels.torch import compile as compile_level
from golow.levels.torch import eager
from golow.levels.torch.graph import CapturedProgram
from golow.levels.torch.program import TorchProgram
from golow.records.errors import Unsupported, WorkerFailure
from golow.records.workload import Precision
from golow.worker.client import Worker
from golow.worker.time_limits import Limits
from golow.workload.bundle import write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.workers import epochs
from support.workers.bundles import product_bundle
from support.workers.captured_on_cpu import CapturedOnCpu
from support.workers.courses import (
    BATCH,
    BATCHES,
    OPTIMIZER,
    RATES,
    SCALE,
    SHIFT,
    Course,
    make_course,
)
from support.workers.epochs import CHECKS, INFERENCE, TRAINING, InProcess, Students, epoch, students
from support.workers.precisions import in_precision

pytestmark = pytest.mark.usefixtures("forked")

Check = Callable[[Students], None]
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    return make_course(tmp_path_factory.mktemp("epochs") / "course")


# ---------------------------------------------------------------- real workers

WORKERS = {"eager": 0.0, "torchscript": 1e-5}


@pytest.fixture(scope="module")
def taught(request: pytest.FixtureRequest, course: Course) -> Iterator[Students]:
    name = request.param
    with students(name, course, course.folder / "cache", WORKERS[name]) as found:
        yield found


@pytest.mark.parametrize("taught", WORKERS, indirect=True)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_worker_conforms(taught: Students, check: Check) -> None:
    check(taught)


@pytest.mark.whole_network
def test_compile_trains(course: Course) -> None:
    with students("compile", course, course.folder / "cache", 1e-5) as taught:
        epochs.trains_as_a_plain_loop_does(taught)
        epochs.goes_on_from_piece_to_piece(taught)


@pytest.mark.whole_network
def test_frozen_weights_are_frozen_anew(course: Course) -> None:
    with students("compile:freezing", course, course.folder / "cache", 1e-5) as taught:
        for check in INFERENCE:
            check(taught)


# ---------------------------------------------------------------- programs of this process


PROGRAMS: dict[str, tuple[Callable[[], TorchProgram], float]] = {
    "eager:channels_last": (partial(eager.program, "channels_last"), 1e-5),
    "eager:float64": (partial(eager.program, "float64"), 1e-6),
    "cudagraph": (CapturedOnCpu, 1e-5),
}


def in_process(
    course: Course,
    make: Callable[[], TorchProgram],
    tolerance: float,
    drift: float | None = None,
) -> Students:
    return Students(course, lambda _: InProcess(make()), tolerance, drift)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_program_conforms(name: str, check: Check, course: Course) -> None:
    check(in_process(course, *PROGRAMS[name]))


@pytest.fixture(scope="module")
def course_in_bf16(tmp_path_factory: pytest.TempPathFactory) -> Course:
    course = make_course(tmp_path_factory.mktemp("bf16") / "course")
    return course._replace(training=in_precision(course.training, "bf16"))


@pytest.mark.parametrize("check", TRAINING, ids=lambda check: check.__name__)
def test_bf16_trains(check: Check, course_in_bf16: Course) -> None:
    """After two epochs it is up to 0.13 from float64 where the processor does not know bf16."""
    check(in_process(course_in_bf16, TorchProgram, 0.05, drift=0.2))


@pytest.mark.parametrize("make", [TorchProgram, CapturedOnCpu])
def test_nothing_is_replaced(make: Callable[[], TorchProgram], course: Course) -> None:
    """Graphs and compiled code hold the addresses of weights, momentum and running statistics;
    a graph those of the learning rate too."""
    program = make()
    taught = in_process(course, lambda: program, 0.0)
    student, (order, _) = taught.training(), course.orders
    epoch(taught, student, order)

    def addresses() -> list[int]:
        assert program.optimizer is not None
        momentum = [state["momentum_buffer"] for state in program.optimizer.state.values()]
        rate = program.optimizer.param_groups[0]["lr"]
        held = [*program.module.state_dict().values(), *momentum]
        assert len(momentum) == len(list(program.module.parameters()))
        return [t.data_ptr() for t in (*held, *([rate] if isinstance(rate, Tensor) else []))]

    before = addresses()
    student.save(taught.file("state"))
    if make is CapturedOnCpu:  # eager's optimizer makes its momentum anew
        student.restore(taught.file("state"))
        program.outputs([0, 1], 0.3, taught.file("outputs"))
    epoch(taught, student, order)
    assert addresses() == before


def test_the_rates_of_an_epoch_are_of_the_epoch(course: Course) -> None:
    """What is timed afterwards has the workload's again."""
    for make in (TorchProgram, CapturedOnCpu):
        program = make()
        taught = in_process(course, lambda given=program: given, 0.0)
        epoch(taught, taught.training(), course.orders[0])
        assert program.optimizer is not None
        assert float(program.optimizer.param_groups[0]["lr"]) == pytest.approx(RATES[0])
    assert OPTIMIZER.learning_rate == RATES[0] != RATES[-1]


@pytest.mark.slow
def test_a_loss_scale_goes_with_the_state(tmp_path: Path) -> None:
    course = make_course(tmp_path / "course")
    course = course._replace(training=in_precision(course.training, "fp16"))
    taught = in_process(course, TorchProgram, 0.05)
    student, (order, _) = taught.training(), course.orders
    state = taught.saved(student)
    assert state["scaler/scale"].dtype == torch.float32
    assert state["scaler/good_steps"].dtype == torch.int32
    state["scaler/scale"], state["scaler/good_steps"] = torch.tensor([256.0]), torch.tensor([1998])
    save_file(state, taught.file("near_growth"))
    successor = taught.training("two")
    successor.restore(taught.file("near_growth"))
    epoch(taught, successor, order, count=1)
    found = taught.saved(successor)
    assert (float(found["scaler/scale"]), int(found["scaler/good_steps"])) == (256.0, 1999)
    epoch(taught, successor, order, count=1)
    found = taught.saved(successor)
    assert (float(found["scaler/scale"]), int(found["scaler/good_steps"])) == (512.0, 0)


def test_random_layers_are_on(course: Course, tmp_path: Path) -> None:
    """Nothing is learnt at a rate of 0: what changes the losses is dropout alone."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(768, 32), nn.Dropout(0.5), nn.Linear(32, 10))
    prepared = prepare(
        Request(module, torch.rand(BATCH, 3, 16, 16), mode="train", targets=torch.arange(BATCH))
    )
    bundle, _ = write_bundle(prepared, tmp_path / "bundle")
    student = InProcess(TorchProgram())
    student.load(bundle.folder)
    rest = {"scale": SCALE, "shift": SHIFT}
    first, second = (
        student.epoch(course.data, course.orders[0], [0.0] * 4, **rest) for _ in range(2)
    )
    assert all(a != b for a, b in zip(first.losses, second.losses, strict=True))
    assert first.checksum == second.checksum


@pytest.mark.slow
def test_compile_builds_for_the_last_batch_when_it_is_loaded(
    course: Course, monkeypatch: Patch
) -> None:
    """For two sizes, none of them any size, and nothing in an epoch."""
    built: list[tuple[int, ...]] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        built.extend(tuple(t.shape) for t in inputs if isinstance(t, Tensor) and t.dim() == 4)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    taught = in_process(course, partial(compile_level.program, ""), 0.0)
    student = taught.training()
    batches = {shape[0] for shape in built if shape[1:] == (3, 16, 16)}
    assert batches == {BATCH, 3}
    assert all(isinstance(size, int) for shape in built for size in shape)
    at_load = len(built)
    epoch(taught, student, course.orders[0])
    assert len(built) == at_load


def test_a_loss_that_is_no_number_is_null(course: Course) -> None:
    student = in_process(course, TorchProgram, 0.0).training()
    rest = {"scale": [1e30] * 3, "shift": [1e38] * 3}
    report = student.epoch(course.data, course.orders[0], [1e30] * BATCHES, **rest)
    assert None in report.losses


def test_each_request_needs_its_mode(course: Course) -> None:
    student = in_process(course, TorchProgram, 0.0)
    for worker, ask in (
        (student.inference(), lambda w: epoch(student, w, course.orders[0])),
        (student.inference(), lambda w: w.save(student.file("never"))),
        (student.training(), lambda w: epochs.predicted(student, w, 0, 1)),
    ):
        with pytest.raises(WorkerFailure, match="the bundle's mode is"):
            ask(worker)


def test_a_state_of_another_network_is_refused(course: Course) -> None:
    taught = in_process(course, TorchProgram, 0.0)
    save_file({"parameter/other": torch.zeros(1)}, taught.file("other"))
    with pytest.raises(WorkerFailure, match="Unexpected key"):
        taught.training().restore(taught.file("other"))


# ---------------------------------------------------------------- the bundle of the last batch


def test_a_bundle_carries_its_last_batch(course: Course) -> None:
    last = course.training.last
    assert last is not None
    assert (course.training.workload.batch, last.workload.batch) == (8, 3)
    assert last.workload.digest != course.training.workload.digest
    assert last.graph is not None
    assert load_file(last.file("batches.safetensors"))["0/input/0"].shape == (3, 3, 16, 16)
    weights = [bundle.file("weights.safetensors") for bundle in (course.training, last)]
    assert weights[0].samefile(weights[1])
    assert course.inference.last is None
    assert last.last is None
    program = TorchProgram()  # a bundle like any other
    program.load(last.folder)
    program.iterate()


# ---------------------------------------------------------------- golow's side


def test_a_worker_that_trains_no_epochs_lives_on(course: Course, tmp_path: Path) -> None:
    bundle = product_bundle(tmp_path / "product")
    command = (sys.executable, "-m", "golow.worker.plant", "--products", "1")
    with Worker("plant", command, threads=1) as worker:
        worker.load(bundle.folder)
        for ask in (
            lambda: worker.epoch(course.data, course.orders[0], [0.1], scale=SCALE, shift=SHIFT),
            lambda: worker.save(tmp_path / "state"),
            lambda: worker.restore(tmp_path / "state"),
            lambda: worker.predict(
                course.data, tmp_path / "out", first=0, batches=1, scale=SCALE, shift=SHIFT
            ),
        ):
            with pytest.raises(Unsupported):
                ask()
        assert len(worker.time(2, 0).host_ns) == 2


ANSWERS = {
    "too few losses": '{"ok": true, "losses": [1.0], "checksum": 1, "nanoseconds": 5}',
    "no time": '{"ok": true, "losses": [1.0, null], "checksum": 1, "nanoseconds": 0}',
    "no checksum": '{"ok": true, "losses": [1.0, null], "nanoseconds": 5}',
    "no file": '{"ok": true, "nanoseconds": 5}',
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_that_break_the_protocol(answer: str, course: Course, tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", f"read a; echo '{ANSWERS[answer]}'; read b"]

    def ask(worker: Worker) -> object:
        if answer == "no file":
            return worker.save(tmp_path / "state")
        return worker.epoch(course.data, course.orders[0], [0.1, 0.1], scale=SCALE, shift=SHIFT)

    with (
        Worker("shell", command, threads=1, limits=Limits(quit=0.5)) as worker,
        pytest.raises(WorkerFailure) as raised,
    ):
        ask(worker)
    assert raised.value.kind == "protocol"


# ---------------------------------------------------------------- on a GPU

ON_GPU: list[tuple[str, Precision, float]] = [
    ("eager", "ieee", 1e-3),
    ("eager", "fp16", 0.1),
    ("eager:channels_last", "bf16", 0.2),
    ("torchscript", "ieee", 1e-3),
    ("cudagraph", "ieee", 1e-3),
    ("cudagraph", "fp16", 0.1),
    ("cudagraph:channels_last", "bf16", 0.2),
    ("compile:cudagraphs", "ieee", 1e-3),
]


@pytest.fixture(scope="module")
def taught_on_gpu(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Students]:
    name, precision, tolerance = request.param
    folder = tmp_path_factory.mktemp("epochs-gpu")
    course = make_course(folder / "course", device="cuda", precision=precision)
    with students(name, course, folder / "cache", tolerance) as found:
        yield found


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize(
    "taught_on_gpu",
    [
        pytest.param(
            (name, precision, tolerance),
            id=f"{name}-{precision}",
            marks=pytest.mark.whole_network if name.startswith("compile") else (),
        )
        for name, precision, tolerance in ON_GPU
    ],
    indirect=True,
)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_worker_conforms_on_a_gpu(taught_on_gpu: Students, check: Check) -> None:
    check(taught_on_gpu)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_gradients_are_those_of_a_whole_batch(tmp_path: Path) -> None:
    """Also where a second graph has been captured for the last batch of an epoch."""
    course = make_course(tmp_path / "course", device="cuda", precision="ieee")
    found = []
    for make in (TorchProgram, CapturedProgram):
        program = make()
        program.load(course.training.folder)
        program.outputs([0, 1], 0.1, tmp_path / "outputs")
        found.append(load_file(tmp_path / "outputs"))
    for name, tensor in found[0].items():
        assert torch.allclose(tensor, found[1][name], rtol=1e-3, atol=1e-5), name
