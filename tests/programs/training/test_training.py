"""Whole trainings with real workers: right levels, and such as train something else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import golow
import golow.programs.training.train  # here: PyTorch then creates a folder for temporary files
from golow.api import TrainingResult
from golow.data.image_file import open_images
from golow.levels.direct.onednn import level as onednn
from golow.levels.starter import Starter
from golow.programs.training import verdict
from golow.programs.training.observer import SilentTraining, TrainingProgress
from golow.programs.training.training_record import Augmentation, Epoch, TrainingRun
from golow.programs.training.verdict import Pair
from golow.programs.training.verdict.pair import Judgement
from golow.records.workload import Optimizer
from golow.worker.client import Worker
from golow.worker.feed import normalised
from support.places import TESTS
from support.processes import mentioning, soon
from support.records import training_subjects
from support.records.training_subjects import NORMED, TIED, digits, softmax_worker

pytestmark = [pytest.mark.usefixtures("forked"), pytest.mark.slow]

EPOCHS = 3
SETTINGS = {
    "dataset": "digits",
    "epochs": EPOCHS,
    "batch": 128,
    "threads": 1,
    "optimizer": Optimizer(learning_rate=0.05, momentum=0.9, weight_decay=0.01),
    "allow_differs": True,
}
# What each error is found by: the check of the first steps, and the curves alone.
ERRORS = {
    "bias": ("parameter/2.bias", "its losses are off"),
    "statistics": ("buffer/1.running_", "its test loss after epoch 1 is off"),
    "momentum": ("1/", "its losses are off"),
    "decay": ("1/", "its losses are off"),
    "order": ("", "it consumed other samples, or the same in another order, in epoch 1"),
}


class Watch(SilentTraining):
    """An observer that notes what it hears."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.heard: list[TrainingProgress] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def trained(self, progress: TrainingProgress) -> None:
        self.heard.append(progress)


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, watch: Watch) -> TrainingResult:
    """Eager, TorchScript, a worker in NumPy and its errors; no process and no temporary file
    outlives it."""
    folder = tmp_path_factory.mktemp("training")
    scratch = folder / "temporary"
    scratch.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(scratch))
        patch.setenv("GOLOW_TEST", str(scratch))
        wrong = {error: softmax_worker("--error", error) for error in ERRORS}
        result = golow.train(
            NORMED,
            levels=["torchscript"],
            workers={"right": softmax_worker(), **wrong},
            augmentation=Augmentation(flip=True, padding=1),
            out=folder,
            cache=folder / "cache",
            observer=watch,
            **SETTINGS,  # type: ignore[arg-type]
        )
        assert soon(lambda: mentioning(str(scratch)) == [])
        assert list(scratch.iterdir()) == []
    return result


def run_of(result: TrainingResult, level: str) -> TrainingRun:
    [run] = [run for run in result.training.runs if run.level == level]
    return run


# ---------------------------------------------------------------- what is found


@pytest.mark.parametrize("name", ["torchscript", "right"])
def test_a_right_level_trains_the_same_network(trained: TrainingResult, name: str) -> None:
    [found] = [v for v in trained.training.verdicts if v.level == name]
    assert found.word == "same", found.reason
    assert "eager's for 36 steps" in found.reason
    eager, level = run_of(trained, "eager"), run_of(trained, name)
    for one, other in zip(eager.epochs, level.epochs, strict=True):
        assert one.checksum == other.checksum
        assert one.train_samples == 1437
        assert len(one.losses) == 12  # the last of 29 samples
        assert np.sum(one.confusion) == one.eval_samples == 360
    last = eager.epochs[-1]
    assert last.eval_accuracy is not None and last.eval_accuracy > 0.7
    assert {q.name for q in last.memory} >= {"resident"}
    assert {q.name for q in eager.life} >= {"build", "load", "ready"}


def test_the_mistakes_of_the_best_epoch_are_kept(trained: TrainingResult) -> None:
    run = run_of(trained, "eager")
    found = run.mistakes
    assert found is not None
    best = max(run.epochs, key=lambda one: one.eval_accuracy or 0.0)
    assert found.epoch == best.epoch
    assert found.count == best.eval_samples - np.trace(best.confusion) > 0
    for one in found.pictures:
        assert best.confusion[one.truth][one.predicted] > 0
        assert one.shape == run.workload.inputs[0].shape[1:]
        assert len(set(one.pixels)) > 1
    other = run_of(trained, "right").mistakes
    assert other is not None
    assert other.count == found.count


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_is_found_by_the_check_and_by_the_curves(
    trained: TrainingResult, error: str
) -> None:
    checked, seen = ERRORS[error]
    run, training = run_of(trained, error), trained.training
    assert (run.check.verdict == "differs") == bool(checked)
    assert checked in run.check.reason
    [found] = [v for v in training.verdicts if v.level == error]
    assert found.word == "differs"
    alone = curves(trained, error)
    assert alone.word == "differs"
    assert seen in alone.reason
    print(error, "|", found.reason, "|", alone.reason)


