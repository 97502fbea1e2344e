"""A choice between an operand and something else, in the operand's own memory: where the condition
holds for all elements of a thread, nothing is read or written."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import Statement, Written, fused
from golow.levels.direct.cudnn.steps.built_plan import KernelCall
from golow.levels.direct.kernel_views import View
from support.direct.cuda_host import run
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, lowered
from support.graphs.drawn_values import drawn

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


class Seen(nn.Module):
    """Rows that see nothing become zero, as after attention."""

    def __init__(self, permuted: bool = False, rows: bool = True) -> None:
        super().__init__()
        self.layer, self.permuted = nn.Linear(8, 8), permuted
        seen = torch.arange(8)[:, None] % 3 > 0
        self.register_buffer("seen", seen if rows else seen.expand(8, 8).clone())

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if self.permuted:
            y = y.unflatten(-1, (2, 4)).transpose(0, 1)  # heads
        return torch.where(self.seen, y, 0.5)


@pytest.mark.parametrize(("permuted", "rows"), [(False, True), (True, True), (False, False)])
def test_plans_compute_what_torch_does(permuted: bool, rows: bool) -> None:
    torch.manual_seed(0)
    graph = lowered(Seen(permuted, rows), "infer", (8, 8))
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


def codes(module: nn.Module) -> list[str]:
    graph = lowered(module, "infer", (8, 8))
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["ieee"], 4)
    calls = [call for call in made.calls if isinstance(call, KernelCall)]
    return [call.kernel.code for call in calls if call.kernel.expression == "fused"]


def test_it_is_seen_in_the_code() -> None:
    for permuted in (False, True):
        assert any("continue;" in code for code in codes(Seen(permuted)))
    assert not any("continue;" in code for code in codes(Seen(rows=False)))


def test_what_is_kept_is_not_read() -> None:
    """Two of four rows are kept: their elements may be anything, NaN too, and stay."""
    rows, columns = 4, 64
    y = torch.arange(float(rows * columns)).view(rows, columns)
    condition = torch.tensor([True, False, True, False])
    views = [View("bool", (1, 0)), View("float32", (columns, 1))]
    chosen = [Statement("t0", "float32", "x0 ? x1 / 0.0f : 7.0f")]  # would be infinite if computed
    kernel = fused(chosen, views, [Written("t0", views[1])], (rows, columns), keeps=0)
    memory = y.clone().view(-1).view(torch.uint8).numpy()
    run(kernel, [condition.view(torch.uint8).numpy(), memory, memory])
    found = torch.from_numpy(memory.view(np.float32)).view(rows, columns)
    assert found[::2].equal(y[::2])
    assert (found[1::2] == 7).all()
