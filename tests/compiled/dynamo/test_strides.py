"""What a plan returns is ordered in memory as AOTAutograd recorded it. On a GPU that may not be the
order that the same graph gives on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx

from golow.compiled.dynamo.concrete_graph import concrete
from golow.compiled.dynamo.device import CPU, target_on
from golow.compiled.dynamo.plan_of_graph import PlanOfGraph
from golow.levels.direct.onednn.level import probe

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

ATEN = torch.ops.aten
SHAPE = (2, 5, 4, 6)
GIVEN = [torch.randn(2, 3, 4, 6), torch.randn(5, 3, 1, 1)]
WANTED = torch.nn.functional.conv2d(*GIVEN)


def convolution(recorded: Tensor, flat: bool = False) -> fx.GraphModule:
    """A graph that returns a convolution, recorded as such a tensor, and perhaps a view of it."""
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    arguments = (x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    y = graph.call_function(ATEN.convolution.default, arguments)
    y.meta["val"] = recorded
    views = (graph.call_function(ATEN.view.default, (y, [2, -1])),) if flat else ()
    graph.output((y, *views))
    return fx.GraphModule(torch.nn.Module(), graph)


def returned(graph: fx.GraphModule) -> list[Tensor]:
    target = target_on(CPU)
    one = concrete("a graph", "infer", graph, GIVEN, (), target)
    return list(PlanOfGraph(one, GIVEN, (), target)(GIVEN))


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_an_output_has_the_recorded_strides(order: torch.memory_format) -> None:
    recorded = torch.empty(SHAPE, device="meta", memory_format=order)
    (y,) = returned(convolution(recorded))
    assert y.stride() == recorded.stride()
    torch.testing.assert_close(y, WANTED)


def test_what_another_output_is_a_view_of_stays_as_the_view_needs_it() -> None:
    recorded = torch.empty(SHAPE, device="meta", memory_format=torch.channels_last)
    y, flat = returned(convolution(recorded, flat=True))
    assert flat.data_ptr() == y.data_ptr()
    torch.testing.assert_close(y, WANTED)
    torch.testing.assert_close(flat, WANTED.flatten(1))
