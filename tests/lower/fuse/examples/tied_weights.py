"""Examples of gradients of one weight that are added."""

from __future__ import annotations

from typing import Any

import torch
from msgspec.structs import replace

from golow.lower.operators.binary import Binary
from golow.lower.operators.take import AddRows, TakeBackward
from support.graphs.written_graphs import RELU, Fires, Stays, Written, add, numbers, one, ref

_GIVEN = {"g": numbers(2, 3, 4), "other": numbers(5, 4), "index": torch.tensor([[0, 4, 0]] * 2)}
_ROWS = TakeBackward(gradient=ref("g"), index=ref("index"), axis=0, size=5, skipped=4)
_ADDED = AddRows(x=ref("other"), gradient=ref("g"), index=ref("index"), axis=0, skipped=4)


def _sum(total: Binary, *returned: str, **given: Any) -> Written:
    return Written(_GIVEN | given, [one("r", _ROWS), one("s", total)], "s", *returned)


def _three() -> Written:
    """Layers that share a weight."""
    given = {"g": numbers(3, 4), "other": numbers(5, 4), "index": torch.tensor([0, 4, 0])}
    rows = replace(_ROWS, skipped=-1)
    nodes = [one("r", rows), one("s", add("other", "r")), one("t", rows), one("u", add("s", "t"))]
    return Written(given, nodes, "u")


EXAMPLES = {
    "TIED": (
        Fires(_sum(add("r", "other")), [_ADDED]),
        Fires(_sum(add("other", "r")), [_ADDED]),
        Fires(_three(), [replace(_ADDED, skipped=-1), replace(_ADDED, x=ref("s"), skipped=-1)]),
        Stays(_sum(add("r", "other"), "r")),
        Stays(_sum(add("other", "r"), "r")),
        Stays(_sum(add("r", 1.0))),
        Stays(_sum(add("r", "r"))),
        Stays(_sum(replace(add("r", "other"), activation=RELU))),
        Stays(_sum(add("r", "other"), other=numbers(4))),
    ),
}
