"""A model of the command line as an artifact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from golow.artifact.saving import require_place
from golow.compiled.at_level import compile_at_level
from golow.compiled.compiled_module import CompiledModule
from golow.levels.called.wanted import Wanted
from golow.observer import Observer
from golow.records.workload import Workload
from golow.workload.prepare import prepare
from golow.workload.request import Request


def build_artifact(
    request: Request,
    batches: Sequence[int],
    lengths: Sequence[int],
    *,
    level: str,
    tune: bool,
    weights: bool,
    out: Path,
    observer: Observer,
) -> Workload:
    """Build the model's plans for these sizes, by default only the request's, and write them;
    return their workload. Raises `GolowError` as `golow.compile` and `CompiledModule.save` do."""
    require_place(out)
    observer.stage("preparing the workload")
    prepared = prepare(request)
    wanted = Wanted(
        level=level,
        batch=batches or None,
        sequence=lengths or None,
        threads=prepared.workload.threads,
        tune=tune,
    )
    module, example = prepared.module, prepared.batches[0].inputs
    with compile_at_level(CompiledModule, module, example, wanted, observer) as compiled:
        assert isinstance(compiled, CompiledModule)  # noqa: S101 - the level is a direct one
        observer.stage("checking and writing")
        compiled.save(out, weights=weights)
    return prepared.workload
