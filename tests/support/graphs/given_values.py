"""The inputs of a captured graph, from its module and a batch."""

from __future__ import annotations

from torch import Tensor, nn

from golow.lower.aten.translation import Captured


def given_values(captured: Captured, module: nn.Module, *batch: Tensor) -> dict[str, Tensor]:
    """The graph's inputs by value name, from the module's state and a batch."""
    state = {k: v.detach().clone() for k, v in module.state_dict().items()}
    batches = {("input", "0"): batch[0]} | ({("target", "0"): batch[1]} if len(batch) > 1 else {})
    found = {}
    for item in captured.graph.inputs:
        if item.kind in ("parameter", "buffer"):
            found[item.value.name] = state[item.target]
        elif item.kind == "constant":
            found[item.value.name] = captured.constants[item.target]
        else:
            found[item.value.name] = batches[item.kind, item.target]
    return found
