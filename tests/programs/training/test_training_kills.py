"""A run of a training that is killed, runs out of disk or loses its worker: what is left of it.

The worker is one in NumPy, so that a run takes a second; the rest is what `golow train` runs.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from golow.check.checked_level import CheckedLevel
from golow.levels.level_selection import choices
from golow.levels.starter import Starter
from golow.programs.training.bundle import TrainingBundles
from golow.programs.training.learner import Learner
from golow.programs.training.observer import SilentTraining, TrainingProgress
from golow.programs.training.plan import make_plan
from golow.programs.training.request import TrainingRequest
from golow.programs.training.run_spec import RunSpec
from golow.programs.training.store import RunFolder
from golow.programs.training.training_record import Augmentation, Schedule, TrainingRun
from golow.programs.training.workers import Workers
from golow.records.comparison import Check
from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from support.processes import is_gone, mentioning, soon
from support.records.training_subjects import NORMED, digits, softmax_worker

EPOCHS, KILLS = 6, 20


class Subject(NamedTuple):
    """All that a run needs but its folder."""

    bundles: TrainingBundles
    spec: RunSpec
    scratch: Path

    def workers(self, *options: str) -> Workers:
        """Of a level whose workers have these options."""
        own = {"mine": softmax_worker(*options)}
        *_, choice = choices(["eager"], own, "train", "cpu")
        level = CheckedLevel(
            choice, self.bundles.train, self.scratch, Starter(), known=Check(verdict="match")
        )
        return Workers(level, self.bundles.infer)

    def learn(
        self, folder: Path, *options: str, observer: SilentTraining | None = None
    ) -> TrainingRun:
        """All of a run in that folder, or what is left."""
        with self.workers(*options) as workers:
            return self.learn_by(workers, folder, observer=observer)

    def learn_by(
        self,
        workers: Workers,
        folder: Path,
        *,
        seed: int = 0,
        observer: SilentTraining | None = None,
    ) -> TrainingRun:
        """The same by workers that others may have had before."""
        spec = self.spec._replace(
            seed=seed,
            start=self.bundles.start("own", seed),
            folder=RunFolder(folder, "mine", "own", f"seed-{seed}"),
        )
        if isinstance(observer, Disturbing):
            observer.workers = workers
        return Learner(workers, spec, observer or SilentTraining()).learn(None, "1 of 1")


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("kills")
    data = digits(folder)
    request = TrainingRequest(
        model=NORMED,
        dataset="digits",
        epochs=EPOCHS,
        batch=480,
        initialisations=["own"],
        optimizer=Optimizer(learning_rate=0.05),
        schedule=Schedule(kind="cosine"),
        augmentation=Augmentation(flip=True, padding=1),
        threads=1,
    )
    plan = make_plan(request, data.facts, choices(["eager"], {}, "train", "cpu"))
    bundles = TrainingBundles(plan, NORMED, data, folder)
    spec = RunSpec(
        plan=plan,
        data=data,
        initialisation="own",
        seed=0,
        start=bundles.start("own", 0),
        epochs=EPOCHS,
        folder=RunFolder(folder, "mine", "own", "seed-0"),
        scratch=folder,
    )
    return Subject(bundles, spec, folder)


@pytest.fixture(scope="module")
def undisturbed(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    folder = tmp_path_factory.mktemp("undisturbed")
    run = subject.learn(folder)
    assert run.failure == ""
    assert len(run.epochs) == EPOCHS
    return run


def timeless(run: TrainingRun | None) -> list[object]:
    """What an undisturbed run has to the last bit."""
    assert run is not None
    return [
        msgspec.structs.replace(epoch, train_seconds=0, eval_seconds=0, wait_share=None, memory=())
        for epoch in run.epochs
    ]


@pytest.fixture
def nobody_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No worker outlives the test."""
    monkeypatch.setenv("GOLOW_TEST", str(tmp_path))
    yield
    assert soon(lambda: mentioning(str(tmp_path)) == [])


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_left")
def test_a_kill_at_any_moment_costs_the_epoch_in_flight_at_most(
    subject: Subject, undisturbed: TrainingRun, tmp_path: Path
) -> None:
    """20 times kill -9 of the parent, at random moments of a run, which then goes on; whenever it
    comes to its end it has what an undisturbed run has, to the last bit."""
    moments = random.Random(5)  # noqa: S311
    fork = multiprocessing.get_context("fork")
    kept: list[int] = []
    for number in range(KILLS):
        folder = tmp_path / str(number)
        files = RunFolder(folder, "mine", "own", "seed-0")
        while len(kept) < KILLS:
            before = len(records(files))
            # At a random moment of the start, or of one of the epochs after that.
            more, after = moments.choice([(0, 0.6), (1, 0.1), (1, 0.1), (2, 0.1)])
            child = fork.Process(target=subject.learn, args=(folder, "--pause", "0.01"))
            child.start()
            while child.is_alive() and len(records(files)) < before + more:
                time.sleep(0.002)
            child.join(moments.uniform(0, after))
            if child.exitcode is not None:
                break
            child.kill()
            child.join()
            written = len(records(files))
            assert len(files.resumable()) == written  # what has a record counts
            assert written >= before
            kept.append(written)
        if len(kept) == KILLS:
            break
    assert len(set(kept)) >= EPOCHS // 2  # they came early and late
    run = subject.learn(folder)
    assert timeless(run) == timeless(files.read()) == timeless(undisturbed)
    assert {path.name for path in files.path.iterdir()} == {
        *(f"epoch-{n:04}.json" for n in range(1, EPOCHS + 1)),
        "best.safetensors",
        "mistakes.json",
        "run.json",
        f"state-{EPOCHS:04}.safetensors",
        "weights.safetensors",
    }


