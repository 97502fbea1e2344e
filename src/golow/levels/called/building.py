"""Builds the plans of a module for the sizes that its caller wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from golow.levels.called.assembly import Assembly
from golow.levels.called.call_inputs import CallInputs, listed_example
from golow.levels.called.called_module import CalledModule, Parts
from golow.levels.called.gpu import OneGpu
from golow.levels.called.length_padding import require_harmless_padding
from golow.levels.called.one_size import by_position
from golow.levels.called.padding import require_independent_rows
from golow.levels.called.processor import Processor
from golow.levels.called.target import Target, device_of, require_inferring
from golow.levels.called.text_inputs import TextInputs
from golow.observer import Observer
from golow.records.errors import GolowError
from golow.records.workload import Precision
from golow.storage.cache import open_cache

Made = TypeVar("Made", bound=CalledModule)
LEVELS = ("direct", "vendor", "onednn", "cudnn")


@torch.inference_mode(False)
@torch.no_grad()
def built(
    kind: Callable[[Parts], Made],
    module: nn.Module,
    example: Any,
    observer: Observer,
    *,
    level: str = "direct",
    batch: int | Sequence[int] | None = None,
    sequence: int | Sequence[int] | None = None,
    precision: Precision = "default",
    threads: int | None = None,
    tune: bool = False,
    share: bool = False,
    cache: Path | None = None,
) -> Made:
    """Build a plan for each size and load the module's weights; return them as a callable of this
    kind. The other arguments are those of `golow.compile`. Raises `GolowError` for what cannot be
    run, before anything is built."""
    require_inferring(module)
    example = listed_example(example)
    if tune and share:
        raise GolowError(
            "tune=True chooses layouts of weights, and share=True takes the module's",
            "leave one of them out.",
        )
    target = _target(module, example, level, precision, threads, share)
    inputs = _inputs(module, example, batch, sequence, target)
    view = by_position(module, inputs.keywords)
    assembly = Assembly(view, inputs, target, open_cache(cache), tune, observer)
    assembly.run_module((inputs.batch, inputs.length))
    if inputs.pads and inputs.batches[-1] > 1:
        require_independent_rows(assembly.module, inputs)
    if isinstance(inputs, TextInputs):
        assembly.length_axes = require_harmless_padding(assembly.module, inputs)
    made = kind(assembly.parts())
    if assembly.kept and not assembly.agrees(made):
        # Something that the digest of a module does not see is another than when it was kept.
        made.close()
        made = kind(assembly.parts(anew=True))
    assembly.require_agreement(made)
    target.done()
    return made


def _inputs(
    module: nn.Module,
    example: Any,
    batch: int | Sequence[int] | None,
    sequence: int | Sequence[int] | None,
    target: Target,
) -> CallInputs:
    if sequence is None:
        return CallInputs(module, example, batch, target.device)
    return TextInputs(module, example, batch, sequence, target.device)


def _target(
    module: nn.Module,
    example: Any,
    level: str,
    precision: Precision,
    threads: int | None,
    share: bool,
) -> Target:
    """The level of the module's device. Raises `GolowError` if ``level`` is another one."""
    if level not in LEVELS:
        raise GolowError(
            f"there is no level {level!r} that golow.compile hands over",
            f"levels are {', '.join(LEVELS)}.",
        )
    device = device_of(module, example)
    on_gpu = device.type == "cuda"
    if not on_gpu and device.type != "cpu":
        raise GolowError(
            f"the module is on {device}; golow.compile runs on the CPU and on NVIDIA GPUs",
            "call the module's .cpu() or .cuda().",
        )
    if level in ("onednn", "cudnn") and on_gpu != (level == "cudnn"):
        move = ".cuda()" if level == "cudnn" else ".cpu()"
        raise GolowError(
            f"the module is on {device}, where there is no {level}",
            f"call the module's {move}, or leave level= out.",
        )
    if not on_gpu:
        return Processor(module, precision, threads, share)
    if share:
        raise GolowError("share=True is for the CPU; a plan on a GPU has its own weights")
    return OneGpu(module, device, precision)
