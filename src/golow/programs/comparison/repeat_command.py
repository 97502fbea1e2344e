"""The command that runs a recorded workload again, with something changed. Importing this imports
no torch, which a report rarely needs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from golow.levels.ladder import LADDER
from golow.models import ZOO, Entry
from golow.programs.comparison.repeat_request import sequence_of
from golow.records.workload import ModelSource, Workload
from golow.worker.cores import threads_of_rank
from golow.workload.request import CALLERS_INPUTS, PROGRAMS_INPUTS


def again(
    program: str,
    workload: Workload,
    *more: str,
    levels: Sequence[str] = (),
    batch: int | None = None,
    precisions: Sequence[str] = (),
) -> str:
    """The command for ``golow PROGRAM``, with the arguments in ``more`` at its end.

    program: compare, audit, profile, emit or lower. batch, precisions: instead of the workload's.
    Empty if a command line cannot name the workload or a level: a live module, inputs or a loss
    from Python, a worker of the user's own; several ranks, in a program that has one.
    """
    known, ranks = {level.name for level in LADDER}, workload.ranks
    if ranks > 1 and program not in ("compare", "profile"):
        return ""
    if not _has_name(workload) or any(re.split("[:+]", name)[0] not in known for name in levels):
        return ""
    words = ["golow", program, *_model(workload), "--batch", str(batch or workload.batch)]
    if program != "lower":
        words += _weights(workload)
    if program != "emit":
        words += _arithmetic(workload, precisions or (workload.precision,))
    if ranks > 1:
        words += ["--gpus" if workload.device == "cuda" else "--ranks", str(ranks)]
    usual = threads_of_rank(ranks)
    if program in ("compare", "audit", "profile") and workload.threads != usual:
        words += ["--threads", str(workload.threads)]
    if levels:
        words += ["--levels", ",".join(dict.fromkeys(levels))]
    return shlex.join([*words, *more])


def _has_name(workload: Workload) -> bool:
    return (
        workload.source.kind != "pickle"
        and workload.data != CALLERS_INPUTS
        and _has_named_inputs(workload)
        and (not workload.loss or _is_named(workload.loss))
    )


def _is_named(loss: str) -> bool:
    from golow.workload.losses import named_loss  # imports torch

    return named_loss(loss) is not None


def _has_named_inputs(workload: Workload) -> bool:
    """True if options describe the inputs: one image per sample, or what a model of the zoo
    takes."""
    if workload.source.kind == "huggingface" or workload.data == PROGRAMS_INPUTS:
        return True
    entry = _entry(workload.source)
    return len(workload.inputs) - workload.draws == (
        1 if entry is None else max(1, len(entry.fields))
    )


def _model(workload: Workload) -> Iterator[str]:
    """The model, its mode, input and loss."""
    source = workload.source
    if source.kind in ("huggingface", "timm"):
        yield from _of_hub(workload)
        return
    yield f"{source.name}:{source.attribute}" if source.attribute else source.name
    if workload.mode == "train":
        yield from ("--mode", "train")
    entry = _entry(source)
    if workload.data == PROGRAMS_INPUTS:
        pass
    elif entry is None or entry.takes_images:
        yield from ("--input", "x".join(map(str, workload.inputs[0].shape[1:])))
    elif (tokens := sequence_of(workload)) is not None:
        yield from ("--sequence", str(tokens))
    if "classes" in source.arguments:
        yield from ("--classes", str(source.arguments["classes"]))
    if workload.loss not in ("", entry.loss if entry is not None else "cross_entropy"):
        yield from ("--loss", workload.loss)


def _of_hub(workload: Workload) -> Iterator[str]:
    """A model from transformers or timm."""
    source = workload.source
    if source.kind == "timm":
        yield f"timm:{source.name}"
    else:
        yield f"hf:{source.name}:{source.attribute}"
    yield "--pretrained" if source.pretrained else "--random-weights"
    if workload.mode == "train":
        yield from ("--mode", "train")
    if workload.phase:
        yield from ("--phase", workload.phase)
    if (tokens := sequence_of(workload)) is not None:
        yield from ("--sequence", str(tokens))


def _entry(source: ModelSource) -> Entry | None:
    return ZOO.get(source.name) if source.kind == "zoo" else None


def _weights(workload: Workload) -> Iterator[str]:
    drawn = workload.initialisation.partition(",")[0]
    entry = _entry(workload.source)
    usual = entry.initialisation if entry is not None else "default"
    if workload.weights:
        yield from ("--weights", workload.weights)
    elif drawn != usual and _is_drawn(drawn):
        yield from ("--init", drawn)


def _is_drawn(initialisation: str) -> bool:
    from golow.models.initialise import INITIALISATIONS

    return initialisation in INITIALISATIONS


def _arithmetic(workload: Workload, precisions: Sequence[str]) -> Iterator[str]:
    if workload.device != "cpu":
        yield from ("--device", workload.device)
    if tuple(precisions) != ("default",):
        yield from ("--precision", ",".join(precisions))
