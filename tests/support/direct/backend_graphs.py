"""What tests of the backend of torch.compile share: compiling with it, comparing with eager, and
what its report says of the graphs since."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from golow.compiled.dynamo.backend import golow
from golow.compiled.dynamo.backend_report import GraphRun, backend_report

CALLS = 4  # two that are compared, two of the plan alone


def by_backend(model: nn.Module, **options: Any) -> Callable[..., Any]:
    """The model, compiled by Dynamo with golow's backend."""
    found: Callable[..., Any] = torch.compile(model, backend=golow, **options)
    return found


@contextmanager
def graphs() -> Iterator[list[GraphRun]]:
    """Compile anew within the block; the list has the graphs of the block when it is over."""
    torch._dynamo.reset()
    found: list[GraphRun] = []
    number = len(backend_report().graphs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield found
    found += backend_report().graphs[number:]


def all_by_plan(found: Sequence[GraphRun], kinds: str = "") -> bool:
    """True if there are graphs, of these kinds, and plans ran all of them."""
    named = " ".join(graph.name.split()[1] for graph in found)
    return bool(found) and all(graph.by_plan > 0 for graph in found) and named == (kinds or named)


def leaves(output: Any) -> list[Any]:
    return pytree.tree_leaves(output)


def assert_same(found: Any, wanted: Any, near: float = 1e-5) -> None:
    """Each tensor has the form of the other, and its numbers but for rounding."""
    ours, theirs = leaves(found), leaves(wanted)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        if not isinstance(other, Tensor):
            assert one == other
            continue
        assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())
        torch.testing.assert_close(one, other, atol=near, rtol=1e-4, equal_nan=True)


def assert_infers(model: nn.Module, *inputs: Callable[[], Any], **options: Any) -> list[GraphRun]:
    """Call it on new inputs some times, without gradients, beside eager, which gets copies; what
    becomes of the inputs is the same, too. Return the graphs."""
    with graphs() as found, torch.no_grad():
        f = by_backend(model, **options)
        for _ in range(CALLS):
            given = [make() for make in inputs]
            other = [copy.deepcopy(item) for item in given]
            wanted = model(*other)
            assert_same(f(*given), wanted)
            assert_same(given, other)
    return found


def assert_trains(model: nn.Module, make: Callable[[], Tensor]) -> list[GraphRun]:
    """Train it and a copy for some steps: outputs, gradients of weights and inputs, and buffers.
    Return the graphs."""
    eager = copy.deepcopy(model)
    with graphs() as found:
        f = by_backend(model)
        for seed in range(CALLS):
            x = make()
            ours, theirs = (x.clone().requires_grad_(x.is_floating_point()) for _ in range(2))
            model.zero_grad()
            eager.zero_grad()
            torch.manual_seed(seed)
            one = f(ours)
            torch.manual_seed(seed)
            other = eager(theirs)
            assert_same(one, other)
            loss_of(one).backward()
            loss_of(other).backward()
            assert_same(gradients(model, ours), gradients(eager, theirs))
            assert_same(list(model.buffers()), list(eager.buffers()))
    return found


def loss_of(output: Any) -> Tensor:
    floating = [item for item in leaves(output) if item.is_floating_point()]
    return torch.stack([item.square().mean() for item in floating]).sum()


def gradients(model: nn.Module, x: Tensor) -> list[Tensor | None]:
    return [x.grad, *(parameter.grad for parameter in model.parameters())]


class Written(nn.Module):
    """Two linear layers of 16 numbers, and a function of the module and the inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.second, self.function = nn.Linear(16, 16), nn.Linear(16, 16), function

    def forward(self, *given: Any) -> Any:
        return self.function(self, *given)


def rows() -> Tensor:
    return torch.randn(4, 16)


def images(batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, 12, 12)
