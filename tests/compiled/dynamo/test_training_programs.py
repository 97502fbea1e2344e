"""Programs that train a compiled model: forward and backward graphs as plans, with gradients,
running statistics and random numbers as in eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from golow.levels.direct.onednn.level import probe
from support.direct.backend_graphs import (
    CALLS,
    Written,
    all_by_plan,
    assert_same,
    assert_trains,
    by_backend,
    graphs,
    images,
    rows,
)
from support.direct.compiled_modules import network
from support.models.many_operators import Attention

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

pytestmark = pytest.mark.slow


def without_gradient(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = m.first(x)
    return m.second(y)


def test_training_at_sizes_that_change() -> None:
    model = network().train()
    eager = copy.deepcopy(model)
    with graphs() as found:
        f = by_backend(model, dynamic=True)
        for _ in range(3):
            for batch in (2, 3, 5):
                x = images(batch)
                for run, of in ((f, model), (eager, eager)):
                    of.zero_grad()
                    run(x).square().mean().backward()
                ours, theirs = ([p.grad for p in of.parameters()] for of in (model, eager))
                assert_same(ours, theirs)
                assert_same(list(model.buffers()), list(eager.buffers()))
    assert all_by_plan(found, "forward backward")


def test_training_and_evaluation_in_turn() -> None:
    model = network().train()
    eager = copy.deepcopy(model)
    with graphs() as found:
        pairs = []
        for run, of in ((by_backend(model), model), (eager, eager)):
            pairs.append((run, torch.optim.SGD(of.parameters(), lr=0.05, momentum=0.9)))
        run = pairs[0][0]
        for step in range(12):
            x, classes = images(4), torch.randint(0, 5, (4,))
            for each, optimizer in pairs:
                optimizer.zero_grad()
                functional.cross_entropy(each(x), classes).backward()
                optimizer.step()
            if step % 4 == 3:
                model.eval()
                eager.eval()
                with torch.no_grad():
                    for _ in range(3):
                        assert_same(run(x), eager(x), near=1e-3)
                model.train()
                eager.train()
    assert all_by_plan(found, "forward backward inference")


TRAINED: dict[str, Callable[[], nn.Module]] = {
    "no_grad within": lambda: Written(without_gradient),
    "attention": lambda: Attention(),
    "causal attention": lambda: Attention(causal=True),
    "dropout": lambda: Written(lambda m, x: m.second(functional.dropout(m.first(x), 0.3))),
    "dropout of channels": lambda: Written(
        lambda m, x: m.second(functional.dropout1d(m.first(x), 0.3))
    ),
    "an encoder": lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
    "checkpoint": lambda: Written(
        lambda m, x: checkpoint(
            lambda y: m.second(m.first(y).relu()).relu(), x, use_reentrant=False
        )
    ),
}


@pytest.mark.parametrize("name", TRAINED)
def test_what_plans_train(name: str) -> None:
    torch.manual_seed(0)
    found = assert_trains(TRAINED[name]().train(), lambda: torch.randn(3, 7, 16))
    assert all_by_plan([graph for graph in found if graph.name.endswith("ward")])


def test_frozen_layers_in_evaluation_with_gradients() -> None:
    model = network()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    assert all_by_plan(assert_trains(model, images), "forward backward")


def test_gradients_in_any_order_of_memory() -> None:
    model = Written(lambda m, x: m.first(x))
    eager = copy.deepcopy(model)
    gradients = (
        torch.randn(16, 4).t(), torch.ones(()).expand(4, 16), torch.randn(4, 32)[:, ::2], rows(),
        torch.randn(5, 16)[1:], rows(),
    )  # fmt: skip
    with graphs() as found:
        f = by_backend(model)
        for gradient in gradients:
            x = rows()
            for run, of in ((f, model), (eager, eager)):
                of.zero_grad()
                run(x).backward(gradient)
            assert_same(model.first.weight.grad, eager.first.weight.grad)
    assert all_by_plan(found, "forward backward")


def test_two_forward_passes_and_the_backward_pass_twice() -> None:
    model = Written(lambda m, x: m.second(m.first(x).relu()))
    eager = copy.deepcopy(model)
    with graphs() as found:
        f = by_backend(model)
        for _ in range(CALLS):
            x, y = rows(), rows()
            for run, of in ((f, model), (eager, eager)):
                of.zero_grad()
                total = (run(x) + run(y)).sum()
                total.backward(retain_graph=True)
                total.backward()
            ours, theirs = ([p.grad for p in of.parameters()] for of in (model, eager))
            assert_same(ours, theirs)
    assert all_by_plan(found, "forward backward")
