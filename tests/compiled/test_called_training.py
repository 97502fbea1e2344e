"""The variant ``called`` of a direct level in training: a worker whose step is that of
`golow.compile_step`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import golow
from golow.levels.called.level import BUILT_BEFORE
from golow.levels.called.program import Called
from golow.levels.called.training.program import CalledStep
from golow.levels.called.training.training_step import TrainingStep
from golow.levels.ladder import choose
from golow.levels.torch.program import TorchProgram
from golow.records.workload import Optimizer, Precision
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.direct.steps_on_host import steps_on_host
from support.direct.training_steps import Eager, batches, network, stepped
from support.models.optimizers import ALL
from support.workers.courses import Course, make_course
from support.workers.epochs import TRAINING, InProcess, Students
from support.workers.precisions import in_precision

pytestmark = pytest.mark.usefixtures("forked")

SGD = Optimizer(learning_rate=0.05, momentum=0.9)
ADAM = Optimizer("adam", learning_rate=0.01)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    return make_course(tmp_path_factory.mktemp("called") / "course")


@pytest.fixture(autouse=True)
def built_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is chosen by measuring."""
    there = tmp_path / "built"
    there.touch()
    monkeypatch.setenv(BUILT_BEFORE, str(there))


def program_of(bundle: Bundle) -> InProcess:
    training = bundle.workload.mode == "train"
    return InProcess(CalledStep(tune=False) if training else Called(tune=False))


# ---------------------------------------------------------------- epochs


@pytest.mark.parametrize("check", TRAINING, ids=lambda check: check.__name__)
def test_epochs_are_those_of_a_plain_loop(
    check: Callable[[Students], None], course: Course
) -> None:
    """Also the smaller last batch, pieces of an epoch, and a run that goes on from its state."""
    check(Students(course, program_of, 1e-5))


# ---------------------------------------------------------------- a device on the host


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["ieee", "fp16"])
def test_outputs_and_states_over_the_device_on_the_host(
    tmp_path: Path, precision: Precision
) -> None:
    [(x, y)] = batches(1, (6,))
    request = Request(Dropping().train(), x, targets=y, mode="train", optimizer=ADAM, threads=1)
    bundle, _ = write_bundle(prepare(request), tmp_path / "bundle")
    bundle = in_precision(bundle, precision)
    files = {name: tmp_path / name for name in ("outputs", "first", "again", "other", "eager")}
    with steps_on_host():
        program = CalledStep(tune=False)
        program.load(bundle.folder)
        program.outputs([0, 0], 0.1, files["outputs"])
        program.iterate()
        program.save(files["first"])
        program.iterate()
        program.save(files["other"])
        program.restore(files["first"])
        program.save(files["again"])
        program.write_result(tmp_path / "result")
        assert program.allocated_peak() > 0
    first, again, other = (load_file(files[name]) for name in ("first", "again", "other"))
    assert first.keys() == again.keys() == other.keys()
    assert ("scaler/scale" in first) == (precision == "fp16")
    assert all(torch.equal(item, again[name]) for name, item in first.items())
    assert float(first["steps/steps"]) == 1
    assert not torch.equal(first["square/first.weight"], other["square/first.weight"])
    eager = TorchProgram()
    eager.load(bundle.folder)
    eager.outputs([0, 0], 0.1, files["eager"])
    near = 1e-3 if precision == "ieee" else 0.05
    assert_outputs(load_file(files["outputs"]), load_file(files["eager"]), near)


# ---------------------------------------------------------------- what the check reads


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.drop, self.last = nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.drop(torch.tanh(self.first(x))))
        return found


