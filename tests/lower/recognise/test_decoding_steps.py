"""A decoding step in the manner of Llama becomes five operators a layer, which compute what the
module does; and nothing else is taken for them."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from golow.levels.direct.cudnn.passes import passes
from golow.lower.capture.capture import capture_step
from golow.lower.fuse import row_products
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.verify import interpret
from golow.lower.operators.cache_update import CacheUpdate
from golow.lower.operators.linear import Linear
from golow.lower.operators.rms_norm import RmsNorm
from golow.lower.operators.row_product import RowProduct
from golow.lower.operators.step_attention import StepAttention
from golow.records.workload import Workload
from support.direct.cudnn_plans import lowered as lowered_network
from support.graphs.lowering import count, records
from support.models.rotating_steps import SMALL, RotatingStep, Turn

LAYERS = SMALL.layers


@pytest.fixture(autouse=True)
def every_weight_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_products, "LEAST_WEIGHT", 1)


def lowered(step: RotatingStep, tokens: int = 1, batch: int = 1) -> Graph:
    sample = torch.zeros(batch, tokens, dtype=torch.int64), torch.tensor(4)
    graph = capture_step("step", step, sample).graph
    workload = cast(Workload, SimpleNamespace(mode="infer", precision="ieee"))
    for run in (*CLEAN_UP, *passes(workload)):
        graph = run(graph)
    return graph


def computed(
    graph: Graph, step: RotatingStep, tokens: torch.Tensor, position: int
) -> dict[str, Any]:
    state = step.state_dict()
    inputs = {"0": tokens, "1": torch.tensor(position)}
    given = {
        item.value.name: inputs[item.target] if item.kind == "input" else state[item.target].clone()
        for item in graph.inputs
    }
    return interpret(graph, given)


@pytest.mark.parametrize("turn", ["halves", "backwards", "none"])
def test_five_operators_a_layer_compute_what_the_module_does(turn: Turn) -> None:
    torch.manual_seed(0)
    step = RotatingStep(turn=turn).double()
    for buffer in (layer.get_buffer(name) for layer in step.layers for name in ("keys", "values")):
        buffer.normal_()
    graph = lowered(copy.deepcopy(step).float())
    assert count(graph, StepAttention) == LAYERS
    assert count(graph, RowProduct) == 4 * LAYERS + 1
    assert [count(graph, kind) for kind in (Linear, RmsNorm, CacheUpdate)] == [0, 0, 0]
    turned = [item.cosine is not None for item in records(graph, StepAttention)]
    assert turned == LAYERS * [turn == "halves"]
    gated = [item.gated for item in records(graph, RowProduct)]
    assert gated == [*LAYERS * [False, False, True, False], False]
    tokens = torch.randint(SMALL.vocabulary, (1, 1))
    found = computed(graph, step, tokens, 7)
    logits = step(tokens, torch.tensor(7))
    torch.testing.assert_close(found["output/0"], logits, rtol=1e-6, atol=1e-6)
    for name, buffer in step.named_buffers():
        if name != "frequencies":
            torch.testing.assert_close(found[f"buffer/{name}"], buffer, rtol=1e-6, atol=1e-6)


def test_several_new_tokens_keep_their_attention() -> None:
    graph = lowered(RotatingStep(), tokens=3)
    assert count(graph, StepAttention) == 0
    assert count(graph, RowProduct) == 4 * LAYERS + 1
    graph = lowered(RotatingStep(), tokens=row_products.MOST_ROWS + 1)
    assert count(graph, RowProduct) == 1  # of the last token alone


def test_small_weights_stay_with_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_products, "LEAST_WEIGHT", 1 << 19)
    graph = lowered(RotatingStep())
    assert count(graph, RowProduct) == 0
    assert count(graph, StepAttention) == LAYERS


def test_a_norm_that_others_read_stays() -> None:
    class Shared(RotatingStep):
        def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
            x = self.norm(self.words(tokens))[:, -1]
            return super().forward(tokens, position) + self.head(x) + x[:, :40].sin()

    graph = lowered(Shared())
    assert count(graph, RmsNorm) == 1
    assert count(graph, RowProduct) == 4 * LAYERS + 2


def test_other_networks_keep_the_librarys_products() -> None:
    graph = lowered_network(nn.Linear(64, 64), "infer", (1, 64))
    assert (count(graph, RowProduct), count(graph, Linear)) == (0, 1)
