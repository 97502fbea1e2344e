"""A training run on disk: a folder that stays consistent if golow is killed at any moment.

    runs/ID/plan.json                           what was asked
    runs/ID/training.json                       verdicts and notes
    runs/ID/LEVEL/INITIALISATION/seed-0/
        run.json                                the check, the life cycle, what went wrong
        epoch-0001.json ...                     one epoch each
        mistakes.json                           pictures that the best epoch got wrong
        state-0001.safetensors                  all that the next epoch needs, of the latest; of
                                                several ranks the running statistics of each
        weights.safetensors, best.safetensors   the state dict after the latest and the best epoch
    runs/ID/eager/INITIALISATION/rounding/      the same for the run that measures rounding

An epoch counts if both its record and its state exist. The state is written first, and the previous
state is removed last, so a kill loses only the epoch in progress.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from golow.programs.comparison.store import with_errors
from golow.programs.training.training_record import (
    FORMAT_VERSION,
    CurveVerdict,
    Epoch,
    Mistakes,
    Training,
    TrainingPlan,
    TrainingRun,
)
from golow.records.errors import GolowError
from golow.records.record import Record, encode
from golow.storage.files import is_file, move_into_place, read_json, write_whole, writing
from golow.storage.lock import held as folder_held
from golow.storage.names import is_plain_name
from golow.storage.ownership import make_own_folder
from golow.storage.shell_words import shell_word

PLAN = "plan.json"
ROUNDING = "rounding"  # in place of a seed
Tensors = Mapping[str, np.ndarray]
Kind = TypeVar("Kind", bound=Record)


class Findings(Record, frozen=True, kw_only=True):
    """``training.json``: the verdicts and notes on all runs together."""

    verdicts: tuple[CurveVerdict, ...] = ()
    notes: tuple[str, ...] = ()


class RunFolder:
    """The files of one run. Every write raises `GolowError` if the disk is full or fails."""

    def __init__(self, training: Path, level: str, initialisation: str, last: str) -> None:
        """last: ``seed-0`` and so on, or `ROUNDING`."""
        self.training = training
        self.path = training / level.replace(":", "-") / initialisation / last

    def read(self) -> TrainingRun | None:
        """The stored run, with its epochs from the first on; None if the run has not begun."""
        file = self.path / "run.json"
        if not is_file(file):
            return None
        run = _decoded(file, with_errors(read_json(file, dict[str, Any])), TrainingRun)
        if not self._is_of(run):
            raise GolowError(f"{file} is not a record of this run: it names {run.level!r}")
        epochs = tuple(self._epochs())
        return msgspec.structs.replace(run, epochs=epochs, mistakes=self.mistakes(len(epochs)))

    def resumable(self) -> tuple[Epoch, ...]:
        """The epochs after which the training run can continue. Removes records of later epochs,
        and unfinished files that a kill left."""
        epochs = tuple(self._epochs())
        states = [e.epoch for e in epochs if _is_whole(self.state(e.epoch))]
        counting = epochs[: max(states, default=0)]
        beyond = {*self.path.glob("epoch-*.json")} - {self._epoch(e.epoch) for e in counting}
        for file in (*beyond, *self.path.glob(".*")):
            file.unlink()
        return counting

    def write(self, run: TrainingRun) -> None:
        """Write everything except epochs and mistakes, which have their own files."""
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            whole = msgspec.structs.replace(run, epochs=(), mistakes=None)
            write_whole(self.path / "run.json", encode(whole))

    def state(self, epoch: int) -> Path:
        """The path of the state after that epoch."""
        return self.path / f"state-{epoch:04}.safetensors"

    def draft(self) -> Path:
        """The path for a worker's state until `keep_state` makes it count."""
        return self.path / ".state.safetensors"

    def keep_state(self, epoch: int) -> None:
        """Make the draft the state after that epoch."""
        with self._writing():
            move_into_place(self.draft(), self.state(epoch))

    def write_weights(self, weights: Tensors, epoch: int, best: bool) -> None:
        """Write the checkpoints, with the state dict's names."""
        data = save(dict(weights), {"format": "pt", "epoch": str(epoch)})
        with self._writing():
            write_whole(self.path / "weights.safetensors", data)
            if best:
                write_whole(self.path / "best.safetensors", data)

    def write_mistakes(self, mistakes: Mistakes) -> None:
        """Write the mistakes of the best epoch."""
        with self._writing():
            write_whole(self.path / "mistakes.json", encode(mistakes))

    def mistakes(self, epochs: int) -> Mistakes | None:
        """Errors of the best of this many epochs; None also if golow was killed before that epoch
        counted."""
        file = self.path / "mistakes.json"
        if not is_file(file):
            return None
        found = _decoded(file, read_json(file, dict[str, Any]), Mistakes)
        return found if found.epoch <= epochs else None

    def add(self, epoch: Epoch) -> None:
        """Write the epoch's record, so that it counts, and remove the previous state."""
        with self._writing():
            write_whole(self._epoch(epoch.epoch), encode(epoch))
            for file in self.path.glob("state-*.safetensors"):
                if file != self.state(epoch.epoch):
                    file.unlink()

    def require_room(self, size: int) -> None:
        """Raise `GolowError` unless the disk has room for this many more bytes."""
        with self._writing():
            write_whole(self.path / ".room", bytes(size))
            (self.path / ".room").unlink()

    def _epoch(self, number: int) -> Path:
        return self.path / f"epoch-{number:04}.json"

    def _epochs(self) -> Iterator[Epoch]:
        number = 1
        while is_file(file := self._epoch(number)):
            data = read_json(file, dict[str, Any])
            # JSON has no NaN; what was not finite was written as null.
            if isinstance(losses := data.get("losses"), list):
                data["losses"] = [math.nan if loss is None else loss for loss in losses]
            yield _decoded(file, data, Epoch)
            number += 1

    def _is_of(self, run: TrainingRun) -> bool:
        """True if the run names the level and initialisation of this folder, and its seed."""
        seeds = (f"seed-{run.seed}", ROUNDING)
        own = (run.level.replace(":", "-"), run.initialisation)
        return own == self.path.parts[-3:-1] and self.path.name in seeds

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with _writing(self.training):
            yield


