"""The losses that golow has in addition to those of torch.nn.functional, and finding one by its
name.

A loss is a function of the model's output and the targets.
"""

from __future__ import annotations

import inspect

import torch
from torch import Tensor
from torch.nn import functional

from golow import models
from golow.lower.capture.module_outputs import leaves_of
from golow.records.errors import GolowError
from golow.records.workload import Mode, ModelSource
from golow.workload.request import Loss


def token_cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy over all tokens. output: scores [..., classes], of any rank. targets:
    class indices [...]."""
    return functional.cross_entropy(output.flatten(0, -2), targets.flatten())


def mse_of_outputs(output: object, *targets: Tensor) -> Tensor:
    """The sum over all outputs of the mean square error, each with a separate target shape. An
    output without elements has no mean."""
    pairs = zip(leaves_of(output), targets, strict=True)
    errors = [functional.mse_loss(leaf, target) for leaf, target in pairs if leaf.numel()]
    return torch.stack(errors).sum()


def own_loss(output: object, *targets: Tensor) -> Tensor:
    """The loss that a model computes itself from its labels: the first tensor that it returns."""
    first: Tensor = leaves_of(output)[0]
    return first


NAMED: dict[str, Loss] = {loss.__name__: loss for loss in (token_cross_entropy, mse_of_outputs)}
"""Losses that a user may name; `own_loss` is for models that take labels."""
OWN = {**NAMED, own_loss.__name__: own_loss}


def named_loss(name: str) -> Loss | None:
    """The loss of that name: golow's own, or torch.nn.functional's; None if there is none."""
    found = OWN.get(name) or getattr(functional, name, None)
    return found if inspect.isroutine(found) else None


def require_loss_object(loss: object) -> None:
    """Raise `GolowError` for the class of a loss instead of a loss."""
    if isinstance(loss, type):
        raise GolowError(
            f"the loss is the class {loss.__name__}", f"construct it: {loss.__name__}()."
        )


def resolve_loss(
    loss: str | Loss | None, mode: Mode, source: ModelSource
) -> tuple[str, Loss | None]:
    """The loss with its name: the caller's own function, or the one named, or the model's."""
    if mode == "infer":
        return "", None
    require_loss_object(loss)
    if callable(loss):
        return getattr(loss, "__name__", type(loss).__name__), loss
    name = loss or _usual(source)
    found = named_loss(name)
    if found is None:
        known = f"cross_entropy, nll_loss, mse_loss or l1_loss, or golow's {' or '.join(NAMED)}"
        raise GolowError(
            f"torch.nn.functional has no loss {name!r}",
            f"try {known}.",
            python_hint=f"try {known}, or pass a function of the output and the targets.",
        )
    return name, found


LABELS = ("labels", "start_positions", "return_loss")
"""Inputs by whose presence a model from transformers computes its loss."""


def _usual(source: ModelSource) -> str:
    """The default loss of a model."""
    if source.kind == "zoo":
        return models.ZOO[source.name].loss
    if any(name in LABELS for name in (*source.keywords, *source.settings)):
        return own_loss.__name__
    return "mse_of_outputs" if source.kind == "huggingface" else "cross_entropy"
