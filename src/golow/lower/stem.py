"""A pass for inference on a GPU: the first convolution, of an image with few channels.

A 7x7 convolution with stride 2 of three channels wastes what tensor cores load at once: they take
four or eight channels a pixel. Seen in blocks of 2x2 pixels the same image has four times the
channels and a quarter of the pixels, and the convolution is one of 4x4 blocks with stride 1 (space
to depth, as the MLPerf submissions of ResNet-50 have it). The weights are rearranged once, when a
plan is loaded.
"""

from __future__ import annotations

import msgspec

from golow.lower.fusion import CONVOLUTION
from golow.lower.graph import Graph, Node, Ref, Value
from golow.lower.rewriting import rewritten

BLOCK = 2
FEW = 4  # channels
UNSHUFFLE = "aten.pixel_unshuffle.default"


def block_first_convolution(graph: Graph) -> Graph:
    """Let convolutions with stride 2 that read an image of the model read its blocks."""
    values = graph.values()
    images = {item.value.name for item in graph.inputs if item.kind == "input"}
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        x = node.arguments[0] if node.op == CONVOLUTION else None
        if isinstance(x, Ref) and x.name in images:
            new = _blocked(node, values)
            if new is not None:
                replaced[position] = new
    return rewritten(graph, replaced)


def _blocked(node: Node, values: dict[str, Value]) -> tuple[Node, ...] | None:
    x, weight, bias, residual, stride, padding, dilation, groups, activation = node.arguments
    assert isinstance(x, Ref) and isinstance(weight, Ref)  # noqa: S101
    image, kernel = values[x.name], values[weight.name]
    images, channels, height, width = image.shape
    output = node.outputs[0]
    if (stride, dilation, groups) != ((BLOCK, BLOCK), (1, 1), 1) or channels > FEW:
        return None
    if height % BLOCK or width % BLOCK or min(kernel.shape[2:]) <= BLOCK or output is None:
        return None
    assert isinstance(padding, tuple)  # noqa: S101
    pairs = zip(kernel.shape[2:], padding[:2], strict=True)
    sizes = [taps_and_padding(size, int(before)) for size, before in pairs]  # type: ignore[arg-type]
    blocks = (height // BLOCK, width // BLOCK)
    # What the last output needs beyond the image.
    after = [
        out + taps - 1 - size - before
        for out, size, (taps, before) in zip(output.shape[2:], blocks, sizes, strict=True)
    ]
    if min(after) < 0:
        return None
    depth = channels * BLOCK * BLOCK
    folded = Value(name=f"{output.name}_blocks", shape=(images, depth, *blocks), dtype=image.dtype)
    taps = (kernel.shape[0], depth, *(taps for taps, _ in sizes))
    small = Value(name=f"{output.name}_blocked_weight", shape=taps, dtype=kernel.dtype)
    unshuffle = Node(
        name=folded.name,
        op=UNSHUFFLE,
        arguments=(x, BLOCK),
        outputs=(folded,),
        module=node.module,
        phase=node.phase,
    )
    arrange = msgspec.structs.replace(
        unshuffle,
        name=small.name,
        op="golow.blocked_weight",
        arguments=(weight, padding[0], padding[1]),
        outputs=(small,),
    )
    sides = (sizes[0][1], sizes[1][1], *after)
    arguments = (
        *(Ref(name=folded.name), Ref(name=small.name), bias, residual),
        *((1, 1), sides, dilation, groups, activation),
    )
    return unshuffle, arrange, msgspec.structs.replace(node, arguments=arguments)


def taps_and_padding(kernel: int, padding: int) -> tuple[int, int]:
    """How many blocks the kernel covers along an axis, and how many lie before the image.

    Tap r of the kernel meets pixel 2 o + r - padding; that is pixel d of block o + a with
    r - padding = 2 a + d.
    """
    before = -(-padding // BLOCK)
    last = (kernel - 1 - padding) // BLOCK
    return last + before + 1, before
