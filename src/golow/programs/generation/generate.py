"""Text generation at every level: the whole program on one page."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from golow.measure.environment import environment_of
from golow.measure.plain_read import plain_read
from golow.observer import Observer
from golow.programs.generation.case import Case
from golow.programs.generation.contestants import contestants
from golow.programs.generation.generation_record import FORMAT_VERSION, Generation, TextCase
from golow.programs.generation.settings import GenerationSettings
from golow.records.comparison import Quantity
from golow.records.errors import GolowError, Unfinished
from golow.storage.cache import open_cache
from golow.storage.names import LONGEST_PART, file_name
from golow.storage.scratch import scratch_folder
from golow.workload.generation.request import TextRequest
from golow.workload.generation.sources import prepare_text
from golow.workload.generation.text_bundle import TextBundle, write_text_bundles
from golow.workload.trial import give_back_memory

IN_CACHES = 1 << 28  # bytes of a step that caches may hold


def generate(request: TextRequest, settings: GenerationSettings, observer: Observer) -> Generation:
    """Check every level, then time it, at each batch size. Raises `GolowError` for errors that the
    user can fix, and `Unfinished` for one after a batch size was measured. A failure of a level is
    recorded as its result. After Ctrl-C the record has the partial results, and is marked
    ``interrupted``.
    """
    if not 0 < settings.seconds < math.inf:
        raise GolowError(
            f"a race of {settings.seconds} seconds is none", "for example --seconds 5."
        )
    levels = contestants(settings.levels, settings.workers or {}, request.device)
    cache = open_cache(settings.cache)
    observer.stage("preparing the model")
    cases: list[TextCase] = []
    prompts: tuple[tuple[int, ...], ...] = ()
    rate = None
    interrupted = False
    try:
        with scratch_folder() as folder:
            prompts, bundles = _prepared(request, folder)
            for bundle in bundles:
                case = Case(bundle, prompts, settings, cache, observer)
                interrupted = case.run(levels)
                cases.append(case.record())
                if interrupted:
                    break
            if not interrupted:
                observer.stage("measuring a plain read of the memory")
                rate = plain_read(request.threads, cache, request.device, _fastest(cases))
    except KeyboardInterrupt:
        if not cases:
            raise
        interrupted = True
    except GolowError as error:
        if not cases:
            raise
        raise Unfinished(error, _recorded(cases, prompts, None, True)) from error
    return _recorded(cases, prompts, rate, interrupted)


def _recorded(
    cases: Sequence[TextCase],
    prompts: tuple[tuple[int, ...], ...],
    rate: float | None,
    interrupted: bool,
) -> Generation:
    """The record of these batch sizes. rate: bytes per second of a plain read."""
    first = cases[0].workload
    environment = environment_of(first.source, first.threads)
    created = datetime.now(UTC)
    return Generation(
        format_version=FORMAT_VERSION,
        id=f"{created:%Y%m%d-%H%M%S}-{file_name(first.model, LONGEST_PART)}-generate",
        created=created.isoformat(timespec="seconds"),
        environment=environment,
        cases=tuple(cases),
        prompt=prompts[0] if prompts else (),
        further=prompts[1:],
        read_rate=None if rate is None else Quantity(name="read", unit="B/s", value=rate),
        interrupted=interrupted,
    )


def _prepared(
    request: TextRequest, folder: Path
) -> tuple[tuple[tuple[int, ...], ...], tuple[TextBundle, ...]]:
    """The tokens of the user's texts, and the bundles. The module is given back: a GPU's memory is
    for the levels."""
    prepared = prepare_text(request)
    bundles, prompts = write_text_bundles(prepared, folder), prepared.prompts
    del prepared
    gc.collect()  # models from transformers hold themselves
    give_back_memory(request.device)
    return prompts, bundles


def _fastest(cases: Sequence[TextCase]) -> float:
    """Bytes per second that the fastest level reads, of models that no cache holds."""
    large = [case for case in cases if case.roof(1.0) > IN_CACHES]
    times = [(case, run.token.value) for case in large for run in case.runs if run.token]
    return max((case.roof(1.0) / seconds for case, seconds in times), default=0.0)
