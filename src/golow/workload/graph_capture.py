"""Captures the graph of a prepared workload and writes it into the bundle."""

from __future__ import annotations

from golow.lower.aten.translation import Captured
from golow.lower.capture.capture import capture_inference, capture_training
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.errors import GolowError
from golow.workload.bundle import Bundle
from golow.workload.prepare import Prepared
from golow.workload.printed import printed_to_stderr


@printed_to_stderr()
def capture(prepared: Prepared, said: list[str] | None = None) -> Captured:
    """The workload's graph as torch gives it, before any pass. said: gets torch's messages."""
    workload, batch = prepared.workload, prepared.batches[0]
    if prepared.loss is None:
        return capture_inference(workload.model, prepared.module, batch.inputs, said)
    return capture_training(
        workload.model, prepared.module, batch.inputs, batch.targets, prepared.loss, said
    )


def write_graph(prepared: Prepared, bundle: Bundle) -> list[str]:
    """Write the cleaned graph into the bundle, and what torch said while it captured it.

    Returns notes for the record. If the model cannot be captured, there is one, and the bundle has
    no graph.
    """
    notes = list(prepared.notes)
    said: list[str] = []
    try:
        captured = capture(prepared, said)
    except GolowError as error:
        return [*notes, f"{error.message}; levels that start from the graph are left out"]
    finally:
        bundle.capture_log = "\n".join(said)
    _require_gradients(captured, prepared)
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)
    return notes


def _require_gradients(captured: Captured, prepared: Prepared) -> None:
    """Raise `GolowError` for a training step that trains nothing."""
    trains = any(item.kind == "gradient" for item in captured.graph.outputs)
    if prepared.loss is not None and not trains:
        raise GolowError(
            f"the loss of {prepared.workload.model} depends on none of its parameters, so there is "
            f"nothing to train",
            "look for .detach() or torch.no_grad() between the parameters and the loss.",
        )
