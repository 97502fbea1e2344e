"""Resampling: keeps resizing whole, for a level whose library computes it. What is left becomes
products with matrices of weights (`golow.lower.decompositions.resize`)."""

from __future__ import annotations

from golow.lower.aten.decomposition import lenient
from golow.lower.ir.graph import Graph, Node
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import Links, rewritten
from golow.lower.ir.spelling import Call
from golow.lower.operators.resample import Mode, Resample, ResampleBackward

MODES: dict[str, Mode] = {
    "aten.upsample_nearest2d": "nearest",
    "aten.upsample_nearest3d": "nearest",
    "aten.upsample_bilinear2d": "linear",
    "aten.upsample_trilinear3d": "linear",
}


def keep_resampling(graph: Graph) -> Graph:
    """Make resizing of images and volumes one operator, forward and backward: the nearest element
    for a whole factor, linear between centres for any."""
    graph = lenient(graph)
    links, replaced = Links(graph), dict[int, tuple[Node, ...]]()
    for position, node in enumerate(graph.nodes):
        name = node.op.rpartition(".")[0]
        mode = MODES.get(name.removesuffix("_backward"))
        if mode is None:
            continue
        call = Call(node, links)
        operator = _backward(call, mode) if name.endswith("_backward") else _forward(call, mode)
        if operator is not None:
            replaced[position] = (written(node, operator),)
    return rewritten(graph, replaced)


def _forward(call: Call, mode: Mode) -> Operator | None:
    name = "self" if "self" in call.names else "input"
    old, new = call.shape(name)[2:], call.output().shape[2:]
    if not _is_plain(call, mode, old, new):
        return None
    return Resample(x=call.ref(name), size=new, mode=mode)


def _backward(call: Call, mode: Mode) -> Operator | None:
    old, new = call.output().shape[2:], call.shape("grad_output")[2:]
    if not _is_plain(call, mode, old, new):
        return None
    return ResampleBackward(gradient=call.ref("grad_output"), size=old, mode=mode)


def _is_plain(call: Call, mode: Mode, old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """True if sizes alone determine the positions of elements. A factor that the user gave counts
    instead, where it is not their ratio."""
    if call.output().dtype != "float32" or (
        "align_corners" in call.names and call.flag("align_corners")
    ):
        return False
    given = [name for name in call.names if name.startswith("scale")]
    factors = [factor for name in given for factor in _factors(call, name)]
    ratios = [after / before for before, after in zip(old, new, strict=True)]
    if factors and factors != ratios:
        return False
    whole = all(after % before == 0 for before, after in zip(old, new, strict=True))
    return mode == "linear" or whole


def _factors(call: Call, name: str) -> list[float]:
    item = call.given(name)
    items = item if isinstance(item, tuple) else (item,)
    return [float(factor) for factor in items if isinstance(factor, int | float)]
