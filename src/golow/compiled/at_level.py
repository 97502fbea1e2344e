"""`golow.compile` at any level: a plan of a direct level, or the object that another level
builds."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

from golow.compiled.callable_levels import EXPORTED, LEVELS, is_callable, is_direct
from golow.compiled.compiled_module import CompiledModule
from golow.compiled.handed_over import HandedOver
from golow.compiled.in_torch import built_in_torch
from golow.levels.called.building import built
from golow.levels.called.call_inputs import CallInputs, listed_example
from golow.levels.called.one_size import by_position
from golow.levels.called.target import device_of, require_inferring
from golow.levels.called.wanted import Wanted
from golow.levels.ladder import choose
from golow.levels.named_level import ChosenLevel
from golow.levels.torch.device import HALVES
from golow.observer import Observer
from golow.records.errors import GolowError
from golow.records.workload import Device, ModelSource, Precision, Workload
from golow.storage.cache import cache_errors, open_cache
from golow.worker.cores import require_threads
from golow.workload.known_causes import copied, require_shapes
from golow.workload.request import Request
from golow.workload.trial import require_device

Made = TypeVar("Made", bound=CompiledModule)
PLANS = ("called", "emitted", "autotune", "called-autotune")
"""Variants of direct levels whose result is the plan itself; ``tune`` selects autotuning."""


def compile_at_level(
    kind: type[Made],
    module: nn.Module,
    example: Any,
    wanted: Wanted,
    observer: Observer,
    request: Request | None = None,
) -> Made | HandedOver:
    """Build the level.

    kind: class of the result for a direct level. request: of the comparison that measured this
    module, whose exported models are in the cache.
    """
    level, threads, precision = wanted.level, wanted.threads, wanted.precision
    if is_direct(level):
        base, _, variant = level.partition(":")
        tunes = wanted.tune or variant.endswith("autotune")
        wanted = wanted._replace(level=base if variant in PLANS else level, tune=tunes)
        with cache_errors(wanted.cache):
            return built(kind, module, example, wanted, observer)
    extra = {
        "tune=True": wanted.tune,
        "share=True": wanted.share,
        "batch=": wanted.batch is not None,
        "sequence=": wanted.sequence is not None,
    }
    if any(extra.values()):
        option = next(name for name, given in extra.items() if given)
        raise GolowError(
            f"{option} is for the direct levels; {level} runs inputs like the example",
            "leave it out.",
        )
    if threads is not None:
        require_threads(threads)
    require_inferring(module)
    require_shapes(module, type(module).__name__)
    example = listed_example(module, example)
    place = device_of(module, example)
    device = _device(place)
    chosen = _chosen(level, device)
    require_device(device, precision)
    _require_types(module, level, precision)
    inputs = CallInputs(module, example, None, place)
    workload = _workload(module, inputs, device, precision, threads or torch.get_num_threads())
    if chosen.level.name in EXPORTED:
        from golow.compiled.exported import built_from_export  # a second, for torch's tracer

        asked = request or Request(
            module, example, threads=workload.threads, device=device, precision=precision
        )
        cache = open_cache(wanted.cache)
        opened = built_from_export(chosen, asked, cache, observer, wanted.contexts)
    else:
        observer.stage(f"building {chosen.name}")
        own = by_position(copied(module), inputs.keywords)
        sample = tuple(item.detach().contiguous() for item in inputs.example)
        opened = built_in_torch(chosen, own, sample, workload)
    return HandedOver(chosen.name, inputs, workload, opened)


def _require_types(module: nn.Module, level: str, precision: Precision) -> None:
    """Raise `GolowError` for a module with weights of a type that the level would convert."""
    used = HALVES.get(precision, torch.float32)
    for name, weight in module.named_parameters():
        if weight.is_floating_point() and weight.dtype not in (torch.float32, used):
            own, wanted = (str(dtype).removeprefix("torch.") for dtype in (weight.dtype, used))
            raise GolowError(
                f"{level} computes in {wanted}, and the module's {name} is {own}",
                "call the module's .float(); on a GPU, precision= chooses half precision.",
            )


def _device(place: torch.device) -> Device:
    """Return the kind of device. Raises `GolowError` for an unknown one, and for a GPU that is not
    PyTorch's current one."""
    if place.type == "cpu":
        return "cpu"
    if place.type == "cuda":
        if place.index not in (None, torch.cuda.current_device()):
            raise GolowError(
                f"the module is on {place}, which is not the current GPU",
                f"call torch.cuda.set_device({place.index}) first.",
            )
        return "cuda"
    raise GolowError(
        f"the module is on {place}; golow.compile runs on the CPU and on NVIDIA GPUs",
        "call the module's .cpu() or .cuda().",
    )


def _chosen(level: str, device: Device) -> ChosenLevel:
    chosen = choose(level, "infer", device)
    if not is_callable(chosen.name, device):
        why = "it is set by the lines that golow audit prints" if chosen.settings else ""
        raise GolowError(
            f"golow.compile cannot build {chosen.name} on {device}" + (f": {why}" if why else ""),
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
