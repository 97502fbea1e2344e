"""`golow.compile_step`: trainings in the user's own process are those of PyTorch."""

from __future__ import annotations

import copy

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe
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
from support.examples import examples
from support.models.optimizers import ALL, each_optimizer

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

ADAMW = Optimizer("adamw", learning_rate=0.01)


@pytest.mark.slow
@each_optimizer
def test_fifty_steps_are_those_of_pytorch(optimizer: Optimizer, every: int) -> None:
    module, data = network(), batches(50, last=5)
    # At higher rates a few roundings that cross a relu's zero become another training.
    optimizer = msgspec.structs.replace(optimizer, learning_rate=optimizer.learning_rate / 5)
    step = stepped(module, optimizer, data[0], every=every)
    found = Curve(trained(step, data), step.state_dict())
    eager = curve_of(Eager(module, optimizer, every=every), data)
    reference = curve_of(Eager(module, optimizer, torch.float64, every=every), data)
    assert_near(found, eager, reference)


class Doubling(nn.Module):
    """Changes its input in place, which has a name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x.mul_(2)
        output: Tensor = self.layer(x)
        return output


@pytest.mark.parametrize(
    "module",
    [nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 5)), Doubling()],
    ids=["layer", "forward"],
)
def test_inputs_that_the_module_changes_stay_as_they_are(module: nn.Module) -> None:
    data = batches(6, (6,))
    before = copy.deepcopy(data)
    step = stepped(module.train(), ADAMW, data[0])
    found = Curve(trained(step, data), step.state_dict())
    reference = curve_of(Eager(module, ADAMW, torch.float64), copy.deepcopy(data))
    assert all(torch.equal(x, kept) for (x, _), (kept, _) in zip(data, before, strict=True))
    assert_near(found, curve_of(Eager(module, ADAMW), copy.deepcopy(data)), reference)


@pytest.mark.slow
def test_the_module_stays_as_it_was() -> None:
    module, data = network(), batches(4, last=3)
    before = copy.deepcopy(module)
    step = stepped(module, ADAMW, data[0])
    trained(step, data)
    step.evaluate(data[0][0])
    for name, item in module.state_dict().items():
        assert torch.equal(item, before.state_dict()[name])
    assert all(part.training for part in module.modules())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert vars(module).keys() == vars(before).keys()


def test_the_learning_rate_is_that_of_the_next_step() -> None:
    module, data = perceptron(), batches(12, (6,))
    optimizer = Optimizer(learning_rate=0.1, momentum=0.9)
    step, eager = stepped(module, optimizer, data[0]), Eager(module, optimizer)
    plans = step.plan()
    for place, (x, y) in enumerate(data):
        step.learning_rate = eager.optimizer.param_groups[0]["lr"] = 0.1 / (1 + place)
        assert float(step(x, y)) == pytest.approx(eager(x, y), rel=1e-4)
    assert step.learning_rate == 0.1 / 12
    assert step.plan() == plans


@pytest.mark.slow
def test_evaluation_has_the_present_weights() -> None:
    module, data = network(), batches(6)
    step, eager = stepped(module, ADAMW, data[0]), Eager(module, ADAMW)
    x = data[0][0]
    for rows in (8, 3, 8, 8):
        wanted = eager.module.eval()(x[:rows])
        assert torch.allclose(step.evaluate(x[:rows]), wanted, atol=1e-4)
        assert torch.equal(step.evaluate(x[:rows]), step.evaluate(x[:rows]))
        eager.module.train()
        trained(step, data)
        trained(eager, data)
    more = torch.cat([x, x])
    assert torch.allclose(step.evaluate(more)[8:], step.evaluate(x), atol=1e-5)


@pytest.mark.slow
def test_equal_steps_are_equal_bit_by_bit() -> None:
    module, data = network(), batches(8, last=5)
    one, other = (stepped(module, ADAMW, data[0], every=2) for _ in range(2))
    assert trained(one, data) == trained(other, data)
    state = other.state_dict()
    assert all(torch.equal(item, state[name]) for name, item in one.state_dict().items())


ACTIONS = st.one_of(
    st.tuples(st.just("step"), st.integers(1, 8)),
    st.tuples(st.just("rate"), st.sampled_from([0.0, 0.001, 0.02])),
    st.tuples(st.just("evaluate"), st.integers(1, 8)),
    st.tuples(st.sampled_from(["to PyTorch", "from PyTorch"]), st.just(0)),
)


@pytest.mark.slow
@examples(24)
@given(
    optimizer=st.sampled_from(ALL),
    every=st.integers(1, 3),
    actions=st.lists(ACTIONS, min_size=4, max_size=14),
)
def test_whatever_is_done_between_steps_it_stays_the_same_training(
    optimizer: Optimizer, every: int, actions: list[tuple[str, float]]
) -> None:
    module, (x, y) = perceptron(), batches(1, (6,))[0]
    step = stepped(module, optimizer, (x, y), every=every)
    eager = Eager(module, optimizer, every=every)
    for number, (action, value) in enumerate(actions):
        rows = int(value)
        if action == "step":
            some = (x + number / 10)[:rows], y[:rows]
            assert float(step(*some)) == pytest.approx(eager(*some), rel=1e-3)
        elif action == "rate":
            step.learning_rate = eager.optimizer.param_groups[0]["lr"] = value
        elif action == "evaluate":
            wanted = eager.module(x[:rows]).detach()
            assert torch.allclose(step.evaluate(x[:rows]), wanted, atol=1e-3)
        elif action == "to PyTorch":
            eager.module.load_state_dict(step.state_dict())
            eager.optimizer.load_state_dict(step.optimizer_state())
        else:
            step.load_state_dict(eager.module.state_dict(), eager.optimizer.state_dict())
            eager.begin()
