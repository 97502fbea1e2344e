"""`golow.compile` at any level: a plan of a direct level, or what another level builds."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from golow.compiled.call_inputs import CallInputs
from golow.compiled.callable_levels import EXPORTED, LEVELS, is_callable, is_direct
from golow.compiled.compile_module import compile_module
from golow.compiled.compiled_module import CompiledModule
from golow.compiled.exported import built_from_export
from golow.compiled.handed_over import HandedOver
from golow.compiled.in_torch import built_in_torch
from golow.compiled.one_size import by_position
from golow.levels.ladder import choose
from golow.levels.named_level import ChosenLevel
from golow.observer import Observer
from golow.records.errors import GolowError
from golow.records.workload import Device, ModelSource, Precision, Workload
from golow.storage.cache import open_cache
from golow.workload.request import Request
from golow.workload.trial import require_device

AUTOTUNE = ":autotune"
"""The variant of a direct level that ``tune`` stands for."""


def compile_at_level(
    module: nn.Module,
    example: Any,
    observer: Observer,
    *,
    level: str = "direct",
    batch: int | Sequence[int] | None = None,
    precision: Precision = "default",
    threads: int | None = None,
    tune: bool = False,
    cache: Path | None = None,
    request: Request | None = None,
) -> CompiledModule | HandedOver:
    """Build the level; the arguments are those of `golow.compile`.

    request: of the comparison that measured this module, whose exported models are in the cache.
    """
    if is_direct(level):
        return compile_module(
            module,
            example,
            observer,
            level=level.removesuffix(AUTOTUNE),
            batch=batch,
            precision=precision,
            threads=threads,
            tune=tune or level.endswith(AUTOTUNE),
            cache=cache,
        )
    if batch is not None or tune:
        given = "tune=True is" if tune else "batch= is"
        raise GolowError(
            f"{given} for the direct levels; {level} runs batches like the example", "leave it out."
        )
    if threads is not None and threads < 1:
        raise GolowError(f"{threads} threads compute nothing", "use threads=1 or more.")
    _require_inference(module)
    device = device_of(module)
    chosen = _chosen(level, device)
    require_device(device, precision)
    inputs = CallInputs(module, example, None)
    workload = _workload(module, inputs, device, precision, threads or torch.get_num_threads())
    if chosen.level.name in EXPORTED:
        asked = request or Request(
            module, example, threads=workload.threads, device=device, precision=precision
        )
        built = built_from_export(chosen, asked, open_cache(cache), observer)
    else:
        observer.stage(f"building {chosen.name}")
        own = by_position(copied(module), inputs.keywords)
        sample = tuple(item.detach().contiguous() for item in inputs.example)
        built = built_in_torch(chosen, own, sample, workload)
    return HandedOver(chosen.name, inputs, workload, built)


def device_of(module: nn.Module) -> Device:
    """The device of its first tensor; a module without any is on the CPU."""
    first = next(chain(module.parameters(), module.buffers()), None)
    return "cuda" if first is not None and first.is_cuda else "cpu"


def copied(module: nn.Module) -> nn.Module:
    """A copy with tensors of its own. Raises `GolowError` for a module that cannot be copied."""
    try:
        return copy.deepcopy(module)
    except Exception as error:  # of the module's own code
        raise GolowError(
            f"the module cannot be copied: {type(error).__name__}: {error}",
            "build it without what Python cannot copy, such as hooks that hold a lock.",
        ) from error


def _require_inference(module: nn.Module) -> None:
    if not isinstance(module, nn.Module):
        raise GolowError(
            f"the model is {type(module).__name__}, not a torch.nn.Module",
            "build the module first, and call its .eval().",
        )
    training = [name or "the module" for name, part in module.named_modules() if part.training]
    if training:
        raise GolowError(
            f"{training[0]} is in training mode, and a compiled module infers",
            "call the module's .eval() first.",
        )


def _chosen(level: str, device: Device) -> ChosenLevel:
    chosen = choose(level, "infer", device)
    if not is_callable(chosen.name, device):
        why = "it is set by the lines that golow audit prints" if chosen.settings else ""
        raise GolowError(
            f"{chosen.name} cannot be handed over on {device}" + (f": {why}" if why else ""),
            f"levels are {', '.join(LEVELS)}.",
        )
    probe = chosen.level.probe_on(device)
    if not probe.available:
        raise GolowError(f"{chosen.name}: {probe.missing}", probe.fix)
    return chosen


def _workload(
    module: nn.Module, inputs: CallInputs, device: Device, precision: Precision, threads: int
) -> Workload:
    name = type(module).__name__
    return Workload(
        model=name,
        source=ModelSource(kind="pickle", name=name),
        mode="infer",
        batch=inputs.batch,
        inputs=(),
        device=device,
        precision=precision,
        threads=threads,
    )
