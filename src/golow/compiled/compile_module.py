"""Builds the plans of a module for the sizes that its caller wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from golow.compiled.call_inputs import CallInputs
from golow.compiled.compiled_module import CompiledModule, Outputs
from golow.compiled.one_size import OneSize, by_position, lowered
from golow.compiled.padding import require_independent_rows
from golow.levels.direct.bundle_arrays import Batch
from golow.levels.direct.onednn import level as onednn
from golow.levels.direct.onednn.planning import require_runnable
from golow.levels.direct.onednn.run.called_plan import CalledPlan, set_threads
from golow.levels.direct.onednn.run.shared_weights import SharedWeights
from golow.lower.capture.module_outputs import flattened
from golow.observer import Observer
from golow.records.errors import GolowError, Unsupported
from golow.storage.cache import open_cache

LEVELS = ("direct", "vendor", "onednn")
PRECISIONS = ("default", "ieee")


def compile_module(
    module: nn.Module,
    example: Any,
    observer: Observer,
    *,
    level: str = "direct",
    batch: int | Sequence[int] | None = None,
    precision: str = "default",
    threads: int | None = None,
    tune: bool = False,
    cache: Path | None = None,
) -> CompiledModule:
    """Build a plan for each size and load the module's weights; the arguments are those of
    `golow.compile`. Raises `GolowError` for what cannot be run, before anything is built."""
    _require_runnable_here(module, level, precision)
    if threads is not None and threads < 1:
        raise GolowError(f"{threads} threads compute nothing", "use threads=1 or more.")
    inputs = CallInputs(module, example, batch)
    view = by_position(module, inputs.keywords)
    threads = threads or torch.get_num_threads()
    _require_running(view, inputs)
    if inputs.pads and inputs.sizes[-1] > 1:
        require_independent_rows(view, inputs)
    sizes: dict[int, OneSize] = {}
    outputs = {}
    for size in inputs.sizes:
        observer.stage(f"capturing batch {size}")
        sample = inputs.sample(size)
        with torch.inference_mode():
            leaves, structure = flattened(view(*sample))
        _require_tensors(leaves)
        outputs[size] = leaves
        sizes[size] = lowered(view, sample, threads, onednn.passes)
        with _explained():
            require_runnable(sizes[size].graph)
    set_threads(threads)
    plans, weights = {}, SharedWeights()
    state = module.state_dict()
    for size, one in sizes.items():
        observer.stage(f"building the plan of batch {size}")
        folder = onednn.write_graph(one.graph, threads, open_cache(cache))
        example_arrays = _arrays(inputs.sample(size))
        with _explained():
            plans[size] = CalledPlan(
                one.graph, one.reading(state), folder, tune=tune, example=example_arrays
            )
        plans[size].share(weights)
    return CompiledModule(view, inputs, Outputs(structure, outputs), sizes, plans, weights, threads)


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


def _require_runnable_here(module: nn.Module, level: str, precision: str) -> None:
    if not isinstance(module, nn.Module):
        raise GolowError(
            f"the model is {type(module).__name__}, not a torch.nn.Module",
            "build the module first, and call its .eval().",
        )
    if level not in LEVELS:
        raise GolowError(
            f"there is no level {level!r} that golow.compile hands over",
            f"levels are {', '.join(LEVELS)}.",
        )
    if precision not in PRECISIONS:
        raise GolowError(f"onednn computes in float32, not in {precision}", "leave precision= out.")
    probe = onednn.probe()
    if not probe.available:
        raise GolowError(f"onednn: {probe.missing}", probe.fix)
    training = [name or "the module" for name, part in module.named_modules() if part.training]
    if training:
        raise GolowError(
            f"{training[0]} is in training mode, and a compiled module infers",
            "call the module's .eval() first.",
        )
    elsewhere = next((p.device for p in module.parameters() if p.device.type != "cpu"), None)
    if elsewhere is not None:
        raise GolowError(
            f"the module is on {elsewhere}; golow.compile runs on the CPU so far",
            "give it the module's .cpu().",
        )


def _require_tensors(leaves: Sequence[Any]) -> None:
    other = [type(leaf).__name__ for leaf in leaves if not isinstance(leaf, Tensor)]
    if other:
        raise GolowError(
            f"the module returns {other[0]}, which is no tensor",
            "wrap the module in one that returns tensors alone.",
        )


def _arrays(inputs: Sequence[Tensor]) -> Batch:
    return {("input", str(k)): item.contiguous().numpy() for k, item in enumerate(inputs)}


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what the level does not support into an error that names the levels to ask."""
    try:
        yield
    except Unsupported as error:
        raise GolowError(
            f"onednn cannot run it: {error}",
            "golow levels --support MODEL lists the levels that run it.",
        ) from error
