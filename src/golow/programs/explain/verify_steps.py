"""Every operation of a level's plan against float64, from what the operation itself read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from golow.check.moved_bundle import working_rounding
from golow.check.step_rule import summary
from golow.check.steps import step_errors
from golow.levels.starter import Starter
from golow.observer import Observer
from golow.programs.explain.roof import with_plan
from golow.records.comparison import StepError, StepsCheck
from golow.records.errors import GolowError, Unsupported, WorkerFailure
from golow.records.workload import Workload
from golow.storage.cache import open_cache
from golow.storage.scratch import scratch_folder
from golow.workload.bundle import write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request


class Verified(NamedTuple):
    """The error of every result, in the order in which they are made, and their sum."""

    workload: Workload
    level: str
    errors: tuple[StepError, ...]

    @property
    def steps(self) -> StepsCheck:
        """How many there are and which are wrong."""
        return summary(self.errors)


def verify(request: Request, level: str, observer: Observer, cache: Path | None = None) -> Verified:
    """Run one iteration of the level's plan and judge each of its operations. cache: folder for
    builds; golow's own by default. Raises `GolowError` for a level without a plan, and one that
    cannot run here."""
    choice = with_plan(level, request)
    probe = choice.level.probe_on(request.device)
    if not probe.available:
        raise GolowError(f"{choice.name}: {probe.missing}", probe.fix)
    with scratch_folder() as folder:
        observer.stage("preparing the workload")
        bundle, prepared = write_bundle(prepare(request), folder / "bundle")
        observer.stage("capturing the graph")
        write_graph(prepared, bundle)
        try:
            observer.stage(f"{choice.name}: building")
            launch = choice.prepare(bundle, open_cache(cache))
            with Starter().worker(choice.name, launch, bundle) as worker:
                observer.stage(f"{choice.name}: loading")
                worker.load(bundle.folder)
                observer.stage(f"{choice.name}: checking every operation")
                rate = bundle.workload.optimizer.learning_rate
                found = step_errors(worker, bundle, rate, working_rounding(bundle), folder)
                return Verified(prepared.workload, choice.name, tuple(found))
        except Unsupported as error:
            raise GolowError(f"{choice.name}: {error.words}") from error
        except WorkerFailure as failure:
            raise GolowError(f"{choice.name}: {failure.message}\n{failure.log}") from failure
