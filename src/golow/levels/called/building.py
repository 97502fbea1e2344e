"""Builds the plans of a module for the sizes that its caller wants."""

from __future__ import annotations

from collections.abc import Callable
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
from golow.levels.called.wanted import Wanted
from golow.observer import Observer
from golow.records.errors import GolowError
from golow.storage.cache import open_cache

Made = TypeVar("Made", bound=CalledModule)
LEVELS = ("direct", "vendor", "onednn", "cudnn")


@torch.inference_mode(False)
@torch.no_grad()
def built(
    kind: Callable[[Parts], Made],
    module: nn.Module,
    example: Any,
    wanted: Wanted,
    observer: Observer,
) -> Made:
    """Build a plan for each size and load the module's weights; return them as a callable of this
    kind. Raises `GolowError` for what cannot be run, before anything is built."""
    require_inferring(module)
    example = listed_example(module, example)
    if wanted.tune and wanted.share:
        raise GolowError(
            "tune=True chooses layouts of weights, and share=True takes the module's",
            "leave one of them out.",
        )
    target = target_for(module, device_of(module, example), wanted)
    inputs = _inputs(module, example, wanted, target)
    view = by_position(module, inputs.keywords)
    assembly = Assembly(view, inputs, target, open_cache(wanted.cache), wanted.tune, observer)
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


def _inputs(module: nn.Module, example: Any, wanted: Wanted, target: Target) -> CallInputs:
    if wanted.sequence is None:
        return CallInputs(module, example, wanted.batch, target.device)
    return TextInputs(module, example, wanted.batch, wanted.sequence, target.device)


def target_for(
    module: nn.Module, device: torch.device, wanted: Wanted, generates: bool = False
) -> Target:
    """The level of the module's device. generates: whether it is a step of a language model. Raises
    `GolowError` if another one is wanted."""
    level = wanted.level
    if level not in LEVELS:
        raise GolowError(
            f"golow.compile does not support the level {level!r}",
            f"levels are {', '.join(LEVELS)}.",
        )
    on_gpu = device.type == "cuda"
    if not on_gpu and device.type != "cpu":
        raise GolowError(
            f"the module is on {device}; golow.compile runs on the CPU and on NVIDIA GPUs",
            "call the module's .cpu() or .cuda().",
        )
    if level in ("onednn", "cudnn") and on_gpu != (level == "cudnn"):
        move = ".cuda()" if level == "cudnn" else ".cpu()"
        raise GolowError(
            f"the module is on {device}, which {level} does not support",
            f"call the module's {move}, or leave level= out.",
        )
    if not on_gpu:
        return Processor(module, wanted.precision, wanted.threads, wanted.share, generates)
    if wanted.share:
        raise GolowError("share=True is for the CPU; a plan on a GPU copies the weights")
    return OneGpu(module, device, wanted.precision)