def create(plan: TrainingPlan, parent: Path) -> tuple[TrainingPlan, Path]:
    """Create the training run's folder with its plan; two of the same second get different
    names."""
    with _writing(parent):
        make_own_folder(parent)
        for number in range(1, 1000):
            folder = parent / (plan.id if number == 1 else f"{plan.id}-{number}")
            try:
                folder.mkdir(mode=0o755)  # whatever the umask, others do not write what is resumed
            except FileExistsError:
                continue
            plan = msgspec.structs.replace(plan, id=folder.name)
            write_whole(folder / PLAN, encode(plan))
            return plan, folder
    raise GolowError(f"there are too many trainings named {plan.id} in {parent}")


def is_training(folder: Path) -> bool:
    """True if the folder holds a training run."""
    return is_file(folder / PLAN)


def read_plan(folder: Path) -> TrainingPlan:
    """The plan of a training run's folder; raises `GolowError` if there is none."""
    file = folder / PLAN
    if not is_training(folder):
        raise GolowError(
            f"there is no training in {folder}", "name a folder that `golow train` wrote."
        )
    data = read_json(file, dict[str, Any])
    version = data.get("format_version")
    if not isinstance(version, int):
        raise GolowError(f"{file} is not a record of a training: it has no format version")
    if version > FORMAT_VERSION:
        raise GolowError(
            f"{file} has format version {version}; this golow reads up to {FORMAT_VERSION}",
            "a newer golow wrote it: pip install --upgrade golow",
        )
    plan = _decoded(file, data, TrainingPlan)
    if not plan.levels:
        raise GolowError(f"{file} is not a record of a training: it has no levels")
    # Folders have these names.
    for name in (*plan.levels, *plan.initialisations):
        if not is_plain_name(name):
            raise GolowError(f"{file} is not a record of a training: {name!r} is not a name")
    return plan


def write_findings(folder: Path, findings: Findings) -> None:
    """Write the verdicts and notes on all runs so far."""
    with _writing(folder):
        write_whole(folder / "training.json", encode(findings))


def read_findings(folder: Path) -> Findings:
    """The latest findings; empty if none have been written yet."""
    file = folder / "training.json"
    if not is_file(file):
        return Findings()
    return _decoded(file, read_json(file, dict[str, Any]), Findings)


def load(place: str | Path) -> Training:
    """The training run in that folder, as far as it has come; raises `GolowError` if there is
    none."""
    folder = Path(place)
    plan, findings = read_plan(folder), read_findings(folder)
    runs = [run_folder(folder, *start).read() for start in starts(plan)]
    twins = [
        RunFolder(folder, plan.levels[0], initialisation, ROUNDING).read()
        for initialisation in plan.initialisations
    ]
    return Training(
        plan=plan,
        runs=tuple(run for run in runs if run is not None),
        verdicts=findings.verdicts,
        notes=findings.notes,
        roundings=tuple(run for run in twins if run is not None),
    )


def starts(plan: TrainingPlan) -> Iterator[tuple[str, str, int]]:
    """Level, initialisation and seed of every run, in the order of the record."""
    for initialisation in plan.initialisations:
        for seed in plan.seeds:
            for level in plan.levels:
                yield level, initialisation, seed


def run_folder(training: Path, level: str, initialisation: str, seed: int) -> RunFolder:
    """The folder of that run."""
    return RunFolder(training, level, initialisation, f"seed-{seed}")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock the folder for this process; the lock is released however the block ends."""
    with folder_held(folder, f"another golow is training in {folder}", _hint(folder)):
        yield


# ---------------------------------------------------------------- how it is done


def _is_whole(file: Path) -> bool:
    """True if it is a safetensors file of the length given in its header."""
    try:
        with safe_open(file, "numpy"):
            return True
    except (OSError, SafetensorError):
        return False


def _decoded(file: Path, data: dict[str, Any], kind: type[Kind]) -> Kind:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise GolowError(f"{file} is not a record of a training: {error}") from error


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    with writing(folder, _hint(folder)):
        yield


def _hint(folder: Path) -> str:
    again = f"golow train --resume {shell_word(folder)}"
    return f"free some space; {again} continues after the last whole epoch."
