"""What a training has beside its loss and its optimizer: dropout, frozen layers, groups of
parameters, accumulation, losses and batches of any form."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import golow
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from support.direct.training_steps import (
    LOSS,
    Eager,
    Loss,
    batches,
    network,
    perceptron,
    stepped,
    trained,
)

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

SGD = Optimizer(learning_rate=0.05, momentum=0.9)
STILL = Optimizer(learning_rate=0.0, momentum=0.9)
X, Y = batches(1, (6,))[0]


class Dropping(nn.Module):
    """Dropout as a layer and as a function."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.drop, self.last = nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(functional.dropout(self.drop(self.first(x)), 0.2, self.training))
        return y


def test_each_step_drops_anew_and_as_the_seed_says() -> None:
    one, same, other = (stepped(Dropping(), STILL, (X, Y), seed=seed) for seed in (3, 3, 4))
    losses = trained(one, [(X, Y)] * 20)
    assert len(set(losses)) == 20
    assert trained(same, [(X, Y)] * 20) == losses
    assert not set(trained(other, [(X, Y)] * 20)) & set(losses)


def test_dropout_is_off_in_evaluation_and_right_on_average() -> None:
    module = Dropping()
    step = stepped(module, STILL, (X, Y))
    assert torch.allclose(step.evaluate(X), module.eval()(X), atol=1e-5)
    module.train()
    torch.manual_seed(0)
    wanted = np.mean([float(LOSS(module(X), Y).detach()) for _ in range(400)])
    assert np.mean(trained(step, [(X, Y)] * 400)) == pytest.approx(wanted, rel=0.03)


@pytest.mark.slow
def test_frozen_layers_stay_and_a_norm_in_eval_keeps_its_statistics() -> None:
    module, data = network(), batches(8)
    module[0].requires_grad_(False)
    module[1].eval()
    step, eager = stepped(module, SGD, data[0]), Eager(module, SGD)
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=1e-4)
    found, before = step.state_dict(), module.state_dict()
    for name in ("0.weight", "1.running_mean", "1.num_batches_tracked"):
        assert torch.equal(found[name], before[name])
    for name in ("1.weight", "5.running_mean", "9.weight"):
        assert not torch.equal(found[name], before[name])
    assert int(found["5.num_batches_tracked"]) == 8
    eager.optimizer.load_state_dict(step.optimizer_state())  # without the frozen one


@pytest.mark.slow
@pytest.mark.parametrize("clip", [None, 0.1])
def test_groups_may_decay_apart_and_parameters_may_be_left_out(clip: float | None) -> None:
    def optimizer(module: nn.Module) -> torch.optim.Optimizer:
        first, last = module[0], module[2]  # type: ignore[index]
        groups = [
            {"params": [first.weight, last.weight], "weight_decay": 0.5},
            {"params": [last.bias]},
        ]
        return torch.optim.AdamW(groups, lr=0.02, weight_decay=0.0)

    module, data = perceptron(), batches(10, (6,))
    eager = Eager(module, optimizer, clip=clip)
    eager.module[0].bias.requires_grad_(False)  # type: ignore[index]
    step = stepped(module, optimizer(module), data[0], clip=clip)
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=1e-4)
    found, wanted = step.state_dict(), eager.module.state_dict()
    assert all(torch.allclose(found[name], wanted[name], atol=1e-5) for name in wanted)
    assert torch.equal(found["0.bias"], module.state_dict()["0.bias"])
    assert not torch.allclose(found["2.weight"], module.state_dict()["2.weight"], atol=0.01)


