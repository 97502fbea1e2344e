"""Where in the model the events of a trace belong, and which of the user's lines they come from."""

from __future__ import annotations

from pathlib import Path

import pytest

import golow
from golow.programs.profiling.kernels import kernel_times
from golow.programs.profiling.places import Place, Places
from golow.programs.profiling.trace import OPERATOR, Trace, read_trace
from support.records.traces import event, step, written

pytestmark = pytest.mark.usefixtures("forked")

MARK = "user_annotation"
NODE = "autograd::engine::evaluate_function: "


def numbered(name: str, number: int, start: float, end: float, lane: str = "main") -> dict:
    return event(name, "cpu_op", start, end, lane=lane, **{"Sequence number": number})


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """A step of two layers; its backward pass is on a thread of its own, as with a GPU."""
    return written(
        tmp_path,
        [
            step(0, 0, 100),
            event("golow phase forward", MARK, 0, 50),
            event("golow layer a", MARK, 0, 20),
            numbered("aten::view", 7, 1, 2),  # sees the number that comes next
            numbered("aten::linear", 7, 2, 10),
            event("golow layer a.inner", MARK, 10, 20),
            numbered("aten::relu", 8, 11, 19),
            event("golow layer b", MARK, 20, 40),
            numbered("aten::view", 9, 21, 22),
            numbered("aten::linear", 9, 22, 30),
            event("cudaLaunchKernel", "cuda_runtime", 23, 24, correlation=1),
            event("golow phase backward", MARK, 50, 90),
            numbered(f"{NODE}LinearBackward0", 9, 52, 60, "engine"),
            event("aten::mm", "cpu_op", 53, 55, lane="engine"),
            event("cudaLaunchKernel", "cuda_runtime", 54, 55, lane="engine", correlation=2),
            event(f"{NODE}torch::autograd::AccumulateGrad", "cpu_op", 60, 65, lane="engine"),
            event("aten::detach", "cpu_op", 61, 62, lane="engine"),
            numbered(f"{NODE}ReluBackward0", 8, 65, 70, "engine"),
            event("golow phase update", MARK, 90, 100),
            event("aten::add_", "cpu_op", 92, 95),
            event("gemm", "kernel", 95, 97, lane="stream", correlation=1),
            event("gemm", "kernel", 97, 99, lane="stream", correlation=2),
        ],
    )


def places(trace: Trace, name: str) -> list[Place]:
    found = Places(trace)
    return [found.of(event) for event in trace.events if event.name == name]


def test_the_backward_pass_belongs_to_the_layer_that_made_its_nodes(trace: Trace) -> None:
    assert places(trace, "aten::linear") == [Place("a", "forward"), Place("b", "forward")]
    assert places(trace, "aten::relu") == [Place("a.inner", "forward")]
    assert places(trace, "aten::mm") == [Place("b", "backward")]
    assert places(trace, f"{NODE}ReluBackward0") == [Place("a.inner", "backward")]
    assert places(trace, "aten::add_") == [Place("", "update")]


def test_an_accumulated_gradient_belongs_to_the_layer_that_computed_it(trace: Trace) -> None:
    assert places(trace, "aten::detach") == [Place("b", "backward")]


def test_a_kernel_belongs_to_where_it_was_launched(trace: Trace) -> None:
    assert places(trace, "gemm") == [Place("b", "forward"), Place("b", "backward")]
    [kernel] = kernel_times(trace)
    assert (kernel.layer, kernel.phase) == ("b", "forward")


NETWORK = """
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x):
        hidden = functional.gelu(self.first(x))
        return self.second(hidden)
"""


@pytest.mark.slow
def test_operators_know_the_lines_of_the_users_file(tmp_path: Path) -> None:
    """Also those of the backward pass; the optimizer's come from no line of the user's."""
    file = tmp_path / "net.py"
    file.write_text(NETWORK)
    result = golow.profile(
        f"{file}:Net",
        mode="train",
        input_shape=(8,),
        batch=4,
        threads=1,
        levels=["eager"],
        steps=2,
        time_limit=0.3,
        folder=tmp_path / "out",
        cache=tmp_path / "cache",
    )
    [level] = result.profiles[0].levels
    assert not level.missing
    sites = {item.name: item.sites for item in level.operators}
    first = next(n for n, line in enumerate(NETWORK.splitlines(), 1) if "gelu" in line)
    assert sites["aten::gelu"] == (f"{file}:{first}",)
    assert set(sites["aten::linear"]) == {f"{file}:{first}", f"{file}:{first + 1}"}
    assert sites["aten::gelu_backward"] == (f"{file}:{first}",)
    assert all(site.startswith(f"{file}:") for found in sites.values() for site in found)

    trace = read_trace(tmp_path / "out" / level.trace)
    found = Places(trace)
    marked = {found.of(event) for event in trace.in_steps(OPERATOR)}
    expected = {Place(name, p) for name in ("first", "second") for p in ("forward", "backward")}
    assert expected | {Place("", "update")} <= marked
