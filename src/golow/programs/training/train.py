"""Training at every level: the same bytes in the same order from the same start.

`train` is the table of contents: choose the levels, prepare the data, plan, and prepare the
workload. `session.py` then trains each level from each start and judges the curves. Every result is
on disk before the observer hears of it, and `resume` continues from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from torch import nn

from golow.levels.ladder import ChosenLevel
from golow.levels.starter import Starter
from golow.programs.comparison.store import require_writable
from golow.programs.training import store
from golow.programs.training.bundle import TrainingBundles
from golow.programs.training.data import TrainingData, open_data
from golow.programs.training.observer import TrainingObserver
from golow.programs.training.plan import choose, make_plan, require_possible, runs_of
from golow.programs.training.request import TrainingRequest
from golow.programs.training.session import Session
from golow.programs.training.training_record import Training, TrainingPlan
from golow.records.errors import GolowError
from golow.storage.cache import open_cache
from golow.storage.ownership import require_own
from golow.storage.scratch import scratch_folder
from golow.storage.shell_words import shell_word
from golow.worker.time_limits import Limits


class TrainingOutcome(NamedTuple):
    """The record, its folder, and whether Ctrl-C ended the training run."""

    training: Training
    folder: Path
    interrupted: bool


def train(
    request: TrainingRequest,
    out: Path,
    observer: TrainingObserver,
    *,
    cache: Path | None = None,
    limits: Limits | None = None,
) -> TrainingOutcome:
    """Train the model at every level on the same batches, and judge whether the curves agree.

    out: the parent folder, in which the training run gets its own. cache: folder for builds and
    prepared data; None means golow's own. limits: how long workers may take to answer. Raises
    `GolowError` for errors that the caller can fix. An error in a level is recorded as its result.
    """
    cache = open_cache(cache)
    require_possible(request)
    ranks = request.ranks
    chosen = choose(request.levels, request.workers, request.device, request.precision, ranks)
    require_writable(out)
    observer.stage("preparing the data")
    data = open_data(
        request.dataset,
        request.model if isinstance(request.model, str) else "",
        root=Path(request.data_root) if request.data_root else None,
        resolution=request.resolution,
        sequence=request.sequence,
        voc_label=request.voc_label,
        cache=cache,
        progress=observer.counted,
    )
    plan = make_plan(request, data.facts, chosen)
    with scratch_folder() as scratch:
        observer.stage("preparing the workload")
        bundles = TrainingBundles(plan, request.model, data, scratch)
        plan, folder = store.create(plan, out)
        starter = Starter(limits, ranks=plan.ranks)
        session = Session(plan, data, bundles, folder, scratch, cache, starter, observer)
        return _run(session, chosen)


def resume(
    folder: Path,
    model: nn.Module | None,
    observer: TrainingObserver,
    *,
    trust: bool = False,
    cache: Path | None = None,
    limits: Limits | None = None,
) -> TrainingOutcome:
    """Continue the training run in that folder, each run after its last whole epoch.

    Failed runs are tried again. model: the module, needed if the training run began with a live
    one. trust: also run the code and commands that a record of another user names. Raises as
    `train` does, and also if the model or the data set has changed.
    """
    cache = open_cache(cache)
    plan = store.read_plan(folder)
    if not trust:
        again = f"golow train --resume {shell_word(folder)} --trust"
        require_own(folder, store.PLAN, runs_of(plan, model is not None), again)
    if plan.live and model is None:
        raise GolowError(
            f"{plan.model} was a module object in a running program, not in a file",
            f"in Python: golow.resume({str(folder)!r}, model=the_module).",
        )
    shape = plan.dataset.shape
    named = [level for level in plan.levels if level not in plan.workers]
    chosen = choose(named, plan.workers, plan.device, plan.precision, plan.ranks)
    observer.stage("preparing the data")
    data = open_data(
        plan.dataset.name,
        plan.model,
        root=Path(plan.data_root) if plan.data_root else None,
        resolution=shape[1] if len(shape) == 3 else None,
        sequence=shape[0] if len(shape) == 1 else None,
        voc_label=plan.voc_label,
        cache=cache,
        progress=observer.counted,
    )
    _require_same_data(plan, data)
    with scratch_folder() as scratch:
        observer.stage("preparing the workload")
        bundles = TrainingBundles(plan, model or plan.model, data, scratch)
        starter = Starter(limits, ranks=plan.ranks)
        session = Session(plan, data, bundles, folder, scratch, cache, starter, observer)
        session.require_same_start()
        return _run(session, chosen)


# ---------------------------------------------------------------- how it is done


def _run(session: Session, chosen: Sequence[ChosenLevel]) -> TrainingOutcome:
    training, interrupted = session.run(chosen)
    return TrainingOutcome(training, session.folder, interrupted)


def _require_same_data(plan: TrainingPlan, data: TrainingData) -> None:
    if msgspec.structs.replace(data.facts, source=plan.dataset.source) != plan.dataset:
        raise GolowError(
            f"the data set {plan.dataset.name} has changed since the training began",
            "restore its files, or start a new training.",
        )
