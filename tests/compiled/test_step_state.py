"""Checkpoints of `golow.compile_step`: PyTorch's own state dicts, in both directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from support.direct.training_steps import (
    Curve,
    Eager,
    assert_near,
    batches,
    curve_of,
    network,
    perceptron,
    stepped,
    trained,
)

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

SGD = Optimizer(learning_rate=0.01, momentum=0.9)
ADAM = Optimizer("adam", learning_rate=0.002)
X, Y = batches(1, (6,))[0]


def groups(module: nn.Module) -> list[dict[str, Any]]:
    """No weight decay for biases and norms."""
    named = list(module.named_parameters())
    return [
        {"params": [item for _, item in named if item.dim() > 1]},
        {"params": [item for _, item in named if item.dim() == 1], "weight_decay": 0.0},
    ]


OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "sgd": lambda module: torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9),
    "plain": lambda module: torch.optim.SGD(module.parameters(), lr=0.01),
    "adam": lambda module: torch.optim.Adam(module.parameters(), lr=0.002),
    "adamw": lambda module: torch.optim.AdamW(groups(module), lr=0.002, weight_decay=0.3),
    "rmsprop": lambda module: torch.optim.RMSprop(module.parameters(), lr=0.0005, momentum=0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_goes_from_pytorch_to_a_step_and_back(name: str) -> None:
    data, make = batches(50, last=5), OPTIMIZERS[name]
    eager = Eager(network(), make)
    losses = trained(eager, data[:20])
    step = stepped(eager.module, eager.optimizer, data[0])  # with its settings, groups and state
    losses += trained(step, data[20:40])
    eager = Eager(network(), make)
    eager.module.load_state_dict(step.state_dict())
    eager.optimizer.load_state_dict(step.optimizer_state())
    losses += trained(eager, data[40:])
    found = Curve(losses, eager.module.state_dict())
    alone = curve_of(Eager(network(), make), data)
    assert_near(found, alone, curve_of(Eager(network(), make, torch.float64), data))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [SGD, ADAM])
def test_another_step_goes_on_bit_by_bit(optimizer: Optimizer) -> None:
    data = batches(12, (6,))
    one, other = (stepped(perceptron(seed), optimizer, data[0]) for seed in range(2))
    trained(one, data[:6])
    one.learning_rate = 0.003
    other.load_state_dict(one.state_dict(), one.optimizer_state())
    assert other.learning_rate == 0.003
    assert trained(one, data[6:]) == trained(other, data[6:])


def test_weights_alone_leave_the_optimizer_as_it_is() -> None:
    step, start = stepped(perceptron(), ADAM, (X, Y)), perceptron(1).state_dict()
    step(X, Y)
    before = step.optimizer_state()
    step.load_state_dict(start)
    assert all(torch.equal(item, start[name]) for name, item in step.state_dict().items())
    after = step.optimizer_state()
    assert after["param_groups"] == before["param_groups"]
    for index, entry in before["state"].items():
        assert all(torch.equal(item, after["state"][index][key]) for key, item in entry.items())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizers_state_has_the_form_of_pytorchs(name: str) -> None:
    eager = Eager(perceptron(), OPTIMIZERS[name])
    step = stepped(eager.module, eager.optimizer, (X, Y))
    assert step.optimizer_state() == eager.optimizer.state_dict()  # there is none yet
    for _ in range(2):
        step(X, Y)
        eager(X, Y)
    found, wanted = step.optimizer_state(), eager.optimizer.state_dict()
    assert found["param_groups"] == wanted["param_groups"]
    assert found["state"].keys() == wanted["state"].keys()
    for index, entry in wanted["state"].items():
        assert found["state"][index].keys() == entry.keys()
        for key, item in entry.items():
            mine = found["state"][index][key]
            assert (mine.shape, mine.dtype) == (item.shape, item.dtype)
            assert torch.allclose(mine, item, rtol=1e-4, atol=1e-7)


class Tied(nn.Module):
    """A weight of two names, a layer that nothing reads, and a buffer that is only kept."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
        self.out.weight = self.table.weight
        self.unused = nn.Linear(3, 2)
        self.note: Tensor
        self.register_buffer("note", torch.arange(3.0))

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.out(functional.gelu(self.table(tokens)))
        return found.transpose(1, 2)


