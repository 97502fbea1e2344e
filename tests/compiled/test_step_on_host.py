"""`golow.compile_step` for a GPU, whose memory, streams and graphs stand on the host: trainings are
those of PyTorch. What a GPU alone can show is in test_training_step_gpu.py."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from support.direct.gpu_on_host import HostGpu
from support.direct.steps_on_host import STREAM, steps_on_host
from support.direct.training_steps import LOSS, Eager, batches, perceptron, stepped, trained
from support.models.optimizers import each_optimizer

pytestmark = pytest.mark.slow

SGD = Optimizer(learning_rate=0.05, momentum=0.9)
ADAMW = Optimizer("adamw", learning_rate=0.01)
X, Y = batches(1, (6,))[0]


@pytest.fixture(scope="module")
def gpu() -> Iterator[HostGpu]:
    with steps_on_host() as found:
        yield found


def assert_same_state(step: Any, eager: Eager, near: float = 1e-5) -> None:
    found, wanted = step.state_dict(), eager.module.state_dict()
    assert found.keys() == wanted.keys()
    for name, item in wanted.items():
        assert torch.allclose(found[name], item, rtol=1e-4, atol=near), name


@each_optimizer
def test_steps_are_those_of_pytorch(gpu: HostGpu, optimizer: Optimizer, every: int) -> None:
    module, data = perceptron(), batches(9, (6,), last=3)
    step, eager = (
        stepped(module, optimizer, data[0], every=every),
        Eager(module, optimizer, every=every),
    )
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=1e-4)
    assert_same_state(step, eager)


class Convolutions(nn.Module):
    """An input of three channels, which are padded; a norm of vectors; a layer that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3, stride=2, bias=False)
        self.norm, self.frozen, self.last = nn.BatchNorm1d(64), nn.Linear(64, 16), nn.Linear(16, 5)
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(functional.relu(self.first(x))).flatten(1)
        found: Tensor = self.last(torch.tanh(self.frozen(self.norm(y))))
        return found


@pytest.mark.parametrize("every", [1, 2])
def test_convolutions_statistics_and_a_frozen_layer(gpu: HostGpu, every: int) -> None:
    module, data = Convolutions().train(), batches(7, last=5)
    step, eager = stepped(module, ADAMW, data[0], every=every), Eager(module, ADAMW, every=every)
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=1e-4)
    assert_same_state(step, eager, 1e-4)
    other = Convolutions()
    nn.init.constant_(other.frozen.weight, 0.1)
    step.load_state_dict(other.state_dict())
    eager.module.load_state_dict(other.state_dict())
    eager.begin()
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=1e-3)
    assert torch.equal(step.state_dict()["frozen.weight"], other.frozen.weight)


