"""Graphs of Dynamo and AOTAutograd as plans of `cudnn`, whose GPU stands on the host. What a GPU
alone can show is in test_dynamo_gpu.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from golow.compiled.dynamo.concrete_graph import for_cpu
from support.direct.backend_graphs import (
    Written,
    all_by_plan,
    assert_infers,
    assert_trains,
    images,
    rows,
)
from support.direct.compiled_modules import network
from support.direct.gpu_on_host import HostGpu
from support.direct.steps_on_host import graphs_on_host
from support.models.many_networks import CASES
from support.models.many_operators import NETWORKS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[HostGpu]:
    with graphs_on_host() as found:
        yield found


def turned(m: Written, x: Tensor) -> tuple[Tensor, Tensor]:
    y = m.second(m.first(x).tanh())
    return y.t(), y[:, ::2].exp()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "layers": lambda: Written(lambda m, x: m.second(m.first(x).relu())),
    "views and several outputs": lambda: Written(turned),
    "dropout": lambda: Written(lambda m, x: m.second(functional.dropout(m.first(x), 0.3))),
    "softmax": lambda: Written(lambda m, x: m.second(m.first(x).softmax(-1))),
    "a norm": lambda: nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)),
    "a norm of layers": lambda: nn.Sequential(nn.Linear(16, 8), nn.LayerNorm(8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_training(name: str) -> None:
    torch.manual_seed(0)
    assert all_by_plan(assert_trains(MODELS[name]().train(), rows), "forward backward")


@pytest.mark.parametrize("name", [name for name in MODELS if name != "dropout"])
def test_inference(name: str) -> None:
    torch.manual_seed(0)
    assert all_by_plan(assert_infers(MODELS[name]().eval(), rows), "inference")


def test_a_network_of_images() -> None:
    """Its backward graph finds the places of maxima again, and reads them alone."""
    assert all_by_plan(assert_trains(network().train(), images), "forward backward")


@pytest.mark.parametrize("name", ["views", "layer norm of channels"])
def test_images_as_rows_of_channels(name: str) -> None:
    torch.manual_seed(0)
    case = (CASES | NETWORKS)[name]
    found = assert_trains(case.make().train(), lambda: torch.randn(case.shape))
    assert all_by_plan(found, "forward backward")


def test_weights_that_change_are_read_anew() -> None:
    model = MODELS["layers"]().eval()

    def changed() -> Tensor:
        model.first.weight.data += 0.25  # which autograd does not count
        return rows()

    assert all_by_plan(assert_infers(model, changed), "inference")


def test_a_graph_of_a_gpu_becomes_one_of_the_cpu() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    gpu = torch.device("cuda", 1)
    ones = graph.call_function(torch.ops.aten.ones.default, ([3],), {"device": gpu})
    held = graph.get_attr("held")
    both = graph.call_function(torch.ops.aten.add.Tensor, (x, ones))
    graph.output((graph.call_function(torch.ops.aten.add.Tensor, (both, held)),))
    traced = fx.GraphModule({"held": torch.ones(3)}, graph)
    (found,) = for_cpu(traced)(torch.ones(3))
    assert found.tolist() == [3.0, 3.0, 3.0]
    assert ones.kwargs["device"] == gpu  # as it was
