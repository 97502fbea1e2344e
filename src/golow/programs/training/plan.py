"""A request -> a plan that can be carried out, before anything runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from golow import models
from golow.levels import ladder
from golow.levels.ladder import ChosenLevel
from golow.levels.level_selection import choices, command_of, require_any
from golow.measure.environment import environment_of
from golow.models.initialise import INITIALISATIONS
from golow.programs.training.bundle import OWN
from golow.programs.training.request import TrainingRequest
from golow.programs.training.schedule import require_sense
from golow.programs.training.training_record import (
    FORMAT_VERSION,
    Augmentation,
    DatasetFacts,
    TrainingPlan,
)
from golow.records.errors import GolowError
from golow.records.near_names import meant
from golow.records.workload import Device, Precision
from golow.storage.names import LONGEST_PART, file_name
from golow.worker.cores import threads_of_rank
from golow.workload.model_names import is_code
from golow.workload.request import require_optimizer, require_some_ranks
from golow.workload.source import locate, require_not_exported
from golow.workload.trial import require_device

DEFAULT_LEVELS = ("eager", "torchscript", "libtorch", "vendor")
DEFAULT_OF_RANKS = ("ddp", "fsdp", "vendor")
DEFAULT_BATCH = 128
LARGEST_PADDING = 127  # a shift is one byte


def choose(
    levels: Sequence[str] | None,
    workers: Mapping[str, str | Sequence[str]],
    device: Device,
    precision: Precision,
    ranks: int = 1,
) -> list[ChosenLevel]:
    """Return the levels that train, eager first: with several ranks it trains all in one process.
    By default those of `DEFAULT_LEVELS` or `DEFAULT_OF_RANKS`, without any whose optional extra is
    not installed."""
    require_device(device, precision, ranks)
    if levels is None:
        listed = DEFAULT_LEVELS if ranks == 1 else DEFAULT_OF_RANKS
        usual = (ladder.choose(name, "train", device, ranks) for name in listed)
        levels = [
            choice.name
            for choice in usual
            if choice.level.name not in ladder.OPTIONAL or choice.level.probe_on(device).available
        ]
    if ranks == 1:
        chosen = choices(levels, workers, "train", device)
    else:
        others = [name for name in ladder.listed(levels) or () if name != ladder.BASELINE]
        found = choices(others, workers, "train", device, ranks)
        named = found if ladder.BASELINE_OF_RANKS in others else found[1:]
        chosen = [ladder.choose(ladder.BASELINE, "train", device), *named]
    require_any(levels, chosen, device)
    return chosen


def require_possible(request: TrainingRequest) -> None:
    """Raise `GolowError` for a request that cannot be trained."""
    require_not_exported(
        locate(
            request.model, mode="train", pretrained=request.pretrained, download=request.download
        )
    )
    require_some_ranks(request.ranks, request.device)
    epochs, seeds, padding = request.epochs, request.seeds, request.augmentation.padding
    if epochs < 1:
        raise GolowError(f"{epochs} epochs train nothing", "use --epochs 1 or more.")
    entry = models.ZOO.get(request.model) if isinstance(request.model, str) else None
    if entry is not None and entry.per_pixel:
        raise GolowError(
            f"{request.model} gives a class for each pixel, and a data set has one for each image",
            f"time its training step on random targets: golow compare {request.model} "
            "--mode train.",
        )
    if not isinstance(seeds, Sequence) or isinstance(seeds, str) or not seeds:
        raise GolowError(
            "there is no seed to train with", "use --seeds 1 or more.",
            python_hint="give a list: seeds=[0, 1, 2].",
        )  # fmt: skip
    if len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) >= 2**64:
        raise GolowError(
            f"the seeds {list(seeds)} must be different whole numbers from 0 to 2^64 - 1"
        )
    for name in initialisations_of(request):
        if name not in INITIALISATIONS and name != OWN:
            known = (*INITIALISATIONS, OWN)
            raise GolowError(
                f"there is no initialisation {name!r}",
                f"{meant(name, known)}names: {', '.join(known)}.",
            )
    if not 0 <= padding <= LARGEST_PADDING:
        raise GolowError(
            f"the padding must be 0 to {LARGEST_PADDING}, not {padding}", "use --crop 4 or so."
        )
    require_optimizer(request.optimizer)
    require_sense(request.schedule, epochs)


def initialisations_of(request: TrainingRequest) -> tuple[str, ...]:
    """The requested initialisations. A model of the zoo has a default, that of any other model is
    its constructor's."""
    if request.initialisations:
        return tuple(request.initialisations)
    model = request.model
    entry = models.ZOO.get(model) if isinstance(model, str) else None
    return (entry.initialisation if entry is not None else OWN,)


def make_plan(
    request: TrainingRequest, dataset: DatasetFacts, chosen: Sequence[ChosenLevel]
) -> TrainingPlan:
    """The plan, with the current time and this machine's environment."""
    model, created = request.model, datetime.now(UTC)
    if len(dataset.shape) == 1 and request.augmentation != Augmentation():
        raise GolowError(f"{dataset.name} is a text", "--flip and --crop are for images.")
    ranks = request.ranks
    threads = threads_of_rank(ranks) if request.threads is None else request.threads
    title = model if isinstance(model, str) else type(model).__name__
    name = file_name(f"{Path(title).name}-{Path(dataset.name).name}", LONGEST_PART)
    return TrainingPlan(
        format_version=FORMAT_VERSION,
        id=f"{created:%Y%m%d-%H%M%S}-{name}",
        created=created.isoformat(timespec="seconds"),
        model=title,
        dataset=dataset,
        levels=tuple(choice.name for choice in chosen),
        initialisations=initialisations_of(request),
        seeds=tuple(request.seeds),
        epochs=request.epochs,
        batch=_batch(request.batch, dataset, ranks),
        optimizer=request.optimizer,
        schedule=request.schedule,
        augmentation=request.augmentation,
        precision=request.precision,
        device=request.device,
        threads=threads,
        environment=environment_of(locate(model, pretrained=request.pretrained), threads),
        data_root=str(Path(request.data_root).absolute()) if request.data_root else "",
        voc_label=request.voc_label,
        workers={own: command_of(given) for own, given in request.workers.items()},
        allow_differs=request.allow_differs,
        live=not isinstance(model, str),
        pretrained=request.pretrained,
        ranks=ranks,
    )


def runs_of(plan: TrainingPlan, has_module: bool) -> list[str]:
    """Code of a training run that is not golow's or PyTorch's, in words, as its plan names it.
    has_module: the caller gives the model."""
    code = [] if has_module or plan.live or not is_code(plan.model) else [f"model: {plan.model}"]
    return code + [f"worker {own}: {shlex.join(given)}" for own, given in plan.workers.items()]


def _batch(asked: int | None, dataset: DatasetFacts, ranks: int) -> int:
    """The batch of one rank."""
    most = dataset.train_samples // ranks
    batch = min(DEFAULT_BATCH, most) if asked is None else asked
    if not 1 <= batch <= most:
        of_rank = f" for each of {ranks} ranks" if ranks > 1 else ""
        raise GolowError(
            f"a batch of {batch}{of_rank} is impossible with {dataset.train_samples} training "
            "samples",
            f"use --batch 1 to {most}." if most else f"use at most {dataset.train_samples} ranks.",
        )
    return batch