def test_where_nobody_would_look_wrong_running_statistics_change_nothing(
    trained: TrainingResult,
) -> None:
    right, wrong = run_of(trained, "right"), run_of(trained, "statistics")
    assert [epoch.losses for epoch in right.epochs] == [epoch.losses for epoch in wrong.epochs]


def curves(result: TrainingResult, level: str) -> Judgement:
    """What is said of a level by its curves alone."""
    pair = Pair(run_of(result, level), run_of(result, "eager"))
    return verdict.curves([pair], result.training.roundings[0], EPOCHS)


def test_the_run_that_shows_what_rounding_does_is_near_and_not_equal(
    trained: TrainingResult,
) -> None:
    [twin] = trained.training.roundings
    eager = run_of(trained, "eager")
    losses, moved = (np.array([e.losses for e in run.epochs]) for run in (eager, twin))
    assert 0 < np.abs(losses - moved).max() < 1e-3


def test_every_batch_is_the_function_of_seed_and_epoch_that_it_should_be(
    trained: TrainingResult, tmp_path: Path
) -> None:
    """The same in plain PyTorch, without golow's workers: the losses of the first epoch."""
    from golow.data.order import augmentation, epoch_order

    data = digits(tmp_path)
    labels, images, _ = open_images(data.train)
    rows = epoch_order(1437, 0, 1)
    shifts, flips = augmentation(1437, 0, 1, 1, True)
    assert shifts is not None and flips is not None
    torch.manual_seed(0)
    module = training_subjects.normed()
    sgd = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    losses = []
    for start in range(0, 1437, 128):
        part = slice(start, start + 128)
        moved = []
        for row, (dy, dx), flip in zip(rows[part], shifts[part], flips[part], strict=True):
            wide = np.pad(images[row], ((0, 0), (1, 1), (1, 1)))
            cut = wide[:, 1 + dy : 9 + dy, 1 + dx : 9 + dx]
            moved.append(cut[:, :, ::-1] if flip else cut)
        scale, shift = np.float32(data.scale), np.float32(data.shift)
        inputs = torch.from_numpy(normalised(np.stack(moved), scale, shift))
        loss = nn.functional.cross_entropy(module(inputs), torch.from_numpy(labels[rows[part]]))
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    np.testing.assert_allclose(run_of(trained, "eager").epochs[0].losses, losses, rtol=1e-5)


@pytest.mark.parametrize("name", ["weights", "best"])
def test_a_checkpoint_loads_in_plain_pytorch_and_has_the_recorded_accuracy(
    trained: TrainingResult, tmp_path: Path, name: str
) -> None:
    run = run_of(trained, "torchscript")
    module = training_subjects.normed().eval()
    file = trained.folder / "torchscript" / "own" / "seed-0" / f"{name}.safetensors"
    module.load_state_dict(load_file(file))
    data = digits(tmp_path)
    labels, images, _ = open_images(data.test)
    inputs = normalised(images, np.float32(data.scale), np.float32(data.shift))
    with torch.no_grad():
        found = module(torch.from_numpy(inputs)).argmax(1).numpy()
    accuracies = [epoch.eval_accuracy or 0.0 for epoch in run.epochs]
    expected = accuracies[-1] if name == "weights" else max(accuracies)
    assert (found == labels).mean() == expected


@pytest.mark.skipif(not onednn.probe().available, reason="oneDNN is not installed")
def test_names_that_a_graph_does_not_have_are_in_the_checkpoint(tmp_path: Path) -> None:
    """One tensor under two names, and one that no step reads."""
    trained = golow.train(
        TIED, dataset="digits", levels=["onednn"], epochs=1, batch=128, threads=1,
        optimizer=Optimizer(learning_rate=0.05), out=tmp_path, cache=tmp_path / "cache",
    )  # fmt: skip
    assert [run.failure for run in trained.training.runs] == ["", ""]
    assert [verdict.word for verdict in trained.training.verdicts] == ["same"]
    module, start = training_subjects.tied(), training_subjects.Tied()
    weights = load_file(trained.folder / "onednn" / "own" / "seed-0" / "weights.safetensors")
    module.load_state_dict(weights)
    assert torch.equal(weights["first.weight"], weights["second.weight"])
    assert not torch.equal(weights["first.weight"], start.first.weight)
    assert torch.equal(weights["idle"], start.idle)


# ---------------------------------------------------------------- run after run


