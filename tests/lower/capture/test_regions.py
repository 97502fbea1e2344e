"""Regions within a model without gradients, or without autocast, are part of its graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop

from golow.lower.capture.capture import capture_inference
from golow.records.errors import GolowError
from support.graphs.lowering import Case, assert_close, ops


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


class InFloat32(nn.Module):
    """A product for which the model turns autocast off, as linear attention does; or on."""

    def __init__(self, enabled: bool = False) -> None:
        super().__init__()
        self.enabled = enabled

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.enabled):
            product = x.float() @ x.float().t()
        return product.relu()


def test_a_region_without_autocast_is_inlined() -> None:
    case = Case(InFloat32(), torch.randn(3, 4))
    assert not [op for op in ops(case.graph) if "wrap" in op]
    x = case.values["input", "0"].double()
    assert_close(case.run(case.graph), {"output/0": (x @ x.t()).relu()}, "inlined")


def test_a_region_that_turns_autocast_on_is_refused_by_name() -> None:
    with pytest.raises(GolowError, match="turns on autocast to bfloat16 on cpu") as caught:
        capture_inference("it", InFloat32(enabled=True), (torch.randn(3, 4),))
    assert "the precision to bf16" in caught.value.hint


class Repeats(nn.Module):
    """A loop whose end the input's content decides."""

    def forward(self, x: Tensor) -> Tensor:
        (found,) = while_loop(lambda v: v.sum() < 100, lambda v: (v * 2,), (x,))
        return found  # type: ignore[no-any-return]


@pytest.mark.slow
def test_control_flow_is_refused_by_name() -> None:
    with pytest.raises(GolowError, match="has while_loop at while_loop") as caught:
        capture_inference("it", Repeats(), (torch.rand(3, 4),))
    assert "control flow" in caught.value.hint
