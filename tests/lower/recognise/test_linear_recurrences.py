"""Linear recurrences: loops and scans that become one operator, their plans, and what the steps of
an unrolled loop compute at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.lower.aten.scan_calls import is_linear
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.linear import Linear
from golow.lower.operators.linear_recurrence import LinearRecurrence, LinearRecurrenceBackward
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.recognise.plain_calls import to_plain_calls
from golow.records.workload import Mode
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_graphs import lowered
from support.direct.cudnn_plans import AskedEngines
from support.direct.libraries_on_cpu import KnownEngines, LibrariesMachine
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, count, ops
from support.models.linear_recurrences import (
    Loop,
    network,
    not_linear,
    scanned,
    selective,
    shared,
)

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


@pytest.mark.parametrize("loop", [selective, shared])
@pytest.mark.parametrize("level", ["onednn", "cudnn"])
def test_a_loop_is_one_operator_and_what_reads_its_states_another(loop: Loop, level: Any) -> None:
    module, x = network(loop)
    graph = Case(module, x).lowered(level)
    assert count(graph, LinearRecurrence) == 1
    assert count(graph, MatrixProduct) + count(graph, Linear) <= 3
    assert count(graph, Concatenate) == 0


def test_a_decay_that_depends_on_the_state_stays_a_loop() -> None:
    module, x = network(not_linear)
    assert count(Case(module, x).lowered("cudnn"), LinearRecurrence) == 0


def test_a_scan_in_training_is_one_operator_each_way() -> None:
    module, x = network(scanned)
    case = Case(module, x, mode="train")
    for level in ("onednn", "cudnn"):
        graph = case.lowered(level)  # type: ignore[arg-type]
        assert (count(graph, LinearRecurrence), count(graph, LinearRecurrenceBackward)) == (1, 1)
    unfolded = case.after(to_plain_calls)
    assert not any("linear_recurrence" in op for op in ops(unfolded))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loop", "mode"),
    [(selective, "infer"), (shared, "infer"), (scanned, "infer"), (scanned, "train")],
)
def test_every_value_is_where_its_plan_says(loop: Loop, mode: Mode) -> None:
    module, x = network(loop)
    graph = lowered(module, mode, x)
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", KnownEngines()), tensors, LibrariesMachine)


def test_a_plan_has_no_step_of_the_loop() -> None:
    module, x = network(selective)
    graph = lowered(module, "infer", x)
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["bf16"], 1)
    steps = [step.operation for step in made.plan.steps if not step.once]
    assert steps.count("linear_recurrence") == 1
    assert len(steps) <= 12
    assert steps.count("copy") <= 1  # states are copied once, into their products' order and type


@pytest.mark.parametrize(
    ("combine", "linear"),
    [
        (lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), True),
        (lambda a, b: (torch.mul(b[0], a[0]), torch.add(b[1], a[1] * b[0])), True),
        (lambda a, b: (a[0] * b[0], a[0] * a[1] + b[1]), False),
        (lambda a, b: (a[0] + b[0], b[0] * a[1] + b[1]), False),
        (lambda a, b: (a[0] * b[0], torch.maximum(b[0] * a[1], b[1])), False),
        (lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1] + b[1]), False),
        (lambda a, b: a[0] * b[0], False),
    ],
)
def test_a_scan_is_linear_by_its_products_and_sums(combine: Any, linear: bool) -> None:
    assert is_linear(combine) == linear