@pytest.mark.whole_network
def test_seeds_that_share_their_workers_train_as_if_each_had_its_own(
    trained: TrainingResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, and two processes a level are started for all of them. Other levels are
    held to it in `epochs`, where they are not loaded twice and so tuned once."""
    begun: list[str] = []

    def counted(starter: Starter, name: str, *rest: Any) -> Worker:
        begun.append(name)
        return start(starter, name, *rest)

    start = Starter.worker
    monkeypatch.setattr(Starter, "worker", counted)
    watch = Watch()
    both = golow.train(
        NORMED,
        levels=["torchscript"],
        seeds=[1, 0],
        augmentation=Augmentation(flip=True, padding=1),
        out=tmp_path,
        cache=tmp_path / "cache",
        observer=watch,
        **SETTINGS,  # type: ignore[arg-type]
    )
    assert begun[:2] == ["eager:float64", "eager"], "those of the check"
    assert begun[2:] == ["eager", "eager", "torchscript", "torchscript"]
    order = list(dict.fromkeys((progress.level, progress.seed) for progress in watch.heard))
    assert order == [
        ("eager", 1),
        ("eager (rounding)", 1),
        ("eager", 0),
        ("torchscript", 1),
        ("torchscript", 0),
    ]
    for run in both.training.runs:
        if run.seed == 0:
            assert timeless(run) == timeless(run_of(trained, run.level))


# ---------------------------------------------------------------- what is told and kept


def test_the_observer_hears_every_epoch_of_every_run(trained: TrainingResult, watch: Watch) -> None:
    whole = [s for s in watch.heard if s.batch == s.batches]
    runs = ["eager", "eager (rounding)", "torchscript", "right", *ERRORS]
    assert [s.level for s in whole] == [name for name in runs for _ in range(EPOCHS)]
    last = whole[-1]
    assert (last.epoch, last.epochs, last.batches, last.seconds_left) == (EPOCHS, EPOCHS, 12, 0)
    assert last.accuracy == run_of(trained, last.level).epochs[-1].eval_accuracy
    assert all(s.samples_per_second > 0 for s in watch.heard)
    assert "right (4 of 9): checking" in watch.stages


def test_the_result_is_what_lies_on_the_disk(
    trained: TrainingResult, capsys: pytest.CaptureFixture[str]
) -> None:
    assert golow.load_training(trained.folder) == trained
    frame = trained.to_pandas()
    assert len(frame) == EPOCHS * (3 + len(ERRORS))
    assert (trained.folder / "epochs.csv").is_file()
    assert not trained.good
    trained.table()
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    assert "momentum: differs: in the first steps:" in shown


def timeless(run: TrainingRun) -> list[Epoch]:
    """What does not depend on the machine's mood."""
    return [
        msgspec.structs.replace(epoch, train_seconds=0, eval_seconds=0, wait_share=None, memory=())
        for epoch in run.epochs
    ]


COMMAND = [sys.executable, "-m", "golow", "train"]
OPTIONS = (
    f"{NORMED} --dataset digits --levels eager --epochs {EPOCHS} --batch 128 --threads 1 "
    "--learning-rate 0.05 --weight-decay 0.01 --flip --crop 1"
).split()


@pytest.mark.whole_network
def test_the_command_line_goes_on_after_ctrl_c(trained: TrainingResult, tmp_path: Path) -> None:
    """In the end eager has what it has in an undisturbed training, to the last bit."""
    environment = {
        **os.environ,
        "GOLOW_CACHE": str(tmp_path / "cache"),
        "TMPDIR": str(tmp_path),
        "GOLOW_TEST": str(tmp_path),
        "PYTHONPATH": str(TESTS),  # the model's file imports what tests share
    }

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def until(child: subprocess.Popen[str], text: str) -> None:
        assert child.stderr is not None
        assert any(text in line for line in child.stderr)

    with start(*OPTIONS, "--out", str(tmp_path / "runs")) as child:
        until(child, "epoch 1/3")
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        output, error = child.communicate()
        assert child.returncode == 130, error
    [folder] = [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    assert f"to continue: golow train --resume {folder}" in error
    assert "0 of 1 runs finished" in " ".join(output.split())
    assert soon(lambda: mentioning(str(tmp_path)) == [])
    with start("--resume", str(folder)) as child:
        output, error = child.communicate()
        assert child.returncode == 0, error
    assert "computing the float64 reference" not in error  # the check is not made again
    [run] = golow.load_training(folder).training.runs
    assert timeless(run) == timeless(run_of(trained, "eager"))
    assert json.loads((folder / "plan.json").read_text())["augmentation"] == {
        "flip": True,
        "padding": 1,
    }
