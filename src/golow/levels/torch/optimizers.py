"""torch.optim's optimizers from a workload's settings, and what they keep, in golow's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from golow.levels.torch.parts_of_ranks import fill
from golow.records.errors import Unsupported
from golow.records.workload import Optimizer, OptimizerState

# PyTorch's names of what an optimizer keeps.
NAMES: dict[str, dict[OptimizerState, str]] = {
    "sgd": {"momentum": "momentum_buffer"},
    "adam": {"momentum": "exp_avg", "square": "exp_avg_sq"},
    "adamw": {"momentum": "exp_avg", "square": "exp_avg_sq"},
    "rmsprop": {"momentum": "momentum_buffer", "square": "square_avg"},
}


class Kernels(NamedTuple):
    """How PyTorch runs the update. kind: ``for-loop``, ``foreach``, ``fused``, or empty for
    PyTorch's own choice. captured: nothing may ask the host, for a CUDA graph."""

    kind: str = ""
    captured: bool = False


def create(
    parameters: Iterable[nn.Parameter], settings: Optimizer, kernels: Kernels
) -> torch.optim.Optimizer:
    """The optimizer of these parameters. Raises `Unsupported` for kernels that it does not have."""
    how: dict[str, Any] = {}
    if kernels.kind:
        how = {"foreach": kernels.kind == "foreach"}
    common: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    if settings.name == "rmsprop":
        if kernels.kind == "fused":
            raise Unsupported("", "PyTorch's RMSprop has no fused kernels")
        return torch.optim.RMSprop(
            parameters,
            **common,
            momentum=settings.momentum,
            alpha=settings.smoothing,
            eps=settings.epsilon,
            capturable=kernels.captured,
            **how,
        )
    if kernels.kind:
        how["fused"] = kernels.kind == "fused"
    if settings.name == "sgd":
        return torch.optim.SGD(
            parameters, **common, momentum=settings.momentum, nesterov=settings.nesterov, **how
        )
    adam = torch.optim.AdamW if settings.name == "adamw" else torch.optim.Adam
    return adam(
        parameters,
        **common,
        betas=settings.betas,
        eps=settings.epsilon,
        capturable=kernels.captured,
        **how,
    )


def kept(
    module: nn.Module, optimizer: torch.optim.Optimizer, settings: Optimizer
) -> Iterator[tuple[str, Tensor]]:
    """State of the optimizer, as ``momentum/NAME`` and ``square/NAME``; ``steps/steps`` is how
    many steps it made, where its update depends on that. Nothing before the first step."""
    steps = None
    for name, parameter in module.named_parameters():
        state = optimizer.state.get(parameter, {})
        for kind in settings.keeps:
            value = state.get(NAMES[settings.name][kind])
            if value is not None:
                yield f"{kind}/{name}", value
        steps = state.get("step", steps)
    if settings.counts_steps and steps is not None:
        yield "steps/steps", steps


def write(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    settings: Optimizer,
    state: dict[str, Tensor],
) -> None:
    """Copy such a state into the optimizer's own tensors. What is missing is zero; a state without
    any leaves the optimizer as it is."""
    steps = state.get("steps/steps")
    for name, parameter in module.named_parameters():
        wanted = {kind: state.get(f"{kind}/{name}") for kind in settings.keeps}
        if steps is None and all(tensor is None for tensor in wanted.values()):
            continue
        held = optimizer.state[parameter]
        for kind, tensor in wanted.items():
            own = NAMES[settings.name][kind]
            if held.get(own) is None:
                held[own] = torch.zeros_like(parameter, requires_grad=False)
            if tensor is not None:
                fill(held[own], tensor)
        if settings.name != "sgd":
            _write_steps(optimizer, parameter, held, steps)


def forget(optimizer: torch.optim.Optimizer) -> None:
    """Set all that the optimizer keeps to zero, in its own memory."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()


def _write_steps(
    optimizer: torch.optim.Optimizer,
    parameter: nn.Parameter,
    held: dict[str, Any],
    steps: Tensor | None,
) -> None:
    if held.get("step") is None:
        group = optimizer.param_groups[0]
        on_device = group.get("capturable") or group.get("fused")
        held["step"] = torch.zeros(
            (), dtype=torch.get_default_dtype(), device=parameter.device if on_device else "cpu"
        )
    if steps is not None:
        held["step"].copy_(steps.reshape(()))
