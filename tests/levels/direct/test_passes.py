"""The orders of passes of the direct levels: what they share, and what depends on the workload."""

from __future__ import annotations

import pytest

from golow.levels.direct.cudnn import passes as cudnn
from golow.levels.direct.onednn import passes as onednn
from golow.levels.direct.pass_order import ByWorkload, Order, ordered, update_parameters
from golow.lower.fuse.optimizer_updates import append_update
from golow.lower.ir.graph import Graph
from golow.lower.to_vocabulary import CANONICAL
from golow.records.workload import ModelSource, Optimizer, Precision, Workload

ORDERS = {
    "onednn, inference": onednn.INFERENCE,
    "onednn, training": onednn.TRAINING,
    "cudnn, inference": cudnn.INFERENCE,
    "cudnn, training": cudnn.TRAINING,
}


def workload(precision: Precision = "default") -> Workload:
    source = ModelSource(kind="zoo", name="mlp")
    return Workload(
        model="mlp", source=source, mode="train", batch=2, inputs=(), precision=precision,
        optimizer=Optimizer(name="adam"),
    )  # fmt: skip


def same(graph: Graph) -> Graph:
    return graph


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_the_way_to_the_vocabulary_is_that_of_all_levels(order: Order) -> None:
    """Each order spells it out; a pass that is added there must be added here."""
    first = order.index(CANONICAL[0])
    assert order[first : first + len(CANONICAL)] == CANONICAL


def test_what_depends_on_the_workload_is_made_for_it_or_left_out() -> None:
    """In the place of its entry."""
    half = ByWorkload(lambda workload: same if workload.precision == "bf16" else None)
    assert ordered((same, half, append_update), workload("bf16")) == (same, same, append_update)
    assert ordered((same, half, append_update), workload()) == (same, append_update)


def test_the_update_is_of_the_workloads_optimizer_and_has_the_name_of_its_pass() -> None:
    (update,) = ordered((update_parameters,), workload())
    assert update.__name__ == "append_update"
    assert update.keywords == {"optimizer": Optimizer(name="adam")}  # type: ignore[attr-defined]


def test_attention_stays_whole_where_a_kernel_computes_it() -> None:
    """At cudnn in 16 bits and tf32; float32 has none."""
    counts = {p: len(cudnn.passes(workload(p))) for p in ("ieee", "tf32", "bf16")}
    assert counts["tf32"] == counts["bf16"] == counts["ieee"] + 1
