"""The losses that golow has beside those of torch.nn.functional, and finding one by its name.

A loss is a function of the model's output and the targets.
"""

from __future__ import annotations

import inspect

import torch
from torch import Tensor
from torch.nn import functional

from golow import models
from golow.lower.outputs import leaves_of
from golow.record import GolowError, Mode, ModelSource
from golow.workload.request import Loss


def token_cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy over all tokens. output: scores [..., classes], of any rank. targets:
    class indices [...]."""
    return functional.cross_entropy(output.flatten(0, -2), targets.flatten())


def mse_of_outputs(output: object, *targets: Tensor) -> Tensor:
    """The sum over all outputs of the mean square error, each with a target of its own shape."""
    pairs = zip(leaves_of(output), targets, strict=True)
    return torch.stack([functional.mse_loss(leaf, target) for leaf, target in pairs]).sum()


OWN: dict[str, Loss] = {loss.__name__: loss for loss in (token_cross_entropy, mse_of_outputs)}


def named_loss(name: str) -> Loss | None:
    """The loss of that name: golow's own, or torch.nn.functional's; None if there is none."""
    found = OWN.get(name) or getattr(functional, name, None)
    return found if inspect.isroutine(found) else None


def resolve_loss(
    loss: str | Loss | None, mode: Mode, source: ModelSource
) -> tuple[str, Loss | None]:
    """The loss with its name: the caller's own function, or the one named, or the model's."""
    if mode == "infer":
        return "", None
    if callable(loss):
        return getattr(loss, "__name__", type(loss).__name__), loss
    own = models.ZOO[source.name].loss if source.kind == "zoo" else "cross_entropy"
    name = loss or own
    found = named_loss(name)
    if found is None:
        raise GolowError(
            f"torch.nn.functional has no loss {name!r}",
            f"try cross_entropy, nll_loss, mse_loss or l1_loss, or golow's {' or '.join(OWN)}; in "
            "Python any function works.",
        )
    return name, found
