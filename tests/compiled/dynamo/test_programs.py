"""What programs do around a compiled model: breaks, views, mutation, odd inputs, precisions,
threads. The backend gives what eager does, by a plan where there is one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.compiled.dynamo.backend_report import backend_report
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from support.direct.backend_graphs import (
    CALLS,
    Written,
    all_by_plan,
    assert_infers,
    assert_same,
    by_backend,
    graphs,
    images,
    rows,
)
from support.direct.compiled_modules import network

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

pytestmark = pytest.mark.slow


def broken(m: Any, x: Tensor) -> Tensor:
    y = m.first(x)
    torch._dynamo.graph_break()
    return m.second(y + 1)


def depending(m: Any, x: Tensor) -> Tensor:
    y = m.first(x)
    if y.sum() > 0:
        y = y * 2
    return m.second(y)


def shared(m: Any, x: Tensor) -> tuple[Tensor, ...]:
    y = m.first(x)
    return y, y.t(), y.view(-1), y[1]


def parts(m: Any, x: Tensor) -> tuple[Tensor, ...]:
    y = m.first(x)
    return y[1:3], y[2:]


def writing(m: Any, x: Tensor) -> Tensor:
    x[:, 3] = 0
    return m.first(x)


def without_gradient(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = m.first(x)
    return m.second(y)


PLANNED: dict[str, tuple[Callable[..., Any], tuple[Callable[[], Any], ...]]] = {
    "a graph break": (broken, (rows,)),
    "views of an input": (lambda m, x: (x.view(2, 2, 16), m.first(x), x, x.t(), x[1:]), (rows,)),
    "views of one result": (shared, (rows,)),
    "parts of a result that is no output": (parts, (rows,)),
    "one result twice": (lambda m, x: (m.first(x),) * 2, (rows,)),
    "weights as outputs": (lambda m, x: (m.first.weight.t(), m.first.weight, m.first(x)), (rows,)),
    "an input changed": (lambda m, x: (x.mul_(2), m.first(x))[1], (rows,)),
    "an input changed and returned": (lambda m, x: (m.first(x.relu_()), x), (rows,)),
    "a part of an input changed": (writing, (rows,)),
    "a transposed input": (lambda m, x: m.first(x), (lambda: torch.randn(16, 4).t(),)),
    "an expanded input": (lambda m, x: m.first(x), (lambda: torch.randn(1, 16).expand(4, 16),)),
    "every second element": (lambda m, x: m.first(x), (lambda: torch.randn(8, 32)[::2, ::2],)),
    "an input within another": (lambda m, x: m.first(x), (lambda: torch.randn(9, 16)[5:],)),
    "integers": (
        lambda m, i: m.first(functional.one_hot(i, 16).float()),
        (lambda: torch.randint(0, 16, (5,)),),
    ),
    "the place of the largest": (lambda m, x: (m.first(x).argmax(1), x.shape[0]), (rows,)),
    "a number of Python": (lambda m, x, k: m.first(x) * k, (rows, lambda: 3.5)),
    "a tensor of one number": (lambda m, x, k: m.first(x) * k, (rows, lambda: torch.tensor(2.5))),
    "no_grad within": (without_gradient, (rows,)),
    "vmap": (lambda m, x: torch.vmap(lambda row: m.first(row))(x), (rows,)),
    "a gradient within": (
        lambda m, x: torch.func.grad(lambda y: m.first(y).square().sum())(x),
        (rows,),
    ),
    "random numbers": (
        lambda m, x: (torch.manual_seed(0), functional.dropout(m.first(x), 0.5, training=True))[1],
        (rows,),
    ),
}


@pytest.mark.parametrize("name", PLANNED)
def test_what_plans_run(name: str) -> None:
    function, inputs = PLANNED[name]
    assert all_by_plan(assert_infers(Written(function).eval(), *inputs))


def with_autocast(m: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        y = m.first(x)
    return m.second(y.float())


def with_branches(m: Any, x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda y: m.first(y), lambda y: m.second(y), (x,))


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Callable[[], Any], ...], str]] = {
    "autocast": (with_autocast, (rows,), "autocast"),
    "double": (
        lambda m, x, k: m.first(x) + k, (rows, lambda: torch.randn(16).double()), "float64"
    ),
    "half": (lambda m, x: m.first(x.float()), (lambda: rows().bfloat16(),), "bfloat16"),
    "complex": (
        lambda m, x: torch.view_as_real(torch.fft.fft(m.first(x), n=4096)), (rows,), "fft"
    ),
    "branches": (with_branches, (rows,), "not an operation on tensors"),
    "no elements": (lambda m, x: m.first(x), (lambda: torch.randn(0, 16),), "computes nothing"),
    "nothing heavy": (lambda m, x: x.relu() + 1, (rows,), "no convolution"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_runs(name: str) -> None:
    function, inputs, why = REFUSED[name]
    found = assert_infers(Written(function).eval(), *inputs)
    assert any(why in reason for graph in found for reason in graph.reasons)
    assert not any(graph.by_plan for graph in found)


def test_a_branch_on_content() -> None:
    assert any(graph.by_plan for graph in assert_infers(Written(depending).eval(), rows))


def test_nan_on_the_first_call_is_not_what_a_plan_gives() -> None:
    """The library's relu of NaN is 0: PyTorch runs the graph from then on."""
    x = rows()
    x[0, 0] = torch.nan
    found = assert_infers(Written(lambda m, x: m.first(x).relu()).eval(), x.clone)
    assert "differs: output 0 has other infinities or NaNs" in found[0].reasons
    assert not found[0].by_plan


