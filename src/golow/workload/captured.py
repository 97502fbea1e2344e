"""Captures the graph of a prepared workload and writes it into the bundle."""

from __future__ import annotations

from golow.lower.capture import capture_inference, capture_training
from golow.lower.passes import CLEAN_UP, apply
from golow.lower.translation import Captured
from golow.record import GolowError
from golow.workload.bundle import Bundle
from golow.workload.prepare import Prepared


def capture(prepared: Prepared) -> Captured:
    """The workload's graph as torch gives it, before any pass."""
    workload, batch = prepared.workload, prepared.batches[0]
    if prepared.loss is None:
        return capture_inference(workload.model, prepared.module, batch.inputs)
    return capture_training(
        workload.model, prepared.module, batch.inputs, batch.targets, prepared.loss
    )


def write_graph(prepared: Prepared, bundle: Bundle) -> list[str]:
    """Write the cleaned graph into the bundle.

    Returns notes for the record. If the model cannot be captured, there is one, and the bundle has
    no graph.
    """
    notes = list(prepared.notes)
    try:
        captured = capture(prepared)
    except GolowError as error:
        return [*notes, f"{error.message}; levels that start from the graph are left out"]
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)
    return notes
