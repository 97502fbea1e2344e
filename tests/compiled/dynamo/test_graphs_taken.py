"""Which graphs the backend takes, how it is found, and what its report looks like."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import golow
from golow.compiled.dynamo.backend import golow as backend
from golow.compiled.dynamo.backend_report import BackendReport, GraphRun
from golow.compiled.dynamo.worth import why_left
from golow.records.errors import GolowError
from support.places import ROOT

W = torch.randn(4, 4)
X = torch.randn(2, 4)


def product(x: Tensor) -> Tensor:
    return torch.matmul(x, W)


@pytest.mark.parametrize(
    ("function", "given", "why"),
    [
        (product, X, ""),
        (lambda x: x @ W, X, ""),
        (lambda x: torch.nn.functional.linear(x, W), X, ""),
        (lambda x: torch.relu(x) + 1, X, "no convolution, product, recurrence or attention"),
        (product, X.double(), "an input is float64, not float32"),
        (product, X.bfloat16(), "an input is bfloat16, not float32"),
        (product, X.to(torch.complex64), "an input is complex64, not float32"),
        (product, X.to_sparse(), "an input is sparse_coo"),
        (product, X.to("meta"), "an input is on meta"),
        (product, X.as_subclass(type("Own", (Tensor,), {})), "an input is a tensor subclass"),
        (product, torch.arange(3), ""),
        (product, torch.tensor(0.5, dtype=torch.float64), ""),  # a float of Python
    ],
)
def test_which_graphs_are_taken(function: Callable[..., Any], given: Tensor, why: str) -> None:
    traced = fx.symbolic_trace(function)
    found = why_left(traced, [given])
    assert found.startswith(why) and bool(found) == bool(why)


def test_autocast_is_left_to_pytorch() -> None:
    traced = fx.symbolic_trace(product)
    with torch.autocast("cpu", torch.bfloat16):
        assert why_left(traced, [X]).startswith("autocast")
    assert why_left(traced, [X]) == ""


def test_it_has_no_options() -> None:
    with pytest.raises(GolowError, match="no mode="):
        backend(fx.symbolic_trace(product), [X], mode="max-autotune")


def test_the_entry_point_names_it() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    module, _, name = declared["torch_dynamo_backends"]["golow"].partition(":")
    assert (module, name) == (backend.__module__, backend.__name__)


def test_the_report_needs_no_torch() -> None:
    code = "import golow, sys; print(golow.backend_report()); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = run.stdout.splitlines()
    assert first.startswith("no graph yet") and second == "False"


def test_the_report_is_a_table() -> None:
    graph = GraphRun("0 inference", 12, plans=1, by_plan=5, by_torch=2)
    left = GraphRun("1 whole", 3)
    left.note("autocast")
    left.note("autocast")
    report = BackendReport([graph, left])
    assert repr(report) == str(report)
    head, one, other, end = str(report).splitlines()
    assert head.split() == "graph operations plans by plan by torch why in torch".split()
    assert one.split()[:6] == "0 inference 12 1 5 2".split()
    assert one.endswith("compare the first call of each plan")
    assert other.endswith("autocast (2)")
    assert end == "1 of 2 graphs have plans"
    assert report.reasons == {"autocast": 1}
    assert golow.backend_report is not None
