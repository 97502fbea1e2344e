"""Load test of a model that generates text: a request is a prompt, and its answer arrives token by
token. The steps are in the same order as in `load`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from datetime import UTC, datetime

from golow.levels.generation.table import TextLevel, chosen
from golow.measure.gpu.nvml import Card
from golow.observer import Observer
from golow.programs.load import asked_texts, served_texts
from golow.programs.load.cores import divided
from golow.programs.load.level_under_load import Place
from golow.programs.load.load import loaded, recorded
from golow.programs.load.load_record import LoadTest
from golow.programs.load.settings import LoadSettings, plan_of, require_loadgen
from golow.programs.load.tested_level import TestedLevel
from golow.programs.load.text_proof import TextProof
from golow.programs.load.text_settings import text_request
from golow.records.errors import GolowError
from golow.records.text import TextWorkload
from golow.records.workload import Device, Precision, TensorType, Workload
from golow.storage.cache import open_cache
from golow.storage.scratch import scratch_folder
from golow.worker.time_limits import Limits
from golow.workload.generation.sources import prepare_text
from golow.workload.generation.text_bundle import write_text_bundles
from golow.workload.request import Request


def load_texts(request: Request, settings: LoadSettings, observer: Observer) -> LoadTest:
    """Load the levels with requests for texts, and record which limits each one meets.

    After Ctrl-C the record has the partial results. Raises `GolowError` for errors that the caller
    can fix.
    """
    plan = plan_of(settings, request.seed)
    assert plan.texts is not None  # noqa: S101 - the caller asks for texts
    asked_for = text_request(request, plan, plan.texts)
    names = _levels(settings, request.device)
    require_loadgen()
    created, cache, limits = datetime.now(UTC), open_cache(settings.cache), Limits()
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        card = stack.enter_context(Card()) if request.device == "cuda" else None
        observer.stage("preparing the model")
        bundles = write_text_bundles(prepare_text(asked_for), folder)
        work = bundles[0].workload
        if work.encoder:
            raise GolowError(
                f"{work.model} has an encoder, and golow has no load test for its texts",
                "golow generate measures their tokens.",
            )
        asked = asked_texts.drawn(plan.texts, work.vocabulary, plan.most, plan.seed)
        asked.write(bundles[0].folder)
        observer.stage("the reference: float64")
        proof = stack.enter_context(TextProof(bundles[0], asked, folder, limits))
        cores = divided(sorted(os.sched_getaffinity(0)), request.threads * max(plan.contexts))
        place = Place(
            bundles[0],
            folder,
            plan,
            cores,
            len(asked.prompts),
            cache,
            limits,
            card,
            command=served_texts.COMMAND,
        )
        levels = [
            TestedLevel(
                one.name, place._replace(environment=one.environment(work, cache)), proof, contexts
            )
            for one in names
            for contexts in plan.contexts
        ]
        for level in levels:
            stack.enter_context(level)
        interrupted = loaded(levels, plan, observer)
        what = _described(work, request.precision)
        return recorded(what, (), place, levels, created, interrupted)


def _levels(settings: LoadSettings, device: Device) -> list[TextLevel]:
    """Return the levels with these names; for None, all levels of the device. Raises `GolowError`
    for an unknown name, or if there is no name."""
    names = settings.levels
    found = [one for one in chosen(names, device) if names is None or one.name in names]
    if not found:
        raise GolowError("there is no level to load", "name at least one level.")
    return found


def _described(work: TextWorkload, precision: Precision) -> Workload:
    """Describe the step that reads a prompt, as the workload of the record."""
    return Workload(
        model=work.model,
        source=work.source,
        mode="infer",
        batch=work.batch,
        inputs=(TensorType(shape=(work.batch, work.prompt), dtype="int64"),),
        device=work.device,
        precision=precision,
        initialisation=work.initialisation,
        seed=work.seed,
        threads=work.threads,
        parameters=work.parameters,
    )
