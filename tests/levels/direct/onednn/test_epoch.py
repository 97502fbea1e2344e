"""Whole epochs at the level `onednn`: the conformance suite on its real workers; in the test's own
process networks in several layouts against PyTorch, and faults that the suite must see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import nn

from golow.levels.direct.onednn import level as onednn
from golow.workload.bundle import Bundle
from support.workers.courses import Course, make_course
from support.workers.epochs import (
    CHECKS,
    InProcess,
    Students,
    goes_on_from_a_saved_state,
    predicts_with_the_weights_that_it_is_given,
    students,
    trains_as_a_plain_loop_does,
)

if not onednn.probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from golow.levels.direct.onednn.run.execution import Execution
from golow.levels.direct.onednn.run.program import OneDnn
from golow.records.errors import GolowError
from golow.records.workload import Mode
from golow.worker.feed import Fed, Feed
from support.direct.onednn_in_process import LAYOUTS, Running, lower
from support.direct.onednn_subjects import choose_layouts
from support.workers.small_epochs import (
    RATES,
    Grouped,
    assert_learned,
    learned,
    short_bundle,
    short_feed,
)

pytestmark = pytest.mark.slow


def folders_of(bundle: Bundle, cache: Path, *layouts: str) -> list[Path]:
    """Where the lowered graphs are, with these layouts in turn as an earlier start would keep."""
    folders = [Path(part) for part in onednn.prepare(bundle, "", cache).command[4:]]
    choose_layouts(folders[0], *layouts)
    return folders


# ---------------------------------------------------------------- the protocol


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    return make_course(tmp_path_factory.mktemp("course") / "course")


@pytest.fixture(scope="module")
def taught(course: Course) -> Iterator[Students]:
    for bundle in (course.training, course.inference):
        folders_of(bundle, course.folder / "cache", "blocked", "channels_last")
    with students("onednn", course, course.folder / "cache", tolerance=1e-5) as found:
        yield found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_worker_conforms(taught: Students, check: Callable[[Students], None]) -> None:
    check(taught)


class WithoutMomentum(Execution):
    """It forgets the momentum where it takes the state from another plan."""

    def take_state(self, other: Execution) -> None:
        super().take_state(other)
        self.forget()


class FirstRate(OneDnn):
    """It takes the first rate for all batches."""

    def set_learning_rate(self, execution: Execution, rate: float) -> None:
        super().set_learning_rate(execution, 0.1)


class WithoutFlips(OneDnn):
    """It turns no picture."""

    def run_fed(self, execution: Execution, fed: Fed, feed: Feed) -> None:
        super().run_fed(execution, fed._replace(flips=None), feed)


class OldStatistics(OneDnn):
    """Its restored weights come without their running statistics."""

    def derive(self, read: Callable[[str, str], np.ndarray]) -> None:
        weights = load_file(self.bundle.file("weights.safetensors"))
        super().derive(lambda kind, name: weights[name] if kind == "buffer" else read(kind, name))


class WithoutDerived(OneDnn):
    """It keeps what it had derived of the weights before."""

    def derive(self, read: Callable[[str, str], np.ndarray]) -> None:
        pass


@pytest.mark.parametrize(
    ("program", "execution", "check"),
    [
        (OneDnn, WithoutMomentum, goes_on_from_a_saved_state),
        (FirstRate, Execution, trains_as_a_plain_loop_does),
        (WithoutFlips, Execution, trains_as_a_plain_loop_does),
        (OldStatistics, Execution, predicts_with_the_weights_that_it_is_given),
        (WithoutDerived, Execution, predicts_with_the_weights_that_it_is_given),
    ],
)
def test_a_planted_fault_is_seen(
    program: type[OneDnn],
    execution: type[Execution],
    check: Callable[[Students], None],
    course: Course,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def started(bundle: Bundle) -> InProcess:
        return InProcess(program(*folders_of(bundle, course.folder / "cache", "blocked")))

    monkeypatch.setattr("golow.levels.direct.onednn.run.program.Execution", execution)
    with pytest.raises(AssertionError, match=r"momentum|: .* from "):
        check(Students(course, started, tolerance=1e-5))


# ---------------------------------------------------------------- networks and layouts


def loaded(folder: Path, model: str | nn.Module, mode: Mode, *layouts: str) -> OneDnn:
    bundle = short_bundle(folder / mode, model, mode)
    program = OneDnn(*folders_of(bundle, folder / "cache", *layouts))
    program.load(bundle.folder)
    return program


@pytest.mark.parametrize(
    ("model", "layouts"),
    [
        ("lenet5", ["any"]),
        ("mnist_cnn", ["blocked"]),
        (Grouped(), ["channels_last", "blocked"]),
        (Grouped(), ["blocked"]),
    ],
)
def test_a_network_learns_what_pytorch_learns(
    model: str | nn.Module, layouts: list[str], tmp_path: Path
) -> None:
    """Losses and state after two whole batches and a smaller one, random layers off."""
    program = loaded(tmp_path, model, "train", *layouts)
    program.set_dropout(active=False)
    losses = program.epoch(short_feed(tmp_path), RATES)
    program.save(tmp_path / "state.safetensors")
    state = load_file(tmp_path / "state.safetensors")
    wanted = learned(program.bundle, short_feed(tmp_path))
    assert_learned(losses, state, wanted, tolerance=1e-5)


@pytest.mark.parametrize(
    ("here", "there"), [("blocked", "channels_last"), ("channels_last", "any"), ("any", "blocked")]
)
def test_the_state_goes_there_and_back_to_the_bit(here: str, there: str) -> None:
    """Between plans in different layouts, of which each has gone a step of its own."""
    network = lower(Grouped(), torch.randn(2, 1, 28, 28), "train")
    first, second = (Running(network, lambda _, name=name: LAYOUTS[name]) for name in (here, there))
    for batch, running in enumerate((first, second)):
        running.point_at(batch)
        running.step()
    before, other = state_of(first), state_of(second)
    assert not any(np.array_equal(array, other[n]) for n, array in before.items() if "num" not in n)
    second.execution.take_state(first.execution)
    first.step()
    first.execution.take_state(second.execution)
    for running in (first, second):
        for name, array in state_of(running).items():
            np.testing.assert_array_equal(array, before[name])


def state_of(running: Running) -> dict[str, np.ndarray]:
    kinds = ("parameter", "buffer", "momentum")
    inputs = running.built.inputs.items()
    return {"/".join(key): running.execution.read(t) for key, t in inputs if key[0] in kinds}


def test_random_layers_are_on_in_an_epoch(tmp_path: Path) -> None:
    program = loaded(tmp_path, Grouped(), "train", "any")
    losses = []
    for active in (True, True, False, False):
        program.reset()
        program.set_dropout(active)
        losses.append(program.epoch(short_feed(tmp_path), RATES))
    assert losses[0] != losses[1] != losses[2] == losses[3]


# ---------------------------------------------------------------- beside the other requests


@pytest.fixture(scope="module", params=["infer", "train"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OneDnn:
    return loaded(tmp_path_factory.mktemp("program"), Grouped(), request.param, "blocked")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What a training came to."""
    folder = tmp_path_factory.mktemp("state")
    teacher = loaded(folder, Grouped(), "train", "any")
    teacher.epoch(short_feed(folder), RATES)
    teacher.save(folder / "state.safetensors")
    return load_file(folder / "state.safetensors")