class Signals(nn.Module):
    """Convolutions of lines, one of them transposed; the rows of two weights have lengths of their
    own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv1d(4, 8, 3, padding=1), weight_norm(nn.Conv1d(8, 6, 3))
        self.up = weight_norm(nn.ConvTranspose1d(6, 4, 4, stride=2))
        self.last = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.up(torch.tanh(self.second(torch.tanh(self.first(x))))))
        found: Tensor = self.last(y.mean(2))
        return found


@pytest.mark.parametrize(("precision", "every", "near"), [("ieee", 2, 1e-4), ("bf16", 1, 0.02)])
def test_signals_and_normalised_weights(
    gpu: HostGpu, precision: str, every: int, near: float
) -> None:
    """Weights of lines are stored as convolutions read them; a state has them in PyTorch's
    order."""
    module, data = Signals().train(), batches(4, (4, 9))
    step = stepped(module, SGD, data[0], every=every, precision=precision)
    eager = Eager(module, SGD, every=every)
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=near)
    assert_same_state(step, eager, near)


@pytest.mark.parametrize("clip", [None, 0.1])
def test_groups_decay_and_learn_apart(gpu: HostGpu, clip: float | None) -> None:
    def optimizer(module: nn.Module) -> torch.optim.Optimizer:
        first, last = module[0], module[2]  # type: ignore[index]
        groups = [
            {"params": [first.weight, last.weight], "weight_decay": 0.5},
            {"params": [last.bias], "lr": 0.005},
        ]
        return torch.optim.AdamW(groups, lr=0.02, weight_decay=0.0)

    module, data = perceptron(), batches(8, (6,))
    eager = Eager(module, optimizer, clip=clip)
    eager.module[0].bias.requires_grad_(False)  # type: ignore[index]
    step = stepped(module, optimizer(module), data[0], clip=clip)
    assert step.learning_rate == (0.02, 0.005)
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=1e-4)
    step.learning_rate = (0.001, 0.03)
    for group, rate in zip(eager.optimizer.param_groups, (0.001, 0.03), strict=True):
        group["lr"] = rate
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=1e-4)
    assert_same_state(step, eager)
    assert torch.equal(step.state_dict()["0.bias"], module.state_dict()["0.bias"])


def test_a_run_goes_on_in_pytorch_and_back(gpu: HostGpu) -> None:
    data = batches(12, (6,), last=3)
    eager = Eager(perceptron(), lambda m: torch.optim.Adam(m.parameters(), lr=0.01))
    alone = Eager(perceptron(), lambda m: torch.optim.Adam(m.parameters(), lr=0.01))
    losses = trained(eager, data[:4])
    step = stepped(eager.module, eager.optimizer, data[0])
    losses += trained(step, data[4:8])
    eager.module.load_state_dict(step.state_dict())
    eager.optimizer.load_state_dict(step.optimizer_state())
    losses += trained(eager, data[8:])
    assert losses == pytest.approx(trained(alone, data), rel=1e-4)


def test_the_learning_rate_is_a_word_behind_the_steps_so_far(gpu: HostGpu) -> None:
    step = stepped(perceptron(), SGD, (X, Y))
    gpu.words.clear()
    step.learning_rate = 0.25
    ((_, bits, stream),) = gpu.words
    assert np.uint32(bits).view(np.float32) == np.float32(0.25)
    assert stream == STREAM


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.drop, self.last = nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.drop(self.first(x)))
        return found


def test_each_step_drops_anew_and_as_the_seed_says(gpu: HostGpu) -> None:
    still = Optimizer(learning_rate=0.0, momentum=0.9)
    one, same, other = (stepped(Dropping().train(), still, (X, Y), seed=k) for k in (3, 3, 4))
    losses = trained(one, [(X, Y)] * 20)
    assert len(set(losses)) == 20
    assert trained(same, [(X, Y)] * 20) == losses
    assert not set(trained(other, [(X, Y)] * 20)) & set(losses)
    assert np.mean(losses) == pytest.approx(float(LOSS(Dropping()(X), Y).detach()), rel=0.2)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("every", [1, 2])
def test_half_precision_is_near(gpu: HostGpu, precision: str, every: int) -> None:
    module, data = perceptron(), batches(9, (6,), last=3)
    step = stepped(module, SGD, data[0], every=every, precision=precision)
    eager = Eager(module, SGD, every=every)
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=0.02)
    assert_same_state(step, eager, 0.02)
    assert step.loss_scale == (65536.0 if precision == "fp16" else 1.0)
    step.load_state_dict(perceptron(1).state_dict())  # halves of the old ones would be wrong
    first = Eager(perceptron(1), SGD)(*data[0])
    assert float(step(*data[0])) == pytest.approx(first, rel=0.02)


def test_a_step_that_overflows_is_skipped_and_halves_the_scale(gpu: HostGpu) -> None:
    step = stepped(perceptron(), ADAMW, (X, Y), precision="fp16")
    step(X, Y)
    before, kept = step.state_dict(), step.optimizer_state()
    step(X * float("inf"), Y)
    assert step.loss_scale == 32768.0
    assert all(torch.equal(item, before[name]) for name, item in step.state_dict().items())
    after = step.optimizer_state()
    assert after["state"][0]["step"] == kept["state"][0]["step"] == 1
    step(X, Y)
    scaler = torch.amp.GradScaler("cpu")
    state = step.scaler_state()
    assert state == {"scale": 32768.0, "growth_factor": 2.0, "backoff_factor": 0.5,
                     "growth_interval": 2000, "_growth_tracker": 1}  # fmt: skip
    assert state.keys() == scaler.state_dict().keys()
    step.load_state_dict(before, kept, {**state, "scale": 1024.0})
    assert step.loss_scale == 1024.0
    with pytest.raises(GolowError, match="grows and shrinks its loss scale by GradScaler's"):
        step.load_state_dict(before, kept, {**state, "growth_interval": 10})
    with pytest.raises(GolowError, match=r"not a state dict of torch.amp.GradScaler"):
        step.load_state_dict(before, kept, {"scale": 1.0})


def test_a_scale_of_the_callers_stays(gpu: HostGpu) -> None:
    step = stepped(perceptron(), SGD, (X, Y), precision="fp16", loss_scale=256.0)
    step(X * float("inf"), Y)
    step(X, Y)
    assert step.loss_scale == 256.0
    assert step.scaler_state()["growth_factor"] == 1.0
    with pytest.raises(GolowError, match="only a loss in float16 is scaled"):
        stepped(perceptron(), SGD, (X, Y), loss_scale=256.0)


def test_gradients_of_several_steps_are_one_update(gpu: HostGpu) -> None:
    module, data = perceptron(), batches(11, (6,), last=3)
    step, eager = stepped(module, SGD, data[0], every=4), Eager(module, SGD, every=4)
    weights = []
    for x, y in data:
        assert float(step(x, y)) == pytest.approx(eager(x, y), rel=1e-5)
        weights.append(step.state_dict()["0.weight"])
    assert [torch.equal(*pair) for pair in pairwise(weights)] == [
        k not in (2, 6) for k in range(10)
    ]
    step.load_state_dict(step.state_dict())  # forgets three gradients
    eager.begin()
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=1e-4)


def test_evaluation_has_the_present_weights(gpu: HostGpu) -> None:
    module, data = perceptron(), batches(3, (6,))
    step, eager = stepped(module, ADAMW, data[0]), Eager(module, ADAMW)
    for _ in range(2):
        assert torch.allclose(step.evaluate(X), eager.module(X), atol=1e-5)
        trained(step, data)
        trained(eager, data)


def test_a_plan_that_would_hold_a_parameter_elsewhere_is_not_used(gpu: HostGpu) -> None:
    """The layouts of the first plan are what later ones are built for."""
    step = stepped(perceptron(), SGD, (X, Y))
    state = step._device._plans.state  # type: ignore[attr-defined]
    built = state._plans[0].built
    key = ("parameter", "0.weight")
    moved = built.inputs[key]._replace(layout=built.inputs[key].layout._replace(order="transposed"))
    with pytest.raises(LookupError, match="has the layout"):
        state.shared(built._replace(inputs={**built.inputs, key: moved}))


class Gated(nn.Module):
    """Two layers of one input, which are computed as one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.up, self.last = nn.Linear(6, 16), nn.Linear(6, 24), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(functional.silu(self.gate(x)) * self.up(x)[:, :16])
        return found


@pytest.mark.parametrize("every", [1, 2])
def test_joined_layers_are_trained_and_saved_apart(gpu: HostGpu, every: int) -> None:
    module, data = Gated().train(), batches(7, (6,), last=3)
    step, eager = stepped(module, ADAMW, data[0], every=every), Eager(module, ADAMW, every=every)
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=1e-4)
    assert_same_state(step, eager)
    for plans in step.plans.values():
        inputs = plans.updating.built.inputs
        pieces = {inputs["parameter", f"{name}.weight"].buffer for name in ("gate", "up")}
        assert len(pieces) == 1
    step.load_state_dict(Gated().state_dict())
    assert torch.equal(step.state_dict()["up.weight"], Gated().up.weight)
