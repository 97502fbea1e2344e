"""A model of which no graph gets a plan runs as Dynamo recorded it, not as AOTAutograd did."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from golow.compiled.dynamo.backend_report import GraphRun
from golow.compiled.dynamo.parts import Parts
from golow.levels.direct.onednn.level import probe
from support.direct.backend_graphs import (
    CALLS,
    Written,
    assert_infers,
    assert_trains,
    rows,
)

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

pytestmark = pytest.mark.slow


def square(m: Any, x: Tensor) -> Tensor:
    found: Tensor = m.first(x)[:, :4] + 9 * torch.eye(4)
    return found


def solved(m: Any, x: Tensor) -> Tensor:
    """The level solves no equations, and the gradient solves some as well."""
    found: Tensor = torch.linalg.solve(square(m, x), m.second(x))
    return found


def inverted(m: Any, x: Tensor) -> Tensor:
    """The level has no inverse of a matrix; the gradient is made of products."""
    found: Tensor = torch.linalg.inv(square(m, x))
    return found


def test_training_is_eager_after_the_first_step() -> None:
    torch.manual_seed(0)
    forward, backward = assert_trains(Written(solved).train(), rows)
    assert (forward.plans, backward.plans) == (0, 0)
    assert forward.reasons and backward.reasons
    assert (forward.by_torch, backward.by_torch) == (CALLS, 1)


def test_inference_is_eager_after_the_first_call() -> None:
    torch.manual_seed(0)
    (graph,) = assert_infers(Written(solved).eval(), rows)
    assert (graph.plans, graph.by_torch) == (0, CALLS) and graph.reasons


def test_sizes_left_open_may_have_plans_later() -> None:
    torch.manual_seed(0)
    found = assert_infers(Written(solved).eval(), rows, dynamic=True)
    assert [graph.by_torch for graph in found] == [CALLS]


def test_a_backward_pass_keeps_its_plan() -> None:
    torch.manual_seed(0)
    forward, backward = assert_trains(Written(inverted).train(), rows)
    assert (forward.plans, forward.by_torch) == (0, CALLS)
    assert (backward.plans, backward.by_plan) == (1, CALLS - 2)


@pytest.mark.parametrize(
    ("refused", "eager"),
    [
        ({"inference": True}, True),
        ({"inference": False}, False),
        ({"forward": True}, False),  # the backward graph is yet to be seen
        ({"forward": True, "backward": True}, True),
        ({"forward": True, "backward": False}, False),
        ({"forward": False, "backward": True}, False),
        ({}, False),
    ],
)
def test_all_parts_have_to_be_refused(refused: dict[str, bool], eager: bool) -> None:
    parts = Parts()
    records = [GraphRun(kind, 1) for kind in refused]
    for record, answer in zip(records, refused.values(), strict=True):
        parts.add(record.name, record, lambda answer=answer: answer)
    run = parts.unless_refused(lambda x: ("compiled", x), lambda x: ("recorded", x))
    assert run(3) == ("recorded" if eager else "compiled", 3)
    assert [record.by_torch for record in records[:1]] == [int(eager)] * len(records[:1])
