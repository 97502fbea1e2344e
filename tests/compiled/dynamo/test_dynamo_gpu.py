"""The backend of torch.compile on a GPU: small models in both modes beside eager, streams, threads,
random numbers and graphs of the caller."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.compiled.dynamo.backend_report import GraphRun
from golow.levels.direct.cudnn.level import probe
from support.direct.backend_graphs import (
    CALLS,
    Written,
    all_by_plan,
    assert_same,
    by_backend,
    gradients,
    graphs,
    images,
    loss_of,
    rows,
)
from support.direct.compiled_modules import network
from support.models.many_networks import CASES
from support.models.many_operators import Attention
from support.models.rare_operators import FURTHER

if not torch.cuda.is_available() or not probe().available:
    pytest.skip(probe().missing or "torch sees no GPU", allow_module_level=True)

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

MODELS = CASES | FURTHER
NEAR = 1e-4


@pytest.fixture(autouse=True)
def float32() -> Iterator[None]:
    """Without TF32 the numbers say more; its plans are tried by a test of their own."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def there(item: Any) -> Any:
    return item.cuda() if isinstance(item, Tensor) else item


def assert_infers(model: nn.Module, *inputs: Callable[[], Any], **options: Any) -> list[GraphRun]:
    model = model.cuda().eval()
    with graphs() as found, torch.no_grad():
        f = by_backend(model, **options)
        for _ in range(CALLS):
            given = [there(make()) for make in inputs]
            other = [copy.deepcopy(item) for item in given]
            wanted = model(*other)
            assert_same(f(*given), wanted, NEAR)
            assert_same(given, other, NEAR)
    return found


def assert_trains(model: nn.Module, make: Callable[[], Tensor]) -> list[GraphRun]:
    model = model.cuda().train()
    eager = copy.deepcopy(model)
    with graphs() as found:
        f = by_backend(model)
        for seed in range(CALLS):
            x = make().cuda()
            ours, theirs = (x.clone().requires_grad_(x.is_floating_point()) for _ in range(2))
            model.zero_grad()
            eager.zero_grad()
            torch.manual_seed(seed)
            one = f(ours)
            torch.manual_seed(seed)
            other = eager(theirs)
            assert_same(one, other, NEAR)
            loss_of(one).backward()
            loss_of(other).backward()
            assert_same(gradients(model, ours), gradients(eager, theirs), NEAR)
            assert_same(list(model.buffers()), list(eager.buffers()), NEAR)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_inference(name: str) -> None:
    torch.manual_seed(0)
    case = MODELS[name]
    assert_infers(case.make(), lambda: torch.randn(case.shape))


@pytest.mark.parametrize("name", MODELS)
def test_training(name: str) -> None:
    torch.manual_seed(0)
    case = MODELS[name]
    assert_trains(case.make(), lambda: torch.randn(case.shape))


PLANNED: dict[str, Callable[[], nn.Module]] = {
    "layers": lambda: Written(lambda m, x: m.second(m.first(x).relu())),
    "views and several outputs": lambda: Written(
        lambda m, x: (m.first(x).t(), m.second(x)[:, ::2])
    ),
    "dropout": lambda: Written(lambda m, x: m.second(functional.dropout(m.first(x), 0.3))),
    "a norm of layers": lambda: nn.Sequential(nn.Linear(16, 8), nn.LayerNorm(8)),
}


@pytest.mark.parametrize("name", PLANNED)
def test_plans_run_forward_and_backward(name: str) -> None:
    torch.manual_seed(0)
    assert all_by_plan(assert_trains(PLANNED[name](), rows), "forward backward")


def test_plans_run_a_network_of_images() -> None:
    torch.manual_seed(0)
    assert all_by_plan(assert_trains(network(), images), "forward backward")
    assert all_by_plan(assert_infers(network(), images), "inference")


@pytest.mark.parametrize("causal", [False, True])
def test_plans_run_attention(causal: bool) -> None:
    torch.manual_seed(0)
    found = assert_trains(Attention(causal=causal), lambda: torch.randn(3, 7, 16))
    assert all_by_plan(found, "forward backward")


def test_plans_in_tf32() -> None:
    torch.manual_seed(0)
    model = network().cuda().eval()
    with (
        torch.backends.cudnn.flags(enabled=True, allow_tf32=True),
        graphs() as found,
        torch.no_grad(),
    ):
        f = by_backend(model)
        for _ in range(CALLS):
            x = images().cuda()
            assert torch.allclose(f(x), model(x), atol=1e-2)
    assert all_by_plan(found, "inference")


def test_training_and_evaluation_in_turn() -> None:
    model = network().cuda().train()
    eager = copy.deepcopy(model)
    with graphs() as found:
        pairs = []
        for run, of in ((by_backend(model), model), (eager, eager)):
            pairs.append((run, torch.optim.SGD(of.parameters(), lr=0.05, momentum=0.9)))
        run = pairs[0][0]
        for step in range(12):
            x, classes = images(4).cuda(), torch.randint(0, 5, (4,)).cuda()
            for each, optimizer in pairs:
                optimizer.zero_grad()
                functional.cross_entropy(each(x), classes).backward()
                optimizer.step()
            if step % 4 == 3:
                model.eval()
                eager.eval()
                with torch.no_grad():
                    for _ in range(3):
                        assert_same(run(x), eager(x), near=1e-2)
                model.train()
                eager.train()
    assert all_by_plan(found, "forward backward inference")


def test_weights_changed_behind_autograds_back_are_seen() -> None:
    model = PLANNED["layers"]().cuda().eval()
    with graphs() as found, torch.no_grad():
        f = by_backend(model)
        for _ in range(2 * CALLS):
            model.first.weight.data[3, 5] += 1.0
            x = rows().cuda()
            assert_same(f(x), model(x), NEAR)
    assert all_by_plan(found, "inference")


def test_sizes_that_change() -> None:
    model = network().cuda().eval()
    with graphs() as found, torch.no_grad():
        f = by_backend(model, dynamic=True)
        for _ in range(3):
            for batch in (2, 3, 5):
                x = images(batch).cuda()
                assert_same(f(x), model(x), NEAR)
    assert all_by_plan(found, "inference")


def test_it_runs_on_the_callers_stream() -> None:
    model = network().cuda().eval()
    streams = [torch.cuda.Stream() for _ in range(3)]
    with graphs(), torch.no_grad():
        f = by_backend(model)
        for _ in range(CALLS):
            f(images(4).cuda())
        given = [images(4).cuda() for _ in range(30)]
        torch.cuda.synchronize()
        results = []
        for place, x in enumerate(given):
            with torch.cuda.stream(streams[place % 3]):
                results.append(f(x * 1.0))
        torch.cuda.synchronize()
        for x, result in zip(given, results, strict=True):
            assert_same(result, model(x), NEAR)


def test_other_types_and_places_run_in_pytorch() -> None:
    model = PLANNED["layers"]().cuda().eval()
    with graphs() as found, torch.no_grad():
        f = by_backend(model)
        with torch.autocast("cuda", torch.bfloat16):
            x = rows().cuda()
            assert torch.allclose(f(x).float(), model(x).float(), atol=1e-1)
    assert "autocast" in " ".join(reason for graph in found for reason in graph.reasons)
    half = PLANNED["layers"]().cuda().bfloat16().eval()
    with graphs() as found, torch.no_grad():
        x = rows().cuda().bfloat16()
        assert torch.equal(by_backend(half)(x), half(x))
    assert "bfloat16" in " ".join(reason for graph in found for reason in graph.reasons)
