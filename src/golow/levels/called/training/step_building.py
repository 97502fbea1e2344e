"""Builds a training step: tried in PyTorch, captured, lowered, built, and held against PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from golow.levels.called.one_size import by_position
from golow.levels.called.processor import Processor
from golow.levels.called.sizes import ascending
from golow.levels.called.target import device_of
from golow.levels.called.training.eager_step import eager_loss, require_training
from golow.levels.called.training.module_weights import ModuleWeights, without_content
from golow.levels.called.training.optimizer_settings import settings_of
from golow.levels.called.training.optimizer_state import OptimizerMemory
from golow.levels.called.training.step_inputs import StepInputs
from golow.levels.called.training.step_plans import Network, StepPlans
from golow.levels.called.training.training_step import StepParts, TrainingStep
from golow.levels.called.training.wanted_step import WantedStep
from golow.levels.direct.onednn.run.training_plan import TrainingPlans
from golow.observer import Observer
from golow.records.errors import GolowError
from golow.storage.cache import open_cache
from golow.workload.losses import own_loss

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
    """Build the plans of the example's batch and of those that are wanted. Raises `GolowError` for
    what cannot be run, before anything is built."""
    require_training(module)
    _require_sense(wanted)
    function = _loss(loss)
    sizes = () if wanted.batch is None else ascending("batch", wanted.batch)
    inputs = StepInputs(module, example, device_of(module, ()))
    if inputs.device.type != "cpu":
        raise GolowError(
            f"the module is on {inputs.device}; golow.compile_step runs on the CPU",
            "call the module's .cpu(), or train with `golow train` on a GPU.",
        )
    target = Processor(module, "default", wanted.threads, False)
    settings = settings_of(module, wanted.optimizer, wanted.clip)
    observer.stage("running the step in PyTorch")
    tensors = [item.detach() for item in inputs.example]
    first, targets = tensors[: inputs.number], tensors[inputs.number :]
    expected = eager_loss(by_position(module, inputs.keywords), function, first, targets)

    empty = without_content(module)
    cache = open_cache(wanted.cache)
    target.building()
    plans = TrainingPlans(cache / target.level, wanted.seed)
    content = {name: t.detach() for name, t in module.state_dict().items() if isinstance(t, Tensor)}
    weights = ModuleWeights(empty, content, plans.state)
    view = by_position(empty, inputs.keywords)
    network = Network(view, function, settings._replace(state=None), wanted.every, wanted.tune)
    made = StepPlans(network, inputs, weights, plans, target, cache)
    optimizer = OptimizerMemory(network.settings, plans.state)
    rate = settings.optimizer.learning_rate
    parts = StepParts(
        empty, inputs, made, plans, weights, optimizer, target, wanted.every, rate, cache
    )
    step = TrainingStep(parts)
    step.build(inputs.batch, observer)
    _require_agreement(step, plans, tensors, expected)
    step.load_state_dict(content, settings.state or step.optimizer_state())
    for rows in sizes:
        step.build(rows, observer)
    return step


def _require_sense(wanted: WantedStep) -> None:
    for name, value, least in (("every", wanted.every, 1), ("seed", wanted.seed, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise GolowError(f"{name}={value!r} is no whole number from {least} on")


def _loss(loss: Callable[..., Tensor] | None) -> Callable[..., Tensor]:
    """The loss as a function; the module's own output if there is none."""
    if loss is None:
        return own_loss
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
            "make it a layer of the module, which returns what the loss needs.",
        )
    return loss


def _require_agreement(
    step: TrainingStep, plans: TrainingPlans, example: Sequence[Tensor], expected: float
) -> None:
    """Raise `GolowError` for a plan whose loss of the example is another one. Its state is then
    spoiled."""
    plans.switches.dropout = False
    plans.state.set_rate(0.0)
    found = step.loss_of([item.contiguous() for item in example])
    plans.switches.dropout = True
    if math.isfinite(expected) and not abs(found - expected) <= FAR * abs(expected) + TINY:
        raise GolowError(
            f"the plan computes something else than the module: the loss of the example is "
            f"{found:.6g} instead of {expected:.6g}",
            "a module that keeps state in attributes, draws random numbers or does something else "
            "while it is captured cannot be compiled.",
        )