def records(files: RunFolder) -> list[Path]:
    return list(files.path.glob("epoch-*.json"))


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_left")
def test_a_worker_that_dies_costs_the_epoch_in_flight_and_no_more(
    subject: Subject, undisturbed: TrainingRun, tmp_path: Path
) -> None:
    failed = subject.learn(tmp_path, "--dies-after", "13")
    assert failed.failure == "died: it was ended by SIGKILL"
    assert timeless(failed) == timeless(undisturbed)[:4]
    stored = RunFolder(tmp_path, "mine", "own", "seed-0").read()
    assert stored == failed
    again = subject.learn(tmp_path)
    assert again.failure == ""
    assert timeless(again) == timeless(undisturbed)


class Disturbing(SilentTraining):
    """Does something to the workers while they train."""

    workers: Workers


class Filling(Disturbing):
    """The disk takes no file of more than so many bytes from the third epoch's first batches on:
    for this process or for the worker that trains."""

    def __init__(self, of_worker: bool, size: int) -> None:
        self.of_worker, self.size = of_worker, size

    def trained(self, progress: TrainingProgress) -> None:
        if progress.epoch == 3:
            process = self.workers.trainer.pid if self.of_worker else 0
            limit = (self.size, resource.RLIM_INFINITY)
            resource.prlimit(process, resource.RLIMIT_FSIZE, limit)


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_left")
@pytest.mark.parametrize(
    ("of_worker", "size", "whole"),
    [
        pytest.param(False, 2000, 2, id="checkpoint"),
        pytest.param(False, 8000, 3, id="order"),  # of the fourth epoch
        pytest.param(True, 2000, 2, id="state"),
    ],
)
def test_a_full_disk_ends_the_training_which_goes_on_when_there_is_room(
    subject: Subject,
    undisturbed: TrainingRun,
    tmp_path: Path,
    of_worker: bool,
    size: int,
    whole: int,
) -> None:
    observer = Filling(of_worker, size)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if of_worker:  # the disk has room for the parent: it is the worker's own fault then
            assert "File too large" in subject.learn(tmp_path, observer=observer).failure
        else:
            with pytest.raises(GolowError, match="cannot be written: File too large") as raised:
                subject.learn(tmp_path, observer=observer)
            assert f"--resume {tmp_path}" in raised.value.hint
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(RunFolder(tmp_path, "mine", "own", "seed-0").resumable()) == whole
    assert timeless(subject.learn(tmp_path)) == timeless(undisturbed)


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_left")
def test_a_worker_that_cannot_write_on_a_full_disk_is_not_at_fault(
    subject: Subject, tmp_path: Path
) -> None:
    """The worker inherits the limit and answers that it failed; the parent sees why."""

    def learn() -> None:
        observer = Filling(of_worker=True, size=2000)
        told = observer.trained

        def both(progress: TrainingProgress) -> None:
            told(progress)
            if progress.epoch == 3:
                resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))

        observer.trained = both  # type: ignore[method-assign]
        try:
            subject.learn(tmp_path, observer=observer)
        except GolowError as error:
            os._exit(7 if "cannot be written" in error.message else 8)
        os._exit(9)

    child = multiprocessing.get_context("fork").Process(target=learn)
    child.start()
    child.join(60)
    assert child.exitcode == 7


