"""Record the inputs and outputs of each layer in a run of a module, to find the first that two runs
tell apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn

from golow.lower.capture.module_outputs import leaves_of


class Call(NamedTuple):
    """One call of a layer."""

    path: str
    given: list[Tensor]
    made: list[Tensor]


@contextmanager
def recorded(module: nn.Module) -> Iterator[list[Call]]:
    """Record the calls of all layers in the order in which they end, so that inner layers come
    before those that call them."""
    seen: list[Call] = []
    hooks = []
    for path, layer in module.named_modules():
        if path:

            def note(_: nn.Module, given: Any, named: Any, output: Any, path: str = path) -> None:
                seen.append(Call(path, _tensors((given, named)), _tensors(output)))

            hooks.append(layer.register_forward_hook(note, with_kwargs=True))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def first_difference(
    before: Sequence[Call],
    after: Sequence[Call],
    agree: Callable[[Sequence[Tensor], Sequence[Tensor]], bool],
) -> str:
    """Return the first layer whose inputs agree in both runs and whose outputs do not; empty if it
    is none, but the module's own code."""
    for one, other in zip(before, after, strict=False):
        if agree(one.given, other.given) and not agree(one.made, other.made):
            return one.path
    return ""


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf.clone() for leaf in leaves_of(tree) if isinstance(leaf, Tensor)]
