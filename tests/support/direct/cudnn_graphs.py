"""Graphs as `cudnn` lowers a model of the zoo."""

from __future__ import annotations

from torch import Tensor, nn

from golow.levels.direct.cudnn.passes import passes
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Mode
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request


def lowered(model: str | nn.Module, mode: Mode, x: Tensor | None = None, **size: int) -> Graph:
    prepared = prepare(Request(model, x, mode=mode, **size))  # type: ignore[arg-type]
    return apply(apply(capture(prepared).graph, CLEAN_UP), passes(prepared.workload))
