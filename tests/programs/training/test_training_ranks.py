"""Whole trainings of several ranks: held against one process that trains for all, with faults that
begin after the check, and continued after a rank has died."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file

import golow
from golow.levels import ladder
from golow.levels.named_level import ChosenLevel
from golow.levels.starter import Starter
from golow.programs.training import store
from golow.programs.training.bundle import TrainingBundles
from golow.programs.training.data import TrainingData
from golow.programs.training.observer import SilentTraining
from golow.programs.training.plan import choose, make_plan
from golow.programs.training.request import TrainingRequest
from golow.programs.training.session import Session
from golow.programs.training.training_record import Epoch, Training, TrainingRun
from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from golow.report.training.caption import conditions
from support.records.training_subjects import NORMED, digits
from support.workers.ranked_bundles import QUICK, RANKS, planted

pytestmark = pytest.mark.usefixtures("forked")

FAULTS = ("sums-in-an-epoch", "skips-in-an-epoch", "same-epoch", "dies-in-an-epoch")
BATCH = 100  # of a rank: the last of 8 steps has 18 samples a rank, and one sample is left out


class Trainings(NamedTuple):
    """A folder in which sessions train."""

    data: TrainingData
    folder: Path

    def train(self, chosen: list[ChosenLevel], again: Path | None = None) -> tuple[Training, Path]:
        """Train at these levels, or continue the training of a folder."""
        request = TrainingRequest(
            model=NORMED,
            dataset="digits",
            epochs=2,
            batch=BATCH,
            ranks=RANKS,
            threads=1,
            initialisations=["own"],
            optimizer=Optimizer(learning_rate=0.05, momentum=0.9),
        )
        scratch = self.folder / f"scratch-{len(list(self.folder.iterdir()))}"
        plan = make_plan(request, self.data.facts, chosen)
        plan, folder = store.create(plan, self.folder) if again is None else (plan, again)
        bundles = TrainingBundles(plan, NORMED, self.data, scratch)
        starter = Starter(QUICK, ranks=RANKS)
        parts = (plan, self.data, bundles, folder, scratch, self.folder, starter, SilentTraining())
        return Session(*parts).run(chosen)[0], folder


@pytest.fixture(scope="module")
def trainings(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Trainings:
    request.getfixturevalue("forked")
    folder = tmp_path_factory.mktemp("trainings")
    return Trainings(digits(folder), folder)


@pytest.fixture(scope="module")
def trained(trainings: Trainings) -> tuple[Training, Path]:
    chosen = choose(["ddp", "fsdp"], {}, "cpu", "default", RANKS)
    return trainings.train([*chosen, *map(planted, FAULTS)])


def run_of(training: Training, level: str) -> TrainingRun:
    return next(run for run in training.runs if run.level == level)


@pytest.mark.parametrize("level", ["ddp", "fsdp"])
def test_ranks_train_the_network_of_one_process(trained: tuple[Training, Path], level: str) -> None:
    training, _ = trained
    found = next(verdict for verdict in training.verdicts if verdict.level == level)
    assert found.word == "same", found.reason
    assert run_of(training, level).failure == ""
    one, of_ranks = (run_of(training, name).epochs[-1] for name in ("eager", level))
    assert of_ranks.checksum == one.checksum
    assert len(of_ranks.checksum) == RANKS  # type: ignore[arg-type]
    assert of_ranks.train_samples == one.train_samples == 1436
    assert len(of_ranks.losses) == 8


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("sums-in-an-epoch", "its losses are off"),
        ("same-epoch", "it consumed other samples"),
        ("skips-in-an-epoch", "ranks 0 and 1 do not hold the same bits of"),
        ("dies-in-an-epoch", "rank 1: died"),
    ],
)
def test_a_fault_that_begins_after_the_check_is_found_out(
    trained: tuple[Training, Path], fault: str, said: str
) -> None:
    training, _ = trained
    run = run_of(training, fault)
    assert run.check.verdict == "match", run.check.words
    verdict = next(one for one in training.verdicts if one.level == fault)
    assert said in f"{verdict.reason} {run.failure}"
    assert verdict.word != "same"


def test_a_state_has_the_running_statistics_of_every_rank(
    trained: tuple[Training, Path],
) -> None:
    """The checkpoint beside it is rank 0's alone, for plain PyTorch."""
    _, folder = trained
    for level in ("eager", "ddp"):
        files = store.run_folder(folder, level, "own", 0)
        state = load_file(files.state(2))
        ranks = [state[f"buffer/{name}1.running_mean"] for name in ("", "rank 1/")]
        assert not np.array_equal(*ranks)
        weights = load_file(files.path / "weights.safetensors")
        assert not any("rank" in name for name in weights)
        np.testing.assert_array_equal(weights["1.running_mean"], ranks[0])


def test_a_level_whose_rank_died_continues_after_its_last_epoch(
    trained: tuple[Training, Path], trainings: Trainings
) -> None:
    training, folder = trained
    fault = "dies-in-an-epoch"
    assert len(run_of(training, fault).epochs) == 1
    sound = planted("none")
    sound = sound._replace(level=replace(sound.level, name=fault))
    again, _ = trainings.train([ladder.choose("eager", "train"), sound], folder)
    assert timeless(run_of(again, fault)) == timeless(run_of(training, "ddp"))
    one, other = (
        load_file(store.run_folder(folder, level, "own", 0).state(2)) for level in ("ddp", fault)
    )
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        np.testing.assert_array_equal(tensor, other[name])


def timeless(run: TrainingRun) -> list[Epoch]:
    """What every run of a level has to the last bit."""
    same = {"train_seconds": 0, "eval_seconds": 0, "wait_share": None, "memory": ()}
    return [msgspec.structs.replace(epoch, **same) for epoch in run.epochs]


def test_the_conditions_state_both_batches(trained: tuple[Training, Path]) -> None:
    assert "2 ranks, batch 100 per rank, 200 in total" in conditions(trained[0].plan)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ranks": 0}, "0 ranks train nothing"),
        ({"ranks": 2, "batch": 1000}, "a batch of 1000 for each of 2 ranks is impossible"),
        ({"ranks": 2, "batch": 719}, "use --batch 1 to 718"),
        ({"ranks": 2, "levels": ["compile"]}, "compile runs in one process"),
        ({"ranks": 2, "workers": {"mine": "true"}}, "is your own worker"),
    ],
)
def test_what_ranks_cannot_train_is_refused(
    given: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(GolowError) as refused:
        golow.train(NORMED, dataset="digits", out=tmp_path, quiet=True, **given)  # type: ignore[arg-type]
    assert said in f"{refused.value.message} {refused.value.hint}"
