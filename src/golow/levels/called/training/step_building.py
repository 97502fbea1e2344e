"""Builds a training step: it runs once in PyTorch, and is then captured, lowered, built, and
compared with PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from golow.levels.called.gpu import PRECISION_OF, OneGpu
from golow.levels.called.one_size import by_position
from golow.levels.called.processor import Processor
from golow.levels.called.sizes import ascending
from golow.levels.called.target import device_of
from golow.levels.called.training.eager_step import eager_step, require_training
from golow.levels.called.training.evaluation import Evaluation
from golow.levels.called.training.module_weights import ModuleWeights, without_content
from golow.levels.called.training.on_gpu import OnGpu
from golow.levels.called.training.on_processor import OnProcessor
from golow.levels.called.training.optimizer_settings import settings_of
from golow.levels.called.training.optimizer_state import OptimizerMemory
from golow.levels.called.training.program_ranks import (
    meeting_of_program,
    of_first_rank,
    require_same_settings,
)
from golow.levels.called.training.step_inputs import StepInputs
from golow.levels.called.training.step_plans import Network, StepPlans
from golow.levels.called.training.step_target import StepTarget
from golow.levels.called.training.training_step import StepParts, TrainingStep
from golow.levels.called.training.wanted_step import WantedStep
from golow.levels.called.wanted import Wanted
from golow.levels.direct.ranks.meeting import Meeting
from golow.observer import Observer
from golow.records.errors import GolowError
from golow.storage.cache import open_cache
from golow.workload.known_causes import require_dense_gradients, require_own_statistics
from golow.workload.losses import own_loss, require_loss_object
from golow.workload.own_copies import work_on_copies

FAR, TINY = 0.3, 1e-6  # from this distance on, of the loss, a plan computes something else


@torch.inference_mode(False)
@torch.enable_grad()
def built_step(
    module: nn.Module,
    loss: Callable[..., Tensor] | None,
    example: Any,
    wanted: WantedStep,
    observer: Observer,
) -> TrainingStep:
    """Build the plans of the example's batch and of the requested batches. Raises `GolowError` for
    a step that cannot run, before anything is built."""
    require_training(module)
    require_dense_gradients(module, "the module")
    _require_sense(wanted)
    function = _loss(loss)
    sizes = () if wanted.batch is None else ascending("batch", wanted.batch)
    inputs = StepInputs(module, example, device_of(module, ()))
    cache = open_cache(wanted.cache)
    meeting = meeting_of_program(wanted.ranks)
    require_own_statistics(module, "the module", 1 if meeting is None else meeting.ranks)
    device = _device(module, inputs.device, wanted, cache, meeting)
    settings = settings_of(module, wanted.optimizer, wanted.clip, device.target.level)
    observer.stage("running the step in PyTorch")
    tensors = [item.detach() for item in inputs.example]
    first, targets = tensors[: inputs.number], tensors[inputs.number :]
    eager = eager_step(by_position(module, inputs.keywords), function, first, targets)

    on_cpu = inputs.device.type == "cpu"
    empty = without_content(module, torch.device("cpu" if on_cpu else "meta"))
    content = {name: t.detach() for name, t in module.state_dict().items() if isinstance(t, Tensor)}
    if meeting is not None:
        require_same_settings(meeting, settings, wanted.every)
        content = of_first_rank(meeting, content)
    captured, captured_loss = device.captured(empty, function)
    view = by_position(captured, inputs.keywords)
    work_on_copies(view, eager.changed, ())
    weights = ModuleWeights(empty, content, device.state)
    ranks = 1 if meeting is None else meeting.ranks
    network = Network(view, captured_loss, settings._replace(state=None), wanted.every, ranks)
    plans = StepPlans(network, inputs, weights, device)
    optimizer = OptimizerMemory(network.settings, device.state, device.target.level)
    evaluated = Wanted(
        precision=wanted.precision, threads=device.target.threads if on_cpu else None, cache=cache
    )

    def present() -> dict[str, Tensor]:
        device.wait()
        return weights.read()

    evaluation = Evaluation(empty, inputs, evaluated, present)
    parts = StepParts(
        inputs, plans, device, weights, optimizer, evaluation, wanted.every, settings.rates
    )
    step = TrainingStep(parts)
    step.build(inputs.batch, observer)
    before = device.scale()
    _require_agreement(step, tensors, eager.loss, meeting)
    if before is not None:
        device.set_scale(before)
    nothing = {"state": {}, "param_groups": settings.groups}
    step.load_state_dict(content, settings.state or nothing)
    for rows in sizes:
        step.build(rows, observer)
    return step


def _device(
    module: nn.Module,
    device: torch.device,
    wanted: WantedStep,
    cache: Path,
    meeting: Meeting | None,
) -> StepTarget:
    """The level of the module's device. Raises `GolowError` if there is none, and for settings that
    it does not have. meeting: of ranks, in each of which random layers drop other elements."""
    seed = wanted.seed + (0 if meeting is None else meeting.rank)
    if device.type == "cpu":
        if wanted.loss_scale is not None:
            raise GolowError(
                "onednn computes in float32, where no loss needs a scale", "leave loss_scale= out."
            )
        target = Processor(module, wanted.precision, wanted.threads, False)
        return OnProcessor(target, seed, cache, wanted.tune, meeting)
    if device.type != "cuda":
        raise GolowError(
            f"the module is on {device}; golow.compile_step runs on the CPU and on NVIDIA GPUs",
            "call the module's .cpu() or .cuda().",
        )
    halves = [name for name, p in module.named_parameters() if p.dtype in PRECISION_OF]
    if halves:
        raise GolowError(
            f"{halves[0]} is in half precision, and a step updates float32 weights",
            'call the module\'s .float(), and compile with precision="bf16" or "fp16".',
        )
    gpu = OneGpu(module, device, wanted.precision)
    return OnGpu(gpu, seed, cache, wanted.tune, wanted.loss_scale, meeting)


def _require_sense(wanted: WantedStep) -> None:
    for name, value, least in (("every", wanted.every, 1), ("seed", wanted.seed, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise GolowError(f"{name}={value!r} is not a whole number of at least {least}")
    scale = wanted.loss_scale
    if scale is not None and not (isinstance(scale, int | float) and 0 < scale < math.inf):
        raise GolowError(f"loss_scale={scale!r} is not a number above 0", "use a power of two.")


def _loss(loss: Callable[..., Tensor] | None) -> Callable[..., Tensor]:
    """The loss as a function; the module's own output if there is none."""
    if loss is None:
        return own_loss
    require_loss_object(loss)
    if not callable(loss):
        raise GolowError(
            f"the loss is {type(loss).__name__}",
            "give a function of the output and the targets, such as nn.CrossEntropyLoss(); None "
            "if the module returns its loss.",
        )
    trained = list(loss.named_parameters()) if isinstance(loss, nn.Module) else []
    if trained:
        raise GolowError(
            f"the loss has a parameter, {trained[0][0]}, which a step would not train",
            "make it a layer of the module, and return all that the loss needs.",
        )
    return loss


def _require_agreement(
    step: TrainingStep, example: Sequence[Tensor], expected: float, meeting: Meeting | None
) -> None:
    """Raise `GolowError` if the plan's loss of the example differs from PyTorch's; its state is
    then invalid. With several ranks, all plans have the weights of the first rank's module."""
    found = step.loss_of([item.contiguous() for item in example])
    if meeting is not None:
        said = meeting.from_first("losses", lambda: f"{found!r} {expected!r}".encode())
        found, expected = map(float, said.split())
    if math.isfinite(expected) and not abs(found - expected) <= FAR * abs(expected) + TINY:
        raise GolowError(
            f"the plan does not compute what the module computes: the loss of the example is "
            f"{found:.6g} instead of {expected:.6g}",
            "a module that keeps state in attributes, draws random numbers or does something else "
            "while it is captured cannot be compiled.",
        )