IN_GROUPS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.02, momentum=0.9),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.02),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=0.002),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_GROUPS)
def test_groups_have_learning_rates_of_their_own(name: str) -> None:
    def optimizer(module: nn.Module) -> torch.optim.Optimizer:
        first, last = module[0], module[2]  # type: ignore[index]
        groups = [{"params": first.parameters()}, {"params": last.parameters(), "lr": 0.005}]
        return IN_GROUPS[name](groups)

    module, data = perceptron(), batches(9, (6,), last=3)
    step, eager = stepped(module, optimizer(module), data[0]), Eager(module, optimizer)
    assert step.learning_rate == (0.002 if name == "rmsprop" else 0.02, 0.005)
    for rates in ((0.01, 0.003), (0.0, 0.02), 0.004):
        step.learning_rate = rates
        both = rates if isinstance(rates, tuple) else (rates, rates)
        for group, rate in zip(eager.optimizer.param_groups, both, strict=True):
            group["lr"] = rate
        assert trained(step, data) == pytest.approx(trained(eager, data), rel=1e-4)
    found, wanted = step.state_dict(), eager.module.state_dict()
    assert all(torch.allclose(found[name], wanted[name], atol=1e-5) for name in wanted)
    assert [group["lr"] for group in step.optimizer_state()["param_groups"]] == [0.004, 0.004]
    with pytest.raises(GolowError, match="3 learning rates were given, and the optimizer has 2"):
        step.learning_rate = (0.1, 0.1, 0.1)


@pytest.mark.slow
def test_gradients_of_several_steps_are_one_update() -> None:
    module, data = perceptron(), batches(11, (6,), last=3)
    step, eager = stepped(module, SGD, data[0], every=4), Eager(module, SGD, every=4)
    weights = []
    for x, y in data:
        assert float(step(x, y)) == pytest.approx(eager(x, y), rel=1e-5)
        weights.append(step.state_dict()["0.weight"])
    assert [torch.equal(*pair) for pair in pairwise(weights)] == [
        place not in (2, 6) for place in range(10)
    ]
    assert torch.allclose(weights[-1], eager.module.state_dict()["0.weight"], atol=1e-6)
    assert step.optimizer_state()["state"].keys() == {0, 1, 2, 3}


def test_loading_begins_a_new_sum() -> None:
    data = batches(6, (6,))
    one, other = (stepped(perceptron(), SGD, data[0], every=2) for _ in range(2))
    one(*data[5])
    one.load_state_dict(one.state_dict())
    assert trained(one, data) == trained(other, data)


