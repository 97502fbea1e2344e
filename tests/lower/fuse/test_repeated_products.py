"""Products with matrices that are repeated along some axes of the batch."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor, nn

from golow.lower.fuse.repeated_products import multiply_repeated_once
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.to_vocabulary import CANONICAL
from support.direct.cudnn_plans import assert_sound, built
from support.graphs.lowering import Case, record


class Shared(nn.Module):
    """Four heads that are multiplied by the same matrices: in order, one for each pixel, of which
    that is another order, and with many rows, for which that may take longer than copies."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        matrices = x[:, :1, :6].tanh()  # [2, 1, 6, 8]
        if self.kind == "in order":
            return x[..., :6] @ matrices
        if self.kind == "pixels":
            pixels = x[..., :6].unsqueeze(-2)  # [2, 4, 10, 1, 6]
            return (pixels @ (x[:, :1, :, :1, None] * matrices.unsqueeze(2))).squeeze(-2)
        return x[..., :6].unsqueeze(2) @ (x[:, :1, :3, :1, None] * matrices.unsqueeze(2))


@pytest.mark.parametrize(("kind", "batch"), [("in order", 2), ("pixels", 20), ("many rows", 24)])
def test_rows_of_all_heads_are_multiplied_at_once(kind: str, batch: int) -> None:
    case = Case(Shared(kind), torch.randn(2, 4, 10, 8))
    graph = case.after(*CANONICAL, multiply_repeated_once, eliminate_dead_code)
    product = record(graph, MatrixProduct)
    assert graph.values()[product.a.name].shape[0] == batch


def test_no_matrix_is_copied_for_each_head() -> None:
    made, _ = built(cast("nn.Module", Shared("pixels")), "infer", "bf16", 2, 4, 10, 8)
    assert_sound(made)
    largest = max(operand.bytes for step in made.plan.steps for operand in step.writes)
    assert largest == 2 * 20 * 6 * 8  # the matrices in bf16, once
