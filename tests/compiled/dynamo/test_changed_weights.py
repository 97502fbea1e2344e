"""Weights that plans have folded and laid out: a change of any kind is in the next call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe
from support.direct.backend_graphs import CALLS, all_by_plan, assert_same, by_backend, graphs
from support.direct.compiled_modules import network

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

pytestmark = pytest.mark.slow
X = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(1))


def replaced(model: Any) -> None:
    model[0].weight = nn.Parameter(torch.randn(8, 3, 3, 3))


def swapped(model: Any) -> None:
    model[8].weight.data = torch.randn(5, 64)


def by_numpy(model: Any) -> None:
    array = model[0].weight.detach().numpy()
    array *= 2


def merged(model: Any) -> None:
    model[8].weight.data += torch.randn(5, 2) @ torch.randn(2, 64)


CHANGES: dict[str, Callable[[Any], object]] = {
    "in place": lambda m: m[0].weight.mul_(2),
    "past autograd": lambda m: m[0].weight.data.add_(0.1),
    "a merged adapter": merged,
    "by NumPy": by_numpy,
    "other memory": swapped,
    "another parameter": replaced,
    "a state dict": lambda m: m.load_state_dict(network(7).state_dict()),
    "a state dict's own tensors": lambda m: m.load_state_dict(network(8).state_dict(), assign=True),
    "running statistics": lambda m: m[1].running_mean.add_(1),
    "initialised again": lambda m: nn.init.normal_(m[4].weight),
    "another order of memory": lambda m: m.to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_a_change_is_in_the_next_call(name: str) -> None:
    model = network()
    with graphs() as found:
        f = by_backend(model)
        for _ in range(CALLS):
            assert_same(f(X), model(X))
        before = model(X)
        CHANGES[name](model)
        for _ in range(CALLS):
            assert_same(f(X), model(X))
    if name != "another order of memory":
        assert not torch.allclose(before, model(X), atol=1e-3)
    assert all_by_plan(found)


@torch.no_grad()
def test_weights_that_change_in_each_call_are_inputs() -> None:
    model = network()
    with graphs() as found:
        f = by_backend(model)
        for _ in range(12):
            model[0].weight.mul_(0.9)
            assert_same(f(X), model(X))
    assert found[0].plans == 2 and found[0].by_plan > 4
    assert any("change from call to call" in reason for reason in found[0].reasons)


@torch.no_grad()
def test_a_deep_copy_beside_the_model() -> None:
    model = network()
    with graphs() as found:
        f = by_backend(model)
        for _ in range(CALLS):
            f(X)
        g = copy.deepcopy(f)
        other = g._orig_mod  # type: ignore[attr-defined]
        other[0].weight.mul_(3)
        for _ in range(CALLS):
            assert_same(g(X), other(X))
            assert_same(f(X), model(X))
    assert all_by_plan(found)


@torch.no_grad()
@pytest.mark.parametrize(("number", "plans"), [(4, 4), (7, 5)])
def test_several_models_of_one_class(number: int, plans: int) -> None:
    """They share a graph. Each of four has a plan of its own; of seven, they are inputs."""
    models = [network(seed) for seed in range(number)]
    with graphs() as found:
        compiled = [by_backend(model) for model in models]
        for _ in range(CALLS):
            for model, f in zip(models, compiled, strict=True):
                assert_same(f(X), model(X))
    assert all_by_plan(found) and found[0].plans == plans


def test_weights_made_in_inference_mode() -> None:
    """Autograd counts no changes of theirs: they are inputs of each call."""
    with graphs() as found, torch.inference_mode():
        model = network()
        f = by_backend(model)
        for _ in range(CALLS):
            assert_same(f(X), model(X))
        model[0].weight.mul_(2)
        assert_same(f(X), model(X))
    assert all_by_plan(found)


class Adapted(nn.Module):
    """A linear layer with a low-rank adapter that is switched on, and merged."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(16, 16)
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
        self.on = self.merged = False

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        return y + self.up(self.down(x)) if self.on and not self.merged else y

    def merge(self) -> None:
        self.base.weight.data += self.up.weight @ self.down.weight
        self.merged = True


@torch.no_grad()
def test_an_adapter_that_is_switched_on_and_merged() -> None:
    model = nn.Sequential(Adapted(), nn.ReLU(), Adapted()).eval()
    x = torch.randn(4, 16)
    results = []
    with graphs() as found:
        f = by_backend(model)
        for change in (lambda layer: None, lambda layer: setattr(layer, "on", True), Adapted.merge):
            for layer in (model[0], model[2]):
                change(layer)
            for _ in range(CALLS):
                assert_same(f(x), model(x))
            results.append(f(x))
    assert not torch.allclose(results[0], results[1])
    torch.testing.assert_close(results[1], results[2])
    assert all_by_plan(found)