def test_the_check_and_the_clock_know_nothing_of_data_sets(
    program: OneDnn, state: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """`outputs` starts from the bundle's weights and batches, whatever was fed and restored."""
    program.outputs([0, 1], 0.1, tmp_path / "before")
    save_file(state, tmp_path / "state.safetensors")
    program.restore(tmp_path / "state.safetensors")
    if program.train:
        program.epoch(short_feed(tmp_path), RATES)
    else:
        program.predict(short_feed(tmp_path))
    program.iterate()
    program.outputs([0, 1], 0.1, tmp_path / "after")
    before, after = load_file(tmp_path / "before"), load_file(tmp_path / "after")
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)


# ---------------------------------------------------------------- what cannot be


def test_pictures_of_another_size_are_refused(program: OneDnn, tmp_path: Path) -> None:
    words = r"images are \[1, 30, 30\], the workload's \[1, 28, 28\]"
    with pytest.raises(GolowError, match=words):
        program.predict(short_feed(tmp_path, side=30))


def test_a_smaller_batch_without_its_plan_is_refused(tmp_path: Path) -> None:
    bundle = short_bundle(tmp_path / "train", Grouped(), "train")
    program = OneDnn(folders_of(bundle, tmp_path / "cache", "any")[0])
    program.load(bundle.folder)
    with pytest.raises(GolowError, match="no plan for a batch of 2 rows"):
        program.epoch(short_feed(tmp_path), RATES)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"parameter/fc.bias": None}, "it has no parameter/fc.bias"),
        ({"buffer/bn.running_var": np.ones(19, np.float32)}, "is [19]; the model's is [20]"),
    ],
)
def test_the_state_of_another_model_changes_nothing(
    fault: dict[str, np.ndarray | None],
    words: str,
    program: OneDnn,
    state: dict[str, np.ndarray],
    tmp_path: Path,
) -> None:
    program.reset()
    program.set_dropout(active=False)
    program.iterate()
    before = program.last()
    wrong = {name: array for name, array in (state | fault).items() if array is not None}
    save_file(wrong, tmp_path / "wrong.safetensors")
    program.reset()
    program.set_dropout(active=False)
    with pytest.raises(GolowError) as raised:
        program.restore(tmp_path / "wrong.safetensors")
    assert words in raised.value.message
    program.iterate()
    assert program.last() == before


@pytest.mark.parametrize("content", [None, b"", b"\0" * 100])
def test_a_state_that_is_no_file_is_named(
    content: bytes | None, program: OneDnn, tmp_path: Path
) -> None:
    file = tmp_path / "broken.safetensors"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(GolowError, match=r"broken\.safetensors cannot be read"):
        program.restore(file)


def test_a_bundle_without_a_smaller_batch_starts_with_one_graph(course: Course) -> None:
    commands = [
        onednn.prepare(bundle, "", course.folder / "cache").command[4:]
        for bundle in (course.training, course.inference)
    ]
    assert [len(folders) for folders in commands] == [2, 1]
