"""The size of what a gradient sums, for gradients whose terms cancel.

The gradient of a bias before a batch norm is a sum over batch and positions whose exact value is
zero. What is computed is the rounding of its terms, so its size proves nothing; that of the
terms does. Autograd's node of the operation that uses a parameter gives both: called with the
absolute values of what it got, it sums without cancelling.

`watch` measures this where a gradient cancels to zero. `move` lets every gradient of a step go as
far as rounding may move such a sum, so that the optimizer shows what follows from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node

from golow.records.workload import Optimizer

CANCELLED = 2.0**-20
"""A gradient below this share of its terms has cancelled: it is smaller than eight roundings of
them in float32."""

SUMMATION = 64 * 2.0**-23
"""Error that another order of summation may cause, as a share of the terms: 64 roundings of
float32, in which every level sums in every precision."""

MOVED = "moved"
"""A file of a bundle in whose steps the reference moves the gradients, as `move` does."""

PREFIX = "summed/"
"""Before the name of a tensor: what the reference names the size of the tensor's terms."""

Uses = dict[nn.Parameter, float]


def watch(loss: Tensor) -> Uses:
    """Sizes of the gradients of this loss, filled in while its backward pass runs: root mean
    squares over a parameter's elements, of the sums of absolute terms where the terms cancel, added
    up over the operations that use the parameter.

    An operation that uses a parameter through a view of it has terms that are not seen: its
    gradient then counts with its own size.
    """
    sizes: Uses = defaultdict(float)
    for node, position, parameter in _uses(loss.grad_fn):
        node.register_hook(_measuring(node, position, parameter, sizes))
    return sizes


def added(several: Sequence[Uses]) -> Uses:
    """The sizes of gradients that are added up: those of several losses."""
    found: Uses = defaultdict(float)
    for sizes in several:
        for parameter, size in sizes.items():
            found[parameter] += size
    return found


def cancelled(sizes: Uses) -> Uses:
    """Sizes of the parameters whose gradients, computed by now, have cancelled."""
    return {
        parameter: size
        for parameter, size in sizes.items()
        if size and parameter.grad is not None and _rms(parameter.grad) <= CANCELLED * size
    }


def move(loss: Tensor, generator: torch.Generator) -> None:
    """Let the backward pass of this loss move each element of each parameter's gradient, up or down
    at random, by half of what another order of summation may cost: the rule doubles it.

    generator: on the loss's device. An operation that cannot run twice moves nothing.
    """
    for node, position, parameter in _uses(loss.grad_fn):
        node.register_hook(_moving(node, position, parameter, generator))


def of_tensors(steps: Sequence[Uses], module: nn.Module, settings: Optimizer) -> dict[str, float]:
    """The sizes of terms that an optimizer's first steps leave in the check's tensors, by `PREFIX`
    and the tensor's name: of the first step's gradients, and after the last of what is a sum of
    gradients: SGD's momentum and parameters, Adam's momentum.

    steps: the gradients that cancelled in each. settings: with the learning rate of these steps.
    """
    sgd, adam = settings.name == "sgd", settings.name in ("adam", "adamw")
    kept = settings.betas[0] if adam else settings.momentum
    added = 1 - kept if adam else 1.0
    sizes: dict[str, float] = {}
    last = len(steps) - 1
    for name, parameter in module.named_parameters():
        momentum = moved = 0.0
        for step in steps:
            momentum = kept * momentum + added * step.get(parameter, 0.0)
            moved += settings.learning_rate * momentum
        if not any(step.get(parameter) for step in steps):
            continue
        sizes[f"{PREFIX}0/gradient/{name}"] = steps[0].get(parameter, 0.0)
        if sgd or adam:
            sizes[f"{PREFIX}{last}/momentum/{name}"] = momentum
        if sgd:
            sizes[f"{PREFIX}{last}/parameter/{name}"] = moved
    return sizes


def _uses(root: Node | None) -> Iterator[tuple[Node, int, nn.Parameter]]:
    """Every node that hands a gradient to a parameter, and at which place of its results."""
    waiting, seen = [root], {root}
    while waiting:
        node = waiting.pop()
        for position, (following, _) in enumerate(node.next_functions if node else ()):
            variable = getattr(following, "variable", None)
            if node is not None and variable is not None:
                yield node, position, variable
            elif following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)


def _measuring(
    node: Node, position: int, parameter: nn.Parameter, sizes: Uses
) -> Callable[[Any, Any], None]:
    def measure(results: tuple[Tensor | None, ...], given: tuple[Tensor | None, ...]) -> None:
        result = results[position]
        if result is None:
            return
        size = _rms(result)
        # At most what the terms could be, so that nothing is computed again for most gradients.
        terms = max((_rms(t) * t.numel() for t in given if t is not None), default=0.0)
        if size <= CANCELLED * terms / max(1, result.numel()):
            sums = _absolute(node, position, parameter, given)
            size = max(size, 0.0 if sums is None else _rms(sums))
        sizes[parameter] += size

    return measure


def _moving(
    node: Node, position: int, parameter: nn.Parameter, generator: torch.Generator
) -> Callable[[Any, Any], Any]:
    def moved(results: tuple[Tensor | None, ...], given: tuple[Tensor | None, ...]) -> Any:
        result = results[position]
        sums = None if result is None else _absolute(node, position, parameter, given)
        if result is None or sums is None:
            return None
        # Not normal: a tensor of few elements must not be moved by little, by chance.
        signs = torch.randint(2, sums.shape, generator=generator, device=sums.device) * 2 - 1
        there = result.sum_to_size(parameter.shape) + SUMMATION / 2 * signs * sums
        return (*results[:position], there, *results[position + 1 :])

    return moved


def _absolute(
    node: Node, position: int, parameter: nn.Parameter, given: tuple[Tensor | None, ...]
) -> Tensor | None:
    """The sums of absolute terms, in the parameter's shape; None if the node cannot run twice, for
    example for lack of memory."""
    if isinstance(node, BackwardCFunction):  # the model's own code is not run again
        return None
    call: Callable[..., Any] = node  # type: ignore[assignment]
    with suppress(RuntimeError):
        found = call(*(None if tensor is None else tensor.abs() for tensor in given))
        sums: Tensor = (found[position] if isinstance(found, tuple) else found).abs()
        # The engine, not the node, sums over the dimensions in which a parameter was broadcast.
        return sums.sum_to_size(parameter.shape)
    return None


def _rms(tensor: Tensor) -> float:
    sizes = tensor.abs() if tensor.is_complex() else tensor
    return float(sizes.square().mean().sqrt()) if tensor.numel() else 0.0
