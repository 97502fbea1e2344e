"""The rule for products in float32 whose terms cancel."""

from __future__ import annotations

import numpy as np
import torch

from golow.check.rounding import FLOAT32
from golow.check.step_rule import judged
from golow.check.step_values import NOTHING, StepValue, evaluated
from golow.lower.ir.graph import Node, Ref, Value
from golow.lower.operators.matrix_product import MatrixProduct

TERMS, ROWS = 50_000, 8


def product(spoil: float = 0.0) -> float:
    """The share of the limit that a product takes whose long sums are added one term after the
    other in float32, as a library may; then moved by so much of its largest element."""
    generator = torch.Generator().manual_seed(0)
    # A slow wave: its sums rise to thousands of times each term before they cancel.
    wave = torch.sin(torch.arange(TERMS) * (2 * torch.pi / TERMS))
    first = 1 + 0.01 * torch.randn(ROWS, TERMS, generator=generator)
    second = (wave + 1e-3 * torch.randn(ROWS, TERMS, generator=generator)).T.contiguous()
    node = Node(
        name="c",
        op=MatrixProduct.op(),
        arguments=(),
        keywords={"a": Ref(name="a"), "b": Ref(name="b"), "factor": 1.0},
        outputs=(Value(name="c", shape=(ROWS, ROWS), dtype="float32"),),
    )
    given = {"a": first.double(), "b": second.double()}
    (wanted,) = evaluated(node, given)
    terms = (first[:, None, :] * second.T[None]).numpy()
    found = torch.from_numpy(np.cumsum(terms, -1, dtype=np.float32)[..., -1].copy())
    found = found + spoil * found.abs().max()
    value = StepValue("c", node, 0, found, wanted, given, NOTHING, None)
    return judged(value, FLOAT32, "float32").share


def test_sums_whose_terms_cancel_may_round_in_between() -> None:
    assert 0.05 < product() < 1.0


def test_a_wrong_product_is_found_all_the_same() -> None:
    assert product(0.1) > 1.0
