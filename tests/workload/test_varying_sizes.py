"""Models whose outputs have as many elements as the values of their inputs decide are refused
before a worker starts, by operation and layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.models.model_files import refusal
from support.models.reported_modules import Plain

pytestmark = pytest.mark.usefixtures("forked")


def x() -> Tensor:
    return torch.randn(8, 12, generator=torch.Generator().manual_seed(0))


def chosen(function: Callable[..., Any]) -> nn.Module:
    return nn.Sequential(nn.Linear(12, 12), nn.Sequential(nn.ReLU(), Plain(function)))


def largest_texts(y: Tensor) -> Tensor:
    return y[: int((y.sum(1) > 3).sum())]


VARYING: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "places": (lambda y: y.nonzero(), "nonzero"),
    "chosen": (lambda y: torch.masked_select(y, y > 0.1), "masked_select"),
    "rows": (lambda y: (y, y[y.sum(1) > 3]), "indexing with a mask"),
    "values": (lambda y: torch.unique(y), "unique"),
    "a number": (largest_texts, "item"),
    "where": (lambda y: torch.where(y > 0)[0], "nonzero"),
}


@pytest.mark.parametrize("name", VARYING)
def test_an_output_whose_size_depends_on_values_is_refused(name: str) -> None:
    function, operation = VARYING[name]
    refused = refusal(chosen(function), x())
    assert "the values of the inputs decide the size of an output of Sequential" in refused.message
    assert f"by {operation} in layer 1.1: " in refused.message
    assert "\n" not in refused.message
    assert "a mask" in refused.hint


def replaced(y: Tensor) -> Tensor:
    y = y.clone()
    y[y < 0.1] = 0.0
    rows = (y.sum(1) > 3).nonzero()[:, 0]
    return y.index_add(0, rows, y[rows])


def test_sizes_within_a_model_may_depend_on_values() -> None:
    prepare(Request(chosen(replaced), x()))


def test_other_indices_are_within_their_range() -> None:
    """A table has no row for an index that no batch has."""
    ids = torch.tensor([[0, 5, 1], [1, 5, 4], [0, 2, 1], [1, 5, 4]])
    embedding = nn.Embedding(6, 4)
    prepare(Request(embedding, ids))
    refused = refusal(nn.Sequential(Plain(lambda t: t[t > 2]), embedding), ids)
    assert "by indexing with a mask in layer 0: " in refused.message
