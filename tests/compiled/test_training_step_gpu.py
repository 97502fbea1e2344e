"""`golow.compile_step` on a GPU: trainings are those of PyTorch, on the caller's stream."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import golow
from golow.levels.called.training.training_step import TrainingStep
from golow.levels.direct.cudnn.level import probe
from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from support.direct.training_steps import (
    LOSS,
    Batch,
    Curve,
    Eager,
    assert_near,
    curve_of,
    network,
    perceptron,
    stepped,
    trained,
)
from support.direct.training_steps import batches as on_host
from support.models.optimizers import ALL

if not torch.cuda.is_available() or not probe().available:
    pytest.skip(probe().missing or "torch sees no GPU", allow_module_level=True)

from golow.levels.nvidia.memory import Region

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

SGD = Optimizer(learning_rate=0.05, momentum=0.9)
STILL = Optimizer(learning_rate=0.0, momentum=0.9)
ADAMW = Optimizer("adamw", learning_rate=0.01)


def batches(number: int, shape: Sequence[int] = (3, 12, 12), last: int = 0) -> list[Batch]:
    return [(x.cuda(), y.cuda()) for x, y in on_host(number, shape, last)]


def network_there(seed: int = 0) -> nn.Module:
    return network(seed).cuda()


def perceptron_there(seed: int = 0) -> nn.Module:
    return perceptron(seed).cuda()


X, Y = batches(1, (6,))[0]


@pytest.fixture(autouse=True)
def float32() -> Iterator[None]:
    """PyTorch's convolutions without TF32, as the steps in ``ieee`` that are compared with them."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def exact(module: nn.Module, optimizer: object, example: Batch, **options: object) -> TrainingStep:
    return stepped(module, optimizer, example, precision="ieee", **options)


@pytest.mark.parametrize("optimizer", ALL, ids=str)
@pytest.mark.parametrize("every", [1, 3])
def test_fifty_steps_are_those_of_pytorch(optimizer: Optimizer, every: int) -> None:
    module, data = network_there(), batches(50, last=5)
    # At higher rates a few roundings that cross a relu's zero become another training.
    optimizer = msgspec.structs.replace(optimizer, learning_rate=optimizer.learning_rate / 5)
    step = exact(module, optimizer, data[0], every=every)
    found = Curve(trained(step, data), step.state_dict())
    eager = curve_of(Eager(module, optimizer, every=every), data)
    reference = curve_of(Eager(module, optimizer, torch.float64, every=every), data)
    assert_near(found, eager, reference)


def groups(module: nn.Module) -> list[dict[str, object]]:
    """No weight decay for biases and norms, which learn more slowly."""
    named = list(module.parameters())
    return [
        {"params": [item for item in named if item.dim() > 1]},
        {"params": [item for item in named if item.dim() == 1], "weight_decay": 0.0, "lr": 0.001},
    ]


OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "sgd": lambda module: torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9),
    "plain": lambda module: torch.optim.SGD(module.parameters(), lr=0.01),
    "adam": lambda module: torch.optim.Adam(module.parameters(), lr=0.002),
    "fused": lambda module: torch.optim.Adam(module.parameters(), lr=0.002, fused=True),
    "adamw": lambda module: torch.optim.AdamW(groups(module), lr=0.002, weight_decay=0.3),
    "rmsprop": lambda module: torch.optim.RMSprop(module.parameters(), lr=0.0005, momentum=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_goes_from_pytorch_to_a_step_and_back(name: str) -> None:
    data, make = batches(50, last=5), OPTIMIZERS[name]
    eager = Eager(network_there(), make)
    losses = trained(eager, data[:20])
    step = exact(eager.module, eager.optimizer, data[0])  # with its settings, groups and state
    losses += trained(step, data[20:40])
    eager = Eager(network_there(), make)
    eager.module.load_state_dict(step.state_dict())
    eager.optimizer.load_state_dict(step.optimizer_state())
    losses += trained(eager, data[40:])
    found = Curve(losses, eager.module.state_dict())
    alone = curve_of(Eager(network_there(), make), data)
    assert_near(found, alone, curve_of(Eager(network_there(), make, torch.float64), data))


@pytest.mark.parametrize("precision", ["default", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("every", [1, 2])
def test_other_precisions_learn_the_same(precision: str, every: int) -> None:
    module, data = network_there(), batches(24, last=5)
    step = stepped(module, SGD, data[0], precision=precision, every=every)
    eager = Eager(module, SGD, every=every)
    found, wanted = trained(step, data), trained(eager, data)
    assert found[:4] == pytest.approx(wanted[:4], rel=0.05)
    assert np.mean(found[-6:]) == pytest.approx(np.mean(wanted[-6:]), rel=0.2)
    assert all(item.dtype == eager.module.state_dict()[name].dtype
               for name, item in step.state_dict().items())  # fmt: skip


def test_a_step_that_overflows_is_skipped_and_halves_the_scale() -> None:
    step = stepped(perceptron_there(), ADAMW, (X, Y), precision="fp16")
    step(X, Y)
    before, scale = step.state_dict(), step.loss_scale
    step(X * float("inf"), Y)
    assert step.loss_scale == scale / 2
    assert all(torch.equal(item, before[name]) for name, item in step.state_dict().items())
    torch.amp.GradScaler().load_state_dict(step.scaler_state())
    fixed = stepped(perceptron_there(), SGD, (X, Y), precision="fp16", loss_scale=256.0)
    fixed(X * float("inf"), Y)
    assert fixed.loss_scale == 256.0


def test_the_module_stays_as_it_was_and_what_is_returned_is_on_the_gpu() -> None:
    module, data = network_there(), batches(4, last=3)
    before = copy.deepcopy(module)
    step = exact(module, ADAMW, data[0])
    assert all(step(x, y).device == x.device for x, y in data)
    assert step.evaluate(data[0][0]).device == data[0][0].device
    assert all(item.is_cuda for item in step.state_dict().values())
    for name, item in module.state_dict().items():
        assert torch.equal(item, before.state_dict()[name])
    assert all(part.training for part in module.modules())
    with pytest.raises(GolowError, match="input 0 is on cpu; this was compiled for cuda:0"):
        step(data[0][0].cpu(), data[0][1])


def test_evaluation_has_the_present_weights() -> None:
    module, data = network_there(), batches(6)
    step, eager = exact(module, ADAMW, data[0]), Eager(module, ADAMW)
    x = data[0][0]
    for rows in (8, 3, 8, 8):
        wanted = eager.module.eval()(x[:rows])
        assert torch.allclose(step.evaluate(x[:rows]), wanted, atol=1e-3)
        eager.module.train()
        trained(step, data)
        trained(eager, data)


def test_equal_steps_are_equal_bit_by_bit() -> None:
    module, data = network_there(), batches(8, last=5)
    one, other = (exact(module, ADAMW, data[0], every=2) for _ in range(2))
    assert trained(one, data) == trained(other, data)
    state = other.state_dict()
    assert all(torch.equal(item, state[name]) for name, item in one.state_dict().items())


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
    one, same, other = (exact(Dropping().cuda(), STILL, (X, Y), seed=seed) for seed in (3, 3, 4))
    losses = trained(one, [(X, Y)] * 20)
    assert len(set(losses)) == 20
    assert trained(same, [(X, Y)] * 20) == losses
    assert not set(trained(other, [(X, Y)] * 20)) & set(losses)


def test_frozen_layers_stay_and_a_norm_in_eval_keeps_its_statistics() -> None:
    module, data = network_there(), batches(8)
    module[0].requires_grad_(False)
    module[1].eval()
    step, eager = exact(module, SGD, data[0]), Eager(module, SGD)
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=1e-3)
    found, before = step.state_dict(), module.state_dict()
    for name in ("0.weight", "1.running_mean", "1.num_batches_tracked"):
        assert torch.equal(found[name], before[name])
    assert int(found["5.num_batches_tracked"]) == 8
    other = network_there(1).state_dict()
    step.load_state_dict(other)  # a plan reads the frozen layer anew
    eager.module.load_state_dict(other)
    eager.module[1].eval()
    assert float(step(*data[0])) == pytest.approx(eager(*data[0]), rel=1e-3)


@pytest.mark.parametrize("clip", [None, 0.1])
def test_groups_decay_and_learn_apart(clip: float | None) -> None:
    def optimizer(module: nn.Module) -> torch.optim.Optimizer:
        first, last = module[0], module[2]
        apart = [
            {"params": [first.weight, last.weight], "weight_decay": 0.5},
            {"params": [last.bias], "lr": 0.005},
        ]
        return torch.optim.AdamW(apart, lr=0.02, weight_decay=0.0)

    module, data = perceptron_there(), batches(10, (6,))
    eager = Eager(module, optimizer, clip=clip)
    eager.module[0].bias.requires_grad_(False)
    step = exact(module, optimizer(module), data[0], clip=clip)
    assert step.learning_rate == (0.02, 0.005)
    assert trained(step, data) == pytest.approx(trained(eager, data), rel=1e-4)
    found, wanted = step.state_dict(), eager.module.state_dict()
    assert all(torch.allclose(found[name], wanted[name], atol=1e-5) for name in wanted)


def test_gradients_of_several_steps_are_one_update() -> None:
    module, data = network_there(), batches(11, last=3)
    step, eager = exact(module, SGD, data[0], every=4), Eager(module, SGD, every=4)
    weights = []
    for x, y in data:
        assert float(step(x, y)) == pytest.approx(eager(x, y), rel=1e-3)
        weights.append(step.state_dict()["0.weight"])
    same = [torch.equal(*pair) for pair in pairwise(weights)]
    assert same == [place not in (2, 6) for place in range(10)]
    step.load_state_dict(step.state_dict())  # forgets three gradients
    eager.begin()
    assert trained(step, data[:4]) == pytest.approx(trained(eager, data[:4]), rel=1e-3)


def test_the_learning_rate_is_that_of_the_next_step_and_waits_for_nothing() -> None:
    module, data = perceptron_there(), batches(12, (6,))
    optimizer = Optimizer(learning_rate=0.1, momentum=0.9)
    step, eager = exact(module, optimizer, data[0]), Eager(module, optimizer)
    losses = []
    for place, (x, y) in enumerate(data):
        step.learning_rate = 0.1 / (1 + place)
        losses.append(step(x, y))  # nothing is read before all are enqueued
    wanted = []
    for place, (x, y) in enumerate(data):
        eager.optimizer.param_groups[0]["lr"] = 0.1 / (1 + place)
        wanted.append(eager(x, y))
    assert [float(loss) for loss in losses] == pytest.approx(wanted, rel=1e-4)


def test_steps_follow_one_another_in_any_streams() -> None:
    module, data = network_there(), batches(24, last=5)
    one, other = (exact(module, SGD, data[0], batch=[5]) for _ in range(2))
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    losses = []
    for place, (x, y) in enumerate(data):
        with torch.cuda.stream(streams[place % 3]):
            one.learning_rate = 0.01 * (1 + place % 2)
            losses.append(one(x, y))
    torch.cuda.synchronize()
    wanted = []
    for place, (x, y) in enumerate(data):
        other.learning_rate = 0.01 * (1 + place % 2)
        wanted.append(float(other(x, y)))
    assert [float(loss) for loss in losses] == wanted


def test_a_step_in_another_thread() -> None:
    step = exact(perceptron_there(), SGD, (X, Y))
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(float(step(X, Y))))
    thread.start()
    thread.join()
    assert found == [pytest.approx(float(LOSS(perceptron_there()(X), Y)), rel=1e-4)]


def test_inputs_that_are_freed_at_once_are_read() -> None:
    data = batches(30)
    one, other = (exact(network_there(), SGD, data[0]) for _ in range(2))
    losses = [one(x * 1.0, y.clone()) for x, y in data]
    assert [float(loss) for loss in losses] == trained(other, data)


class Words(nn.Module):
    """Tokens by name, tied weights, attention, a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(32, 50, bias=False)
        self.out.weight = self.table.weight

    def forward(self, tokens: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.out(self.layer(self.table(tokens)))
        return functional.cross_entropy(scores.flatten(0, 1), labels.flatten()), scores


def test_text_with_a_loss_of_the_module() -> None:
    module = Words().cuda().train()
    data = [{"tokens": torch.randint(50, (4, 9)).cuda(), "labels": torch.randint(50, (4, 9)).cuda()}
            for _ in range(6)]  # fmt: skip
    step = golow.compile_step(
        module, None, optimizer=ADAMW, example=(data[0],), precision="ieee", quiet=True
    )
    eager = torch.optim.AdamW(module.parameters(), lr=0.01)
    for batch in data:
        loss = module(**batch)[0]
        loss.backward()
        eager.step()
        eager.zero_grad()
        assert float(step(batch)) == pytest.approx(float(loss.detach()), rel=1e-3)


def test_it_is_captured_into_the_callers_graph() -> None:
    step, other = (exact(perceptron_there(), SGD, (X, Y)) for _ in range(2))
    x = X.clone()
    first = float(step(x, Y))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(x, Y)
    losses = [first]
    for k in range(4):
        x.copy_(X * (k + 1))
        graph.replay()
        losses.append(float(loss))
    wanted = [float(other(X, Y)), *(float(other(X * (k + 1), Y)) for k in range(4))]
    assert losses == pytest.approx(wanted, rel=1e-6)


def held() -> int:
    gc.collect()
    return sum(item.size for item in gc.get_objects() if isinstance(item, Region))


def test_a_thousand_steps_take_no_more_memory_and_closing_gives_it_back() -> None:
    before, data = held(), batches(8, last=5)
    step = exact(network_there(), Optimizer("adamw", clip=1.0), data[0], every=2)
    trained(step, data)
    step.evaluate(data[0][0])
    during, torchs = held(), torch.cuda.memory_allocated()
    for place in range(125):
        for x, y in data:
            step(x, y)
        step.learning_rate = 1e-3 / (1 + place)
    torch.cuda.synchronize()
    assert held() == during > before
    assert torch.cuda.memory_allocated() == torchs
    step.close()
    assert held() == before


def test_half_precision_weights_are_refused_and_so_are_other_places() -> None:
    with pytest.raises(GolowError, match=r"0.weight is in half precision, and a step updates"):
        exact(perceptron_there().bfloat16(), SGD, (X.bfloat16(), Y))
    with pytest.raises(GolowError, match="is on cpu; this was compiled for cuda:0"):
        exact(perceptron_there(), SGD, (X.cpu(), Y))
    with pytest.raises(GolowError, match="only a loss in float16 is scaled"):
        stepped(perceptron_there(), SGD, (X, Y), loss_scale=8.0)