def observed_is_right(step: TrainingStep, eager: Eager) -> None:
    [(x, y)] = batches(1, (6,))
    for number in range(3):
        eager.optimizer.zero_grad()
        output = eager.module.eval()(x)
        seen = step.observed([x, y])
        assert float(seen["loss", "loss"]) == pytest.approx(eager(x, y), rel=1e-4), number
        found = torch.from_numpy(seen["output", "0"])
        assert torch.allclose(found, output, atol=1e-4)
        for name, parameter in eager.module.named_parameters():
            assert seen["gradient", name].shape == parameter.shape
        for name, item in eager.module.state_dict().items():
            assert torch.allclose(step.state_dict()[name], item, atol=1e-4), name


@pytest.mark.parametrize("optimizer", [SGD, *ALL[-4:]], ids=str)
def test_an_observed_step_is_a_step_that_drops_nothing(optimizer: Optimizer) -> None:
    module = Dropping().train()
    step = stepped(module, optimizer, batches(1, (6,))[0])
    observed_is_right(step, Eager(module, optimizer))
    [(x, y)] = batches(1, (6,))
    assert len({float(step(x, y)) for _ in range(5)}) == 5  # drops again


@pytest.mark.slow
def test_an_observed_step_over_the_device_on_the_host() -> None:
    with steps_on_host():
        module = Dropping().train()
        observed_is_right(stepped(module, SGD, batches(1, (6,))[0]), Eager(module, SGD))


def test_gradients_are_pytorchs() -> None:
    module = network()
    [(x, y)] = batches(1)
    for clip in (None, 0.1):
        still = Optimizer(learning_rate=0.0, momentum=0.9, clip=clip)
        seen = stepped(module, still, (x, y)).observed([x, y])
        module.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        for name, parameter in module.named_parameters():
            found = torch.from_numpy(seen["gradient", name])
            assert parameter.grad is not None
            assert torch.allclose(found, parameter.grad, rtol=1e-3, atol=1e-6), name


def assert_outputs(found: dict[str, Tensor], wanted: dict[str, Tensor], near: float) -> None:
    """Names as well: the check fails a level that leaves one out."""
    assert found.keys() >= wanted.keys()
    for name, tensor in wanted.items():
        assert torch.allclose(found[name].double(), tensor.double(), rtol=near, atol=near), name


def test_outputs_of_the_worker_are_eagers(course: Course, tmp_path: Path) -> None:
    files = []
    for program in (CalledStep(tune=False), TorchProgram()):
        program.load(course.training.folder)
        files.append(tmp_path / type(program).__name__)
        program.outputs([0, 1], 0.1, files[-1])
    assert_outputs(*map(load_file, files), near=1e-4)


# ---------------------------------------------------------------- the level


@pytest.mark.slow
def test_the_level_is_checked_and_raced() -> None:
    assert choose("direct:called", "train").name == "onednn:called"
    [(x, y)] = batches(1, (6,))
    result = golow.compare(
        Dropping().train(), x, targets=y, mode="train", levels=["eager", "direct:called"],
        optimizer=Optimizer("adamw", learning_rate=0.01, clip=0.5),
        time_limit=0.1, threads=1, quiet=True,
    )  # fmt: skip
    [_, run] = result.comparison.runs
    assert run.check.verdict == "match", run.check
    assert run.time is not None
    assert {item.name for item in run.memory} >= {"allocated_peak"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> golow.TrainingResult:
    folder = tmp_path_factory.mktemp("trained")
    return golow.train(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
        dataset="digits", levels=["direct", "direct:called"], epochs=2, batch=128, threads=1,
        optimizer=SGD, out=folder, quiet=True,
    )  # fmt: skip


@pytest.mark.slow
def test_curves_are_those_of_the_worker_without_a_framework(
    trained: golow.TrainingResult,
) -> None:
    runs = {run.level: run for run in trained.training.runs}
    plain, called = runs["onednn"], runs["onednn:called"]
    for one, other in zip(plain.epochs, called.epochs, strict=True):
        assert one.losses == pytest.approx(other.losses, rel=1e-5)
        assert one.checksum == other.checksum
        assert one.eval_loss == pytest.approx(other.eval_loss, rel=1e-4)
    assert {v.word for v in trained.training.verdicts} == {"same"}
