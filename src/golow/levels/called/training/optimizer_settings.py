"""Settings that a step takes from an optimizer: golow's record of one, or one of torch.optim
itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from golow.levels.torch.optimizers import Kernels, create
from golow.records.errors import GolowError
from golow.records.workload import Optimizer, OptimizerName
from golow.workload.request import require_optimizer

NAMES: dict[type, OptimizerName] = {
    torch.optim.SGD: "sgd",
    torch.optim.Adam: "adam",
    torch.optim.AdamW: "adamw",
    torch.optim.RMSprop: "rmsprop",
}
FIELDS = {  # of golow's record, by torch's name in a group of parameters
    "lr": "learning_rate", "momentum": "momentum", "nesterov": "nesterov", "betas": "betas",
    "alpha": "smoothing", "eps": "epsilon", "weight_decay": "weight_decay",
}  # fmt: skip
APART = ("weight_decay", "learning_rate")  # what groups may differ in
LACKED = ("amsgrad", "maximize", "centered", "dampening", "differentiable")


class Settings(NamedTuple):
    """optimizer: what holds for all parameters. order: the parameters as torch's state dicts count
    them. groups: as in those. decays, group_of: the weight decay of each parameter that is updated,
    and the number of its group. state: a state dict of an optimizer that has made steps, or
    None."""

    optimizer: Optimizer
    order: tuple[str, ...]
    groups: list[dict[str, Any]]
    decays: Mapping[str, float]
    group_of: Mapping[str, int]
    state: dict[str, Any] | None

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rate of each group."""
        return rates_of(self.groups)


def settings_of(module: nn.Module, optimizer: Any, clip: float | None, level: str) -> Settings:
    """The settings for the parameters of a module. clip: the largest norm of all gradients; the
    record's own if it is None. level: its name in messages. Raises `GolowError` for an optimizer
    that the level does not have, or that is another module's."""
    if isinstance(optimizer, Optimizer):
        record = optimizer
        require_optimizer(record)
        given = _created(module, record)
    elif type(optimizer) in NAMES:
        given = optimizer
        record = record_of(NAMES[type(optimizer)], given.state_dict()["param_groups"], level)
    else:
        raise GolowError(
            f"the optimizer is {type(optimizer).__name__}",
            'give golow.Optimizer("adamw", learning_rate=1e-3), or SGD, Adam, AdamW or RMSprop '
            "of torch.optim.",
        )
    if clip is not None:
        record = msgspec.structs.replace(record, clip=clip)
    require_optimizer(record)
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    decays: dict[str, float] = {}
    group_of: dict[str, int] = {}
    for number, group in enumerate(given.param_groups):
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise GolowError(
                    f"the optimizer has a parameter of {list(parameter.shape)} that is not the "
                    "module's",
                    "construct the optimizer with this module's parameters: model.parameters().",
                )
            decays[names[id(parameter)]] = float(group["weight_decay"])
            group_of[names[id(parameter)]] = number
    state = given.state_dict()
    begun = state if state["state"] else None
    return Settings(record, tuple(decays), state["param_groups"], decays, group_of, begun)


def rates_of(groups: list[dict[str, Any]]) -> tuple[float, ...]:
    """The learning rate of each group of a state dict."""
    return tuple(require_rate(_number(group["lr"])) for group in groups)


def record_of(name: OptimizerName, groups: list[dict[str, Any]], level: str) -> Optimizer:
    """Groups of parameters in a state dict as golow's record; its weight decay and learning rate
    are those of the first. Raises `GolowError` for groups that differ in anything else, and for
    settings that the level does not have."""
    for group in groups:
        for setting in LACKED:
            if group.get(setting):
                raise GolowError(f"{level} has no {setting} of torch.optim's optimizers")
    if name == "adam" and groups[0].get("decoupled_weight_decay"):
        name = "adamw"
    first, *others = (dict(_fields(group)) for group in groups)
    for other in others:
        for field, value in other.items():
            if value != first[field] and field not in APART:
                raise GolowError(
                    f"groups of parameters differ in {field}: {first[field]} and {value}",
                    "only weight_decay and lr may differ.",
                )
    return Optimizer(name, **first)


def _fields(group: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, field in FIELDS.items():
        if name not in group:
            continue
        value = group[name]
        if name == "betas":
            yield field, tuple(map(_number, value))
        else:
            yield field, value if isinstance(value, bool) else _number(value)


def _number(value: Any) -> float:
    return float(value.item() if isinstance(value, Tensor) else value)


def _created(module: nn.Module, record: Optimizer) -> torch.optim.Optimizer:
    try:
        return create(module.parameters(), record, Kernels())
    except ValueError as error:
        raise GolowError(f"PyTorch refuses the optimizer: {error}") from error


def require_rate(rate: Any) -> float:
    """A learning rate as a number. Raises `GolowError` for what none can be."""
    try:
        found = float(rate)
    except (TypeError, ValueError) as error:
        raise GolowError(f"a learning rate of {rate!r} is not a number") from error
    if not math.isfinite(found):
        raise GolowError(f"a learning rate of {found} is not finite")
    if found < 0:
        raise GolowError(
            f"a learning rate of {found} is negative", "PyTorch's optimizers take 0 or more."
        )
    return found
