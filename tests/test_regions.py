"""Regions without gradients within a model are part of its graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lowering import Case, assert_close, ops


class Angles(nn.Module):
    """Two tables, made without gradients, as rotary embeddings are; one region within another."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    @torch.no_grad()
    def tables(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            angles = x.cumsum(1) * 0.1
        return angles.cos(), angles.sin()

    def forward(self, x: Tensor) -> Tensor:
        cosine, sine = self.tables(x)
        hidden: Tensor = self.inner(x)
        return hidden * cosine + hidden.flip(1) * sine


def test_a_region_without_gradients_is_inlined() -> None:
    case = Case(Angles(), torch.randn(3, 4))
    assert not [op for op in ops(case.graph) if "wrap" in op]
    assert_close(case.run(case.graph), {"output/0": case_output(case)}, "inlined")


def case_output(case: Case) -> Tensor:
    """What the module itself computes."""
    x = case.values["input", "0"]
    module = Angles()
    module.load_state_dict(
        {name: case.values["parameter", name] for name in ("inner.weight", "inner.bias")}
    )
    with torch.no_grad():
        found: Tensor = module.double()(x.double())
    return found
