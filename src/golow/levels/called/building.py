"""Builds the plans of a module for the sizes that its caller wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from golow.levels.called.call_inputs import CallInputs
from golow.levels.called.called_module import Parts
from golow.levels.called.gpu import OneGpu
from golow.levels.called.one_size import by_position, lowered
from golow.levels.called.outputs import Outputs
from golow.levels.called.padding import require_independent_rows
from golow.levels.called.processor import Processor
from golow.levels.called.target import Target, device_of, require_inferring, roomy
from golow.lower.capture.module_outputs import flattened
from golow.observer import Observer
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Precision
from golow.storage.cache import open_cache

LEVELS = ("direct", "vendor", "onednn", "cudnn")


def built(
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
) -> Parts:
    """Build a plan for each size and load the module's weights; the arguments are those of
    `golow.compile`. Raises `GolowError` for what cannot be run, before anything is built."""
    require_inferring(module)
    target = _target(module, example, level, precision, threads)
    inputs = CallInputs(module, example, batch, target.device)
    view = by_position(module, inputs.keywords)
    _require_running(view, inputs)
    if inputs.pads and inputs.sizes[-1] > 1:
        require_independent_rows(view, inputs)
    sizes, outputs = {}, {}
    captured = target.captured_as(view)
    for size in inputs.sizes:
        observer.stage(f"capturing batch {size}")
        sample = inputs.sample(size)
        with torch.inference_mode():
            leaves, structure = flattened(view(*sample))
        _require_tensors(leaves)
        outputs[size] = leaves
        sizes[size] = lowered(captured, target.captured_with(sample), target.threads, target.passes)
        with _explained(target.level):
            target.require_runnable(sizes[size].graph)
    target.building()
    plans, weights = {}, target.shared_weights()
    state = module.state_dict()
    for size, one in sizes.items():
        observer.stage(f"building the plan of batch {size}")
        with _explained(target.level), roomy():
            plans[size] = target.build(
                one.graph,
                one.reading(state),
                inputs.sample(size),
                outputs[size],
                open_cache(cache),
                tune,
            )
            plans[size].share(weights)
    made = Outputs(structure, outputs, target.device)
    return Parts(view, inputs, made, sizes, plans, weights, target)


def _target(
    module: nn.Module, example: Any, level: str, precision: Precision, threads: int | None
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
    return OneGpu(module, device, precision) if on_gpu else Processor(module, precision, threads)


def _require_running(module: nn.Module, inputs: CallInputs) -> None:
    """Raise `GolowError` if the module itself does not take the example."""
    try:
        with torch.inference_mode():
            module(*inputs.sample(inputs.batch))
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise GolowError(
            f"the module does not run on the example: {type(error).__name__}: {first}",
            "give inputs that the module takes.",
        ) from error


def _require_tensors(leaves: Sequence[Any]) -> None:
    other = [type(leaf).__name__ for leaf in leaves if not isinstance(leaf, Tensor)]
    if other:
        raise GolowError(
            f"the module returns {other[0]}, which is no tensor",
            "wrap the module in one that returns tensors alone.",
        )


@contextmanager
def _explained(level: str) -> Iterator[None]:
    """Turn what the level does not support into an error that names the levels to ask."""
    try:
        yield
    except Unsupported as error:
        raise GolowError(
            f"{level} cannot run it: {error}",
            "golow levels --support MODEL lists the levels that run it.",
        ) from error