@pytest.mark.slow
def test_tied_and_unused_weights_are_in_the_state_dict() -> None:
    torch.manual_seed(0)
    module = Tied().train()
    data = [(torch.randint(11, (4, 3)), torch.randint(11, (4, 3))) for _ in range(6)]
    step, eager = stepped(module, ADAM, data[0]), Eager(module, ADAM)
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=1e-5)
    found, wanted = step.state_dict(), eager.module.state_dict()
    assert list(found) == list(wanted)
    assert all(torch.allclose(found[name], wanted[name], atol=1e-5) for name in wanted)
    eager.optimizer.load_state_dict(step.optimizer_state())
    other = {name: item + 1 for name, item in wanted.items()}
    step.load_state_dict(other)
    assert all(torch.equal(item, other[name]) for name, item in step.state_dict().items())


class WithExtraState(nn.Linear):
    """Beside its tensors it saves a number."""

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 3}

    def set_extra_state(self, state: dict[str, int]) -> None:
        assert state == {"version": 3}


def test_what_is_no_tensor_stays_in_the_state_dict() -> None:
    module = nn.Sequential(WithExtraState(6, 5)).train()
    step = stepped(module, ADAM, (X, Y))
    step(X, Y)
    state = step.state_dict()
    assert state.keys() == module.state_dict().keys()
    module.load_state_dict(state)
    step.load_state_dict(module.state_dict())


def test_state_dicts_are_copies() -> None:
    step = stepped(perceptron(), ADAM, (X, Y))
    step(X, Y)
    weights, kept = step.state_dict(), step.optimizer_state()
    first, momentum = weights["0.weight"].clone(), kept["state"][0]["exp_avg"].clone()
    step(X, Y)
    assert torch.equal(weights["0.weight"], first)
    assert torch.equal(kept["state"][0]["exp_avg"], momentum)


def of_adam(**changes: Any) -> dict[str, Any]:
    module = perceptron()
    given = {"lr": 0.002, **changes}
    optimizer = torch.optim.Adam(module.parameters(), **given)
    functional.cross_entropy(module(X), Y).backward()
    optimizer.step()
    return optimizer.state_dict()


def in_groups_of(state: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**state, "param_groups": [{**group, **changes} for group in state["param_groups"]]}


def with_fewer() -> dict[str, Any]:
    state = of_adam()
    state["state"][1]["step"] = torch.tensor(7.0)
    return state


def of_another_shape() -> dict[str, Any]:
    state = of_adam()
    state["state"][1]["exp_avg"] = torch.zeros(3)
    return state


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: of_adam(betas=(0.8, 0.999)), r"betas \(0.8, 0.999\), .* with \(0.9, 0.999\)"),
        (lambda: of_adam(weight_decay=0.1), "weight decay 0.1, and this was compiled with 0"),
        (lambda: of_adam(amsgrad=True), "onednn has no amsgrad"),
        (lambda: Eager(perceptron(), OPTIMIZERS["sgd"]).optimizer.state_dict(), "different kind"),
        (lambda: Eager(perceptron(), OPTIMIZERS["adamw"]).optimizer.state_dict(), r"groups of \[2"),
        (lambda: {"state": {}}, "not a state dict of an optimizer of torch.optim"),
        (lambda: 7, "not a state dict of an optimizer of torch.optim"),
        (lambda: {**of_adam(), "state": 7}, "not a state dict of an optimizer of torch.optim"),
        (lambda: {**of_adam(), "state": {0: 7}}, "not a state dict of an optimizer of torch.optim"),
        (lambda: {**of_adam(), "state": {0: {"step": "x"}}}, "a step is 'x'"),
        (
            lambda: {"param_groups": of_adam()["param_groups"]},
            "not a state dict of an optimizer of torch.optim",
        ),
        (
            lambda: {**of_adam(), "param_groups": []},
            "not a state dict of an optimizer of torch.optim",
        ),
        (lambda: in_groups_of(of_adam(), lr=float("nan")), "rate of nan is not finite"),
        (
            lambda: in_groups_of(of_adam(), lr="fast"),
            "not a state dict of an optimizer of torch.optim",
        ),
        (with_fewer, "has counted 7 steps for 0.bias and 1 for 0.weight"),
        (of_another_shape, r"exp_avg of 0.bias is \[3\] .* the parameter is \[16\]"),
    ],
)
def test_the_state_of_another_optimizer_is_refused_and_nothing_changes(
    make: Callable[[], Any], words: str
) -> None:
    step = stepped(perceptron(), ADAM, (X, Y))
    step(X, Y)
    before = step.state_dict()
    with pytest.raises(GolowError, match=words):
        step.load_state_dict(perceptron(1).state_dict(), make())
    with pytest.raises(GolowError, match="does not fit this module"):
        step.load_state_dict({**before, "more": X}, of_adam())
    assert all(torch.equal(item, before[name]) for name, item in step.state_dict().items())