def test_an_error_of_the_program_is_its_own() -> None:
    """The first call reads beyond the table; later ones are as any other."""
    model = nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 4)).eval()
    with graphs() as found, torch.no_grad():
        f = by_backend(model)
        with pytest.raises(IndexError):
            f(torch.tensor([3, 10]))
        for _ in range(CALLS):
            indices = torch.randint(0, 10, (2,))
            assert_same(f(indices), model(indices))
    assert all_by_plan(found) and not found[0].reasons


def test_one_output_changed_changes_its_views() -> None:
    model = Written(lambda m, x: (lambda y: (y, y.view(-1)))(m.first(x))).eval()
    with graphs() as found, torch.no_grad():
        f = by_backend(model)
        for _ in range(CALLS):
            whole, line = f(rows())
            whole.zero_()
            assert line.abs().sum() == 0
    assert all_by_plan(found)


def test_overlapping_inputs_of_which_one_is_changed() -> None:
    model = Written(lambda m, x, y: (x.add_(1), m.first(y))[1]).eval()
    with graphs() as found, torch.no_grad():
        f = by_backend(model)
        for _ in range(CALLS):
            own = torch.randn(6, 16)
            other = own.clone()
            assert_same(f(own[:4], own[2:]), model(other[:4], other[2:]))
            assert_same(own, other)
    assert all_by_plan(found)


def test_channels_last() -> None:
    def make() -> Tensor:
        return images().to(memory_format=torch.channels_last)

    assert all_by_plan(assert_infers(nn.Conv2d(3, 8, 3), make))
    assert all_by_plan(assert_infers(network().to(memory_format=torch.channels_last), make))  # type: ignore[call-overload]


def test_inference_mode_and_no_grad_in_turn() -> None:
    model = network()
    with graphs() as found:
        f = by_backend(model)
        for call in range(2 * CALLS):
            x, inferring = images(), call % 2 == 0
            with torch.inference_mode() if inferring else torch.no_grad():
                y = f(x)
                assert_same(y, model(x))
            assert y.is_inference() is inferring
    assert all_by_plan(found)


def test_autocast_around_some_calls() -> None:
    model = Written(lambda m, x: m.first(x)).eval()
    with graphs() as found, torch.no_grad():
        f = by_backend(model)
        for call in range(2 * CALLS):
            x = rows()
            with torch.autocast("cpu", torch.bfloat16, enabled=call % 2 == 1):
                assert_same(f(x), model(x))
    assert [graph.by_plan > 0 for graph in found] == [True, False]


@pytest.mark.parametrize("dynamic", [True, None])
def test_sizes_that_change(dynamic: bool | None) -> None:
    """Plans for sixteen sizes of a graph; PyTorch for more."""
    model = network()
    with graphs() as found, torch.no_grad():
        f = by_backend(model, dynamic=dynamic)
        for _ in range(3):
            for batch in range(2, 22):
                x = images(batch)
                assert_same(f(x), model(x))
    assert sum(graph.plans for graph in found) >= 16
    assert all(graph.plans <= 16 for graph in found)
    assert sum(graph.by_plan for graph in found) >= 14


def test_more_sizes_than_plans() -> None:
    model = Written(lambda m, x: m.first(x).relu()).eval()
    with graphs() as found, torch.no_grad():
        f = by_backend(model, dynamic=True)
        for batch in range(2, 22):
            for _ in range(CALLS):
                x = torch.randn(batch, 16)
                assert_same(f(x), model(x))
    assert found[0].plans == 16 and found[0].by_plan == 32
    assert found[0].reasons == {"more than 16 sets of sizes": 4 * CALLS}


def test_threads() -> None:
    model = network()
    given = [images(64) for _ in range(4)]
    wrong = []
    with graphs() as found:
        f = by_backend(model)
        with torch.no_grad():
            wanted = [model(x) for x in given]
            f(given[0])

        def work(k: int) -> None:
            with torch.no_grad():
                wrong.extend(
                    k for _ in range(50) if not torch.allclose(f(given[k]), wanted[k], atol=1e-5)
                )

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == [] and all_by_plan(found, "inference")


def test_a_forked_process_runs_pytorch() -> None:
    model = network()
    with graphs(), torch.no_grad():
        f, x = by_backend(model), images()
        for _ in range(CALLS):
            wanted = f(x)
        graph = backend_report().graphs[-1]
        before = graph.by_torch
        child = os.fork()
        if child == 0:
            right = torch.allclose(f(x), wanted, atol=1e-5) and graph.by_torch == before + 1
            os._exit(0 if right else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_options_are_refused() -> None:
    f = by_backend(nn.Linear(4, 4), options={"depth": 1})
    with graphs(), pytest.raises(Exception, match="the backend golow has no options=") as raised:
        f(torch.randn(2, 4))
    assert isinstance(raised.value.__cause__, GolowError) or "golow" in str(raised.value)
