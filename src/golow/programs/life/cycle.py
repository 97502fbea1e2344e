"""Measures the life cycle of a workload: lives of every level that matched in a comparison, with a
cold and a warm cache, and changes of the batch size. `life_cycle` reads as the table of contents.
Ctrl-C keeps the partial results.
"""

from __future__ import annotations

from contextlib import ExitStack

import msgspec

from golow.check.reference import Standard
from golow.levels.starter import Starter
from golow.measure.gpu.nvml import Card
from golow.observer import Observer
from golow.programs.life.life_record import LevelLife, LifeCycle
from golow.programs.life.lives import Lives
from golow.programs.life.other_batch import other_batch
from golow.programs.life.settings import LifeSettings, require_rounds
from golow.records.comparison import Comparison, Run
from golow.records.errors import GolowError
from golow.storage.scratch import scratch_folder
from golow.workload.bundle import write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request


def life_cycle(
    request: Request, settings: LifeSettings, comparison: Comparison, observer: Observer
) -> LifeCycle:
    """Measure the lives of the levels that matched in the comparison of the same request.

    Raises `GolowError` for settings that make no sense. An error in a level is recorded as its
    result. After Ctrl-C the record has the partial results, and reports it.
    """
    require_rounds(settings.rounds)
    found = LifeCycle(
        id=comparison.id,
        created=comparison.created,
        workload=comparison.workload,
        environment=comparison.runs[0].environment,
        rounds=settings.rounds,
        levels=tuple(_not_yet(run) for run in comparison.runs),
    )
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        starter = stack.enter_context(Starter(settings.limits))
        card = stack.enter_context(Card()) if request.device == "cuda" else None
        lives: Lives | None = None
        try:
            observer.stage("preparing the life cycle")
            prepared = prepare(request)
            bundle, prepared = write_bundle(prepared, folder / "bundle")
            write_graph(prepared, bundle)
            standard = Standard(bundle, folder, starter)
            changed = None
            if settings.cold:
                observer.stage("preparing another batch size")
                changed = other_batch(request, bundle.workload.batch, folder, starter)
            lives = Lives(
                found,
                settings,
                bundle,
                lambda worker: standard.judge(worker.outputs).check,
                changed,
                starter,
                card,
            )
            lives.run(folder, observer)
        except GolowError as error:  # the comparison is measured, and must not be lost
            note = f"no lives were measured: {error.message} {error.hint}".strip()
            found = msgspec.structs.replace(found, notes=(note,))
        except KeyboardInterrupt:
            found = msgspec.structs.replace(found, interrupted=True)
        levels = lives.levels() if lives is not None else found.levels
        return msgspec.structs.replace(found, levels=levels)


def _not_yet(run: Run) -> LevelLife:
    """A level before its first life."""
    return LevelLife(
        level=run.level,
        verdict=run.check.verdict,
        reason=run.check.reason,
        time=run.time if run.check.verdict == "match" else None,
    )
