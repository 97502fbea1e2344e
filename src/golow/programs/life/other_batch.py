"""The workload with another batch size, and the check for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from golow.check.reference import Standard
from golow.levels.starter import Starter
from golow.programs.life.one_life import Judge
from golow.records.errors import GolowError
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Inputs, Request


class OtherBatch(NamedTuple):
    """The bundle and what judges its numbers; without them, why the batch size cannot change."""

    bundle: Bundle | None = None
    judge: Judge | None = None
    missing: str = ""


def other_size(batch: int) -> int:
    """The batch size to change to: half of it, or 2 samples instead of 1."""
    return batch // 2 or 2


def other_batch(request: Request, batch: int, folder: Path, starter: Starter) -> OtherBatch:
    """Prepare the workload with another batch size."""
    rows = other_size(batch)
    place = folder / "other"
    place.mkdir()
    try:
        prepared = prepare(_resized(request, rows))
        bundle, prepared = write_bundle(prepared, place / "bundle")
        write_graph(prepared, bundle)
        standard = Standard(bundle, place, starter)
    except GolowError as error:
        return OtherBatch(missing=f"a batch of {rows} cannot run: {error.message}")
    return OtherBatch(bundle, lambda worker: standard.judge(worker.outputs).check)


def _resized(request: Request, rows: int) -> Request:
    if request.example_inputs is None:
        return dataclasses.replace(request, batch=rows)

    def resized(tensors: Tensor | Sequence[Tensor] | None) -> tuple[Tensor, ...] | None:
        if tensors is None:
            return None
        given = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        return tuple(torch.cat([tensor, tensor])[:rows] for tensor in given)

    given = request.example_inputs
    inputs: Inputs | None
    if isinstance(given, Mapping):
        inputs = dict(zip(given, resized(tuple(given.values())) or (), strict=True))
    else:
        inputs = resized(given)
    return dataclasses.replace(
        request,
        example_inputs=inputs,
        targets=resized(request.targets),
        batch=None,
    )
