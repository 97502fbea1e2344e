"""The step in PyTorch, tried once before anything is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from golow.levels.called.attribute_state import require_stateless
from golow.levels.called.changed_inputs import places_changed
from golow.lower.capture.gradient_hooks import require_unhooked_gradients
from golow.lower.capture.shared_tensors import own_tensors_kept
from golow.records.errors import GolowError
from golow.workload.dropout_calls import DROPOUT_CALLS
from golow.workload.known_causes import require_plain_module, require_shapes
from golow.workload.patched_functions import installed
from golow.workload.source import random_layers_off


def require_training(module: object) -> None:
    """Raise `GolowError` for what is not a module, for one that infers, and for one without
    anything to train."""
    if not isinstance(module, nn.Module):
        raise GolowError(
            f"the model is {type(module).__name__}, not a torch.nn.Module",
            "build the module first.",
        )
    require_plain_module(module, type(module).__name__)
    require_shapes(module, type(module).__name__)
    if not module.training:
        raise GolowError(
            "the module is in eval(), and a step trains it",
            "call its .train() first; layers inside it may be in eval().",
        )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise GolowError(
            "no parameter of the module requires gradients",
            "call requires_grad_() on the parameters to train.",
        )
    require_unhooked_gradients(module, type(module).__name__)


class EagerStep(NamedTuple):
    """loss: of the batch. changed: the places of inputs that the forward pass changes in place."""

    loss: float
    changed: tuple[int, ...]


@torch.no_grad()
def eager_step(
    module: nn.Module,
    loss: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    targets: Sequence[Tensor],
) -> EagerStep:
    """The loss of a batch, without what random layers drop, and what the pass changes. Module and
    batch stay as they are. Raises `GolowError` if module or loss do not take the batch, and for a
    loss that is not one number."""
    changed: set[int] = set()

    def run() -> Any:
        given = [item.clone() for item in inputs]
        before = [item._version for item in given]
        copies = {name: buffer.clone() for name, buffer in module.named_buffers()}
        with own_tensors_kept(module), _explained("the module does not run on the example"):
            output = functional_call(module, copies, tuple(given))
        changed.update(places_changed(before, given))
        return output

    with random_layers_off(module), installed(DROPOUT_CALLS):
        output = require_stateless(module, run)
    with _explained("the loss does not take the module's output and the targets"):
        found = loss(output, *targets)
    if not isinstance(found, Tensor) or found.numel() != 1 or not found.is_floating_point():
        kind = (
            f"a tensor of {list(found.shape)}"
            if isinstance(found, Tensor)
            else type(found).__name__
        )
        raise GolowError(f"the loss is {kind}, not one number", 'use reduction="mean" or "sum".')
    return EagerStep(float(found), tuple(sorted(changed)))


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except GolowError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise GolowError(
            f"{what}: {type(error).__name__}: {first}",
            "give an example that they take: example=(x, y).",
        ) from error
