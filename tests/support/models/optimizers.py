"""Every optimizer with settings that matter, and the same in torch.optim, written apart from the
code under test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
import torch
from torch import Tensor, nn

from golow.lower.ir.graph import Ref
from golow.lower.operators.adam_update import AdamUpdate
from golow.lower.operators.rmsprop_update import RmspropUpdate
from golow.lower.operators.sgd_update import SgdUpdate
from golow.records.workload import Optimizer

ALL = [
    Optimizer(learning_rate=0.05, momentum=0.0),
    Optimizer(learning_rate=0.05, momentum=0.0, weight_decay=0.1),
    Optimizer(learning_rate=0.05, momentum=0.5),
    Optimizer(learning_rate=0.0, momentum=0.9, weight_decay=0.01),
    Optimizer(learning_rate=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
    Optimizer(learning_rate=0.05, momentum=0.9, clip=0.3),
    Optimizer(name="adam", learning_rate=0.01),
    Optimizer(name="adam", learning_rate=0.01, weight_decay=0.1, betas=(0.7, 0.9), epsilon=1e-3),
    Optimizer(name="adam", learning_rate=0.01, betas=(0.0, 0.0), epsilon=0.1),
    Optimizer(name="adamw", learning_rate=0.01, weight_decay=0.5, clip=0.3),
    Optimizer(name="rmsprop", learning_rate=0.01),
    Optimizer(name="rmsprop", learning_rate=0.01, momentum=0.5, weight_decay=0.1, smoothing=0.8),
]
ADDED_UP = (ALL[2], ALL[5], ALL[6], ALL[9], ALL[11])  # of each kind one, and both with a limit
# Each optimizer, and of how many batches it takes the gradients. An update does not see how many.
each_optimizer = pytest.mark.parametrize(
    ("optimizer", "every"),
    [
        *(pytest.param(one, 1, id=f"1-{one}") for one in ALL),
        *(
            pytest.param(
                one,
                3,
                id=f"3-{one}",
                marks=() if one in ADDED_UP else pytest.mark.whole_network,
            )
            for one in ALL
        ),
    ],
)
X = Ref(name="x")
STEPPED = {"parameter": X, "gradient": X, "learning_rate": X, "clip": X}
# The operators that update one parameter, in every form.
UPDATES = [
    SgdUpdate(momentum=X, factor=0.9, weight_decay=1e-4, **STEPPED),
    SgdUpdate(momentum=X, factor=0.9, weight_decay=1e-4, nesterov=True, **STEPPED),
    *(
        AdamUpdate(
            momentum=X, square=X, rate=X, root=X, betas=(0.9, 0.999), epsilon=1e-8,
            weight_decay=0.01, decoupled=decoupled, **STEPPED,
        )
        for decoupled in (False, True)
    ),
    *(
        RmspropUpdate(
            square=X, momentum=momentum, smoothing=0.99, epsilon=1e-8, factor=0.5,
            weight_decay=0.01, **STEPPED,
        )
        for momentum in (None, X)
    ),
]  # fmt: skip
NAMES = {"momentum_buffer": "momentum", "exp_avg": "momentum", "exp_avg_sq": "square",
         "square_avg": "square"}  # fmt: skip


def in_torch(settings: Optimizer, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The same optimizer, one parameter after the other."""
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.name == "sgd":
        return torch.optim.SGD(
            parameters, rate, settings.momentum, weight_decay=decay, nesterov=settings.nesterov,
            foreach=False,
        )  # fmt: skip
    if settings.name == "rmsprop":
        return torch.optim.RMSprop(
            parameters, rate, settings.smoothing, settings.epsilon, decay, settings.momentum,
            foreach=False,
        )  # fmt: skip
    adam = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[settings.name]
    return adam(parameters, rate, settings.betas, settings.epsilon, decay, foreach=False)


def clip(settings: Optimizer, parameters: Iterable[nn.Parameter]) -> None:
    """Clip the gradients if the optimizer does."""
    if settings.clip is not None:
        nn.utils.clip_grad_norm_(list(parameters), settings.clip)


def kept(
    settings: Optimizer, optimizer: torch.optim.Optimizer, module: nn.Module
) -> Iterator[tuple[str, Tensor]]:
    """What the optimizer keeps, by its names in the protocol."""
    for name, parameter in module.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if key in NAMES and value is not None:
                yield f"{NAMES[key]}/{name}", value
            elif key == "step" and settings.name != "rmsprop":
                yield "steps/steps", value