class Killing(Disturbing):
    """Once, after the second epoch, a worker is ended."""

    def __init__(self, who: str) -> None:
        self.who = who

    def trained(self, progress: TrainingProgress) -> None:
        if (progress.epoch, progress.batch) == (2, progress.batches):
            kill(self.workers, self.who)


def kill(workers: Workers, who: str) -> None:
    process = processes(workers)[who]
    os.kill(process, signal.SIGKILL)
    assert soon(lambda: is_gone(process))


def processes(workers: Workers) -> dict[str, int]:
    return {"trainer": workers.trainer.pid, "evaluator": workers.evaluator().pid}


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_left")
def test_the_runs_of_a_level_have_two_processes_and_nothing_else_in_common(
    subject: Subject, undisturbed: TrainingRun, tmp_path: Path
) -> None:
    with subject.workers() as workers:
        other = subject.learn_by(workers, tmp_path, seed=1)
        had = processes(workers)
        assert sorted(had.values()) == sorted(mentioning(str(tmp_path)))
        run = subject.learn_by(workers, tmp_path)
        assert processes(workers) == had
    assert timeless(run) == timeless(undisturbed) != timeless(other)
    assert run.life == other.life  # one start, which both had


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_left")
@pytest.mark.parametrize("meanwhile", [True, False], ids=["in a run", "between two runs"])
@pytest.mark.parametrize("who", ["trainer", "evaluator"])
def test_a_worker_that_dies_does_not_take_the_next_run_with_it(
    subject: Subject, undisturbed: TrainingRun, tmp_path: Path, who: str, meanwhile: bool
) -> None:
    with subject.workers() as workers:
        killing = Killing(who) if meanwhile else None
        first = subject.learn_by(workers, tmp_path, seed=1, observer=killing)
        assert first.failure == ("died: it was ended by SIGKILL" if meanwhile else "")
        assert len(first.epochs) == (2 if meanwhile else EPOCHS)
        if not meanwhile:
            kill(workers, who)
        second = subject.learn_by(workers, tmp_path)
        assert len(mentioning(str(tmp_path))) == 2
    assert second.failure == ""
    assert timeless(second) == timeless(undisturbed)


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_left")
def test_where_layers_draw_at_random_each_run_has_new_workers(
    subject: Subject, tmp_path: Path
) -> None:
    start = subject.spec.start
    workload = msgspec.structs.replace(start.workload, random_layers=("dropout",))
    drawing = subject.spec._replace(
        start=start._replace(workload=workload),
        folder=RunFolder(tmp_path, "mine", "own", "seed-0"),
    )
    with subject.workers() as workers:
        run = Learner(workers, drawing, SilentTraining()).learn(None, "1 of 1")
        assert run.failure == ""
        assert mentioning(str(tmp_path)) == []


@pytest.mark.slow
def test_half_of_a_state_is_none(
    subject: Subject, undisturbed: TrainingRun, tmp_path: Path
) -> None:
    """As after a power cut: the record is there, its state is cut off; or the state is gone."""
    subject.learn(tmp_path)
    files = RunFolder(tmp_path, "mine", "own", "seed-0")
    state = files.state(EPOCHS)
    whole = state.read_bytes()
    shutil.copyfile(state, files.state(EPOCHS - 1))
    state.write_bytes(whole[: len(whole) // 2])
    assert len(files.resumable()) == EPOCHS - 1
    assert not (files.path / f"epoch-{EPOCHS:04}.json").exists()
    files.state(EPOCHS - 1).unlink()
    assert files.resumable() == ()
    assert timeless(subject.learn(tmp_path)) == timeless(undisturbed)
