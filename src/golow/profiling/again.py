"""The command that runs a profile's workload again, with something changed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from torch.nn import functional

from golow.levels.ladder import LADDER
from golow.measure.cores import default_threads
from golow.models.initialise import INITIALISATIONS
from golow.record import Workload
from golow.workload.prepare import CALLERS_INPUTS


def again(
    program: str,
    workload: Workload,
    *more: str,
    levels: Sequence[str] = (),
    batch: int | None = None,
    precisions: Sequence[str] = (),
) -> str:
    """The command for ``golow PROGRAM``, with the arguments in ``more`` at its end.

    program: compare, profile, emit or lower. batch, precisions: instead of the workload's. Empty if
    a command line cannot name the workload or a level: a live module, inputs or a loss from Python,
    a worker of the user's own.
    """
    known = {level.name for level in LADDER}
    if not _has_name(workload) or any(name.partition(":")[0] not in known for name in levels):
        return ""
    words = ["golow", program, *_model(workload), "--batch", str(batch or workload.batch)]
    if program != "lower":
        words += _weights(workload)
    if program != "emit":
        words += _arithmetic(workload, precisions or (workload.precision,))
    if program in ("compare", "profile") and workload.threads != default_threads():
        words += ["--threads", str(workload.threads)]
    if levels:
        words += ["--levels", ",".join(dict.fromkeys(levels))]
    return shlex.join([*words, *more])


def _has_name(workload: Workload) -> bool:
    return (
        workload.source.kind != "pickle"
        and workload.data != CALLERS_INPUTS
        and len(workload.inputs) == 1
        and (not workload.loss or hasattr(functional, workload.loss))
    )


def _model(workload: Workload) -> Iterator[str]:
    """The model, its mode, input and loss."""
    source = workload.source
    yield f"{source.name}:{source.attribute}" if source.attribute else source.name
    if workload.mode == "train":
        yield from ("--mode", "train")
    yield from ("--input", "x".join(map(str, workload.inputs[0].shape[1:])))
    if "classes" in source.arguments:
        yield from ("--classes", str(source.arguments["classes"]))
    if workload.loss not in ("", "cross_entropy"):
        yield from ("--loss", workload.loss)


def _weights(workload: Workload) -> Iterator[str]:
    drawn = workload.initialisation.partition(",")[0]
    if workload.weights:
        yield from ("--weights", workload.weights)
    elif drawn in INITIALISATIONS and drawn != "default":
        yield from ("--init", drawn)


def _arithmetic(workload: Workload, precisions: Sequence[str]) -> Iterator[str]:
    if workload.device != "cpu":
        yield from ("--device", workload.device)
    if tuple(precisions) != ("default",):
        yield from ("--precision", ",".join(precisions))
