"""Whole epochs at the level `cudnn`, on a GPU: the conformance suite on its real workers; in the
test's own process networks against PyTorch, and faults that the suite must see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import Tensor, nn

from golow.levels.direct.cudnn import level as cudnn
from golow.records.workload import Mode, Precision
from golow.worker.loss_scale import FIRST_SCALE
from golow.workload.bundle import Bundle
from support.workers.courses import Course, make_course
from support.workers.epochs import (
    CHECKS,
    InProcess,
    Students,
    students,
    trains_as_a_plain_loop_does,
)
from support.workers.small_epochs import (
    RATES,
    Grouped,
    assert_learned,
    learned,
    short_bundle,
    short_feed,
)

if not cudnn.probe().available:
    pytest.skip(cudnn.probe().missing, allow_module_level=True)

from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.run.execution import Execution
from golow.levels.direct.cudnn.run.program import CuDnn

pytestmark = pytest.mark.gpu

# From float64, relative to a tensor's size, over two epochs in which halves drift apart.
TOLERANCE: dict[Precision, float] = {"ieee": 1e-3, "bf16": 0.2, "fp16": 0.05}


def started(bundle: Bundle, cache: Path, program: type[CuDnn] = CuDnn) -> CuDnn:
    return program(*map(Path, cudnn.prepare(bundle, "", cache).command[4:]))


# ---------------------------------------------------------------- the protocol


@pytest.fixture(scope="module", params=list(TOLERANCE))
def course(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Course:
    folder = tmp_path_factory.mktemp("course") / request.param
    return make_course(folder, device="cuda", precision=request.param)


@pytest.fixture(scope="module")
def taught(course: Course) -> Iterator[Students]:
    tolerance = TOLERANCE[course.training.workload.precision]
    with students("cudnn", course, course.folder / "cache", tolerance) as found:
        yield found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_worker_conforms(taught: Students, check: Callable[[Students], None]) -> None:
    check(taught)


@pytest.mark.parametrize("course", ["ieee"], indirect=True)
def test_timed_engines_learn_the_same(course: Course) -> None:
    """The plan of the smaller last batch has others, for which its weights may be stored
    differently."""
    cache = course.folder / "cache"
    with students("cudnn:autotune", course, cache, TOLERANCE["ieee"]) as found:
        trains_as_a_plain_loop_does(found)


class WithoutMomentum(Execution):
    """It forgets the momentum where it takes the state from another plan."""

    def take_state(self, other: Execution) -> None:
        super().take_state(other)
        self.forget()


class FirstRate(CuDnn):
    """It takes the first rate for all batches."""

    def set_learning_rate(self, execution: Execution, rate: float) -> None:
        super().set_learning_rate(execution, 0.1)


@pytest.mark.parametrize(
    ("program", "execution"), [(CuDnn, WithoutMomentum), (FirstRate, Execution)]
)
@pytest.mark.parametrize("course", ["ieee"], indirect=True)
def test_a_planted_fault_is_seen(
    program: type[CuDnn],
    execution: type[Execution],
    course: Course,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(bundle: Bundle) -> InProcess:
        return InProcess(started(bundle, course.folder / "cache", program))

    monkeypatch.setattr("golow.levels.direct.cudnn.run.program.Execution", execution)
    with pytest.raises(AssertionError, match=r"momentum|: .* from "):
        trains_as_a_plain_loop_does(Students(course, make, TOLERANCE["ieee"]))


# ---------------------------------------------------------------- networks


def loaded(
    folder: Path, model: str | nn.Module, mode: Mode, precision: Precision = "ieee"
) -> CuDnn:
    bundle = short_bundle(folder / mode, model, mode, "cuda", precision)
    program = started(bundle, folder / "cache")
    program.load(bundle.folder)
    return program


@pytest.mark.parametrize("model", ["lenet5", "mnist_cnn", Grouped()])
def test_a_network_learns_what_pytorch_learns(model: str | nn.Module, tmp_path: Path) -> None:
    """Losses and state after more whole batches than the ring has places and a smaller one, random
    layers off."""
    program = loaded(tmp_path, model, "train")
    program.set_dropout(active=False)
    losses = program.epoch(short_feed(tmp_path), RATES)
    program.save(tmp_path / "state.safetensors")
    state = load_file(tmp_path / "state.safetensors")
    assert_learned(losses, state, learned(program.bundle, short_feed(tmp_path)), tolerance=2e-4)


def test_an_epoch_waits_for_the_gpu_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its end, for the losses; in between only for a place in the ring."""
    program, waits = loaded(tmp_path, Grouped(), "train"), []
    program.epoch(short_feed(tmp_path), RATES)
    synchronize = Gpu.synchronize
    monkeypatch.setattr(Gpu, "synchronize", lambda gpu: waits.append(synchronize(gpu)))
    program.epoch(short_feed(tmp_path), RATES)
    assert len(waits) == 1