LOSSES: dict[str, tuple[Loss, Tensor]] = {
    "weighted": (nn.CrossEntropyLoss(weight=torch.arange(1.0, 6.0)), Y),
    "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.1), Y),
    "summed": (nn.CrossEntropyLoss(reduction="sum"), Y),
    "squares": (functional.mse_loss, torch.linspace(-1, 1, 40).view(8, 5)),
    "huber": (nn.HuberLoss(), torch.linspace(-3, 3, 40).view(8, 5)),
    "binary": (nn.BCEWithLogitsLoss(), torch.linspace(0, 1, 40).view(8, 5)),
    "own": (lambda output, target: (output - target).abs().mean() + output.exp().mean(), X[:, :5]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_any_kind(name: str) -> None:
    loss, target = LOSSES[name]
    slow = Optimizer(learning_rate=0.005, momentum=0.9)
    step = stepped(perceptron(), slow, (X, target), loss)
    eager = Eager(perceptron(), slow, loss=loss)
    wanted = trained(eager, [(X, target)] * 5)
    assert trained(step, [(X, target)] * 5) == pytest.approx(wanted, rel=1e-4)
    assert wanted[0] != pytest.approx(wanted[-1], rel=1e-3)


class Several(nn.Module):
    """Inputs by name; it returns its loss first, if it gets labels."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right = nn.Linear(6, 5), nn.Linear(4, 5)

    def forward(self, a: Tensor, b: Tensor, labels: Tensor | None = None) -> object:
        scores = self.left(a) + torch.tanh(self.right(b))
        return scores if labels is None else (functional.cross_entropy(scores, labels), scores)


@pytest.mark.slow
def test_inputs_in_a_tuple_and_by_name_and_a_loss_of_the_module() -> None:
    b = torch.randn(1, 4)
    module = Several().train()
    by_name = {"a": X, "b": b, "labels": Y}
    one = golow.compile_step(module, None, optimizer=SGD, example=(by_name,), quiet=True)
    other = golow.compile_step(module, LOSS, optimizer=SGD, example=((X, b), Y), quiet=True)
    losses = [float(one(by_name)) for _ in range(4)]
    assert [float(other((X, b), Y)) for _ in range(4)] == pytest.approx(losses, rel=1e-5)
    assert losses[-1] < losses[0]
    scores = one.evaluate(dict(reversed(by_name.items())))[1]
    assert torch.allclose(other.evaluate(X, b), scores, atol=1e-5)
    assert type(module) is Several
    with pytest.raises(GolowError, match="input b is missing"):
        one({"a": X, "labels": Y})
    with pytest.raises(GolowError, match="a step was given 1 inputs; this was compiled for 2"):
        other(X, Y)


@pytest.mark.slow
def test_batches_of_any_origin_and_order_are_read() -> None:
    data = batches(1)[0]
    step = stepped(network(), STILL, data, batch=[3, 8])
    x, y = data
    wanted = float(step(x, y))
    assert wanted == pytest.approx(float(LOSS(network()(x), y).detach()), rel=1e-5)
    assert float(step(x.numpy(), y.numpy())) == wanted
    assert float(step(x.contiguous(memory_format=torch.channels_last), y)) == wanted
    assert float(step(x, y.expand(2, 8).T[:, 0])) == wanted
    assert float(step(x[:3], y[:3])) != wanted
    x.mul_(2)  # other content in the same place
    y.copy_(y.flip(0))
    other = float(LOSS(network()(x), y).detach())
    assert float(step(x, y)) == pytest.approx(other, rel=1e-5) != wanted


@pytest.mark.slow
def test_new_sizes_come_in_any_mode_of_pytorchs() -> None:
    data = batches(8, (6,), last=3)
    one, other = (stepped(perceptron(), SGD, data[0]) for _ in range(2))
    with torch.inference_mode():
        found = trained(one, data)
        scores = one.evaluate(X)
    assert found == trained(other, data)
    assert torch.equal(scores, other.evaluate(X))


def test_what_became_infinite_is_forgotten_with_other_weights() -> None:
    """Also what plain SGD keeps between a gradient and its update."""
    for optimizer in (Optimizer(momentum=0.0), SGD):
        step, start = stepped(perceptron(), optimizer, (X, Y)), perceptron().state_dict()
        first = float(step(X, Y))
        kept = step.optimizer_state()
        step(X * float("inf"), Y)
        assert not torch.isfinite(step(X, Y))
        step.load_state_dict(start, kept if optimizer.momentum else None)
        assert float(step(X, Y)) == first
        assert torch.isfinite(step(X, Y))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
def test_a_thousand_steps_take_no_more_memory() -> None:
    data = batches(8, last=5)
    step = stepped(network(), Optimizer("adamw", clip=1.0), data[0], every=2)
    process = psutil.Process()

    def run(times: int) -> None:
        for place in range(times):
            trained(step, data)
            step.learning_rate = 1e-3 / (1 + place)

    run(25)
    files, memory = descriptors(), process.memory_info().rss
    run(125)
    assert descriptors() == files
    assert process.memory_info().rss - memory < 2**20


def test_one_step_at_a_time() -> None:
    step = stepped(perceptron(), SGD, (X, Y))
    found: list[str] = []

    def call() -> None:
        with pytest.raises(GolowError) as raised:
            step(X, Y)
        found.append(raised.value.message)

    with step._alone():
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert found == ["another thread is using this step"]
    step(X, Y)
    step.close()
    for use in (lambda: step(X, Y), step.state_dict, lambda: step.evaluate(X), step.memory):
        with pytest.raises(GolowError, match="the compiled step is closed"):
            use()  # type: ignore[no-untyped-call]
    assert repr(step) == "<golow: training step at onednn, closed>"