@pytest.mark.parametrize("precision", list(TOLERANCE))
def test_the_state_goes_there_and_back_to_the_bit(precision: Precision, tmp_path: Path) -> None:
    program = loaded(tmp_path, Grouped(), "train", precision)
    program.epoch(short_feed(tmp_path), RATES)
    assert program.tail is not None
    before = state_of(program.execution)
    program.tail.run(0)
    program.tail.take_state(program.execution)
    program.iterate()
    assert_same(state_of(program.tail), before)
    program.execution.take_state(program.tail)
    assert_same(state_of(program.execution), before)


def state_of(execution: Execution) -> dict[str, np.ndarray]:
    kinds = ("parameter", "buffer", "momentum")
    inputs = execution.built.inputs.items()
    found = {"/".join(key): execution.read(tensor) for key, tensor in inputs if key[0] in kinds}
    copies = enumerate(copy for _, copy in execution.built.copies)
    return found | {f"copy/{index}": execution.read(copy) for index, copy in copies}


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_random_layers_are_on_in_an_epoch(tmp_path: Path) -> None:
    program, losses = loaded(tmp_path, Grouped(), "train"), []
    for active in (True, True, False):
        program.reset()
        program.set_dropout(active)
        losses.append(program.epoch(short_feed(tmp_path), RATES))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)  # they begin anew
    assert not np.allclose(losses[0], losses[2], rtol=1e-3)


# ---------------------------------------------------------------- beside the other requests


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("precision", ["ieee", "fp16"])
def test_the_check_and_the_clock_know_nothing_of_data_sets(
    mode: Mode, precision: Precision, tmp_path: Path
) -> None:
    """`outputs` starts from the bundle's weights and batches, whatever was fed and restored."""
    teacher = loaded(tmp_path / "teacher", Grouped(), "train", precision)
    teacher.epoch(short_feed(tmp_path), RATES)
    teacher.save(tmp_path / "state.safetensors")
    program = loaded(tmp_path, Grouped(), mode, precision)
    program.outputs([0, 1], 0.01, tmp_path / "before")
    program.restore(tmp_path / "state.safetensors")
    if mode == "train":
        program.epoch(short_feed(tmp_path), RATES)
    else:
        program.predict(short_feed(tmp_path))
    program.iterate()
    program.outputs([0, 1], 0.01, tmp_path / "after")
    before, after = load_file(tmp_path / "before"), load_file(tmp_path / "after")
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, rtol=1e-2, atol=1e-4, err_msg=name)


class Frozen(nn.Module):
    """A layer that does not train, and one that does."""

    def __init__(self) -> None:
        super().__init__()
        self.still, self.fc = nn.Linear(784, 16), nn.Linear(16, 10)
        self.still.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 1, 28, 28] -> [batch, 10]"""
        return self.fc(torch.relu(self.still(x.flatten(1))))


def test_what_is_frozen_is_saved_too(tmp_path: Path) -> None:
    program = loaded(tmp_path, Frozen(), "train")
    program.epoch(short_feed(tmp_path), RATES)
    program.save(tmp_path / "state.safetensors")
    state = load_file(tmp_path / "state.safetensors")
    weights = load_file(program.bundle.file("weights.safetensors"))
    assert {f"parameter/{name}" for name in weights} <= state.keys()
    np.testing.assert_array_equal(state["parameter/still.weight"], weights["still.weight"])
    assert not np.array_equal(state["parameter/fc.weight"], weights["fc.weight"])


# ---------------------------------------------------------------- the scale of the loss


class Loud(nn.Module):
    """Its gradients overflow in half precision, times the scale with which training begins."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 1, 28, 28] -> [batch, 10]"""
        return self.fc(10 * x.flatten(1))


def test_the_check_begins_with_a_scale_that_overflows_no_more(tmp_path: Path) -> None:
    program = loaded(tmp_path, Loud(), "train", "fp16")
    program.save(tmp_path / "state.safetensors")
    scale = load_file(tmp_path / "state.safetensors")["scaler/scale"]
    assert scale.shape == (1,) and 1 <= scale[0] < FIRST_SCALE / 2
    program.outputs([0, 1], 0.0, tmp_path / "outputs")
    outputs = load_file(tmp_path / "outputs")
    assert np.isfinite(outputs["0/gradient/fc.weight"]).all()
    assert outputs["1/momentum/fc.weight"].any()  # no step was left out


def test_the_scale_of_the_loss_goes_with_the_state(tmp_path: Path) -> None:
    program = loaded(tmp_path, Grouped(), "train", "fp16")
    program.epoch(short_feed(tmp_path), RATES)
    program.save(tmp_path / "state.safetensors")
    state = load_file(tmp_path / "state.safetensors")
    assert state["scaler/good_steps"].dtype == np.int32
    assert list(state["scaler/good_steps"]) == [len(RATES)]
    given = {"scaler/scale": np.array([128], np.float32), "scaler/good_steps": np.array([7], "i4")}
    save_file(state | given, tmp_path / "given.safetensors")
    program.restore(tmp_path / "given.safetensors")
    program.save(tmp_path / "again.safetensors")
    again = load_file(tmp_path / "again.safetensors")
    assert (again["scaler/scale"], again["scaler/good_steps"]) == ([128], [7])
