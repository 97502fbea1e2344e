"""A pass for inference on a GPU: a faster first convolution for images with few channels.

Tensor cores load four or eight channels of a pixel at once, so a 7x7 convolution with stride 2 over
three channels wastes part of each load. Split into blocks of 2x2 pixels, the same image has four
times the channels and a quarter of the pixels, and the convolution covers 4x4 blocks with stride 1
(space to depth, as in the MLPerf submissions of ResNet-50). The weights are rearranged once, when a
plan is loaded.
"""

from __future__ import annotations

import msgspec

from golow.lower.constancy import constant_values
from golow.lower.graph import Graph, Node, Ref, Value
from golow.lower.operator import written
from golow.lower.operators.blocked_weight import BlockedWeight
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.pixel_unshuffle import PixelUnshuffle
from golow.lower.rewriting import rewritten

BLOCK = 2
FEW = 4  # channels


def block_first_convolution(graph: Graph) -> Graph:
    """Make convolutions with stride 2 that read a model input read blocks of its pixels."""
    values, same = graph.values(), constant_values(graph)
    images = {item.value.name for item in graph.inputs if item.kind == "input"}
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, this in enumerate(graph.nodes):
        layer, output = Convolution.of(this), this.outputs[0] if this.outputs else None
        if layer is None or output is None:
            continue
        if layer.x.name in images and layer.weight.name in same:
            new = _blocked(this, layer, output, values)
            if new is not None:
                replaced[position] = new
    return rewritten(graph, replaced)


def _blocked(
    this: Node, layer: Convolution, output: Value, values: dict[str, Value]
) -> tuple[Node, ...] | None:
    image, kernel = values[layer.x.name], values[layer.weight.name]
    images, channels, height, width = image.shape
    if layer.stride != (BLOCK, BLOCK) or layer.dilation != (1, 1) or layer.groups != 1:
        return None
    if channels > FEW or height % BLOCK or width % BLOCK or min(kernel.shape[2:]) <= BLOCK:
        return None
    pairs = zip(kernel.shape[2:], layer.padding[:2], strict=True)
    sizes = [taps_and_padding(size, before) for size, before in pairs]
    blocks = (height // BLOCK, width // BLOCK)
    # Blocks that the last output reads beyond the image.
    below, right = (
        out + taps - 1 - size - before
        for out, size, (taps, before) in zip(output.shape[2:], blocks, sizes, strict=True)
    )
    if min(below, right) < 0:
        return None
    depth = channels * BLOCK * BLOCK
    folded = Value(name=f"{output.name}_blocks", shape=(images, depth, *blocks), dtype=image.dtype)
    taps = (kernel.shape[0], depth, *(taps for taps, _ in sizes))
    small = Value(name=f"{output.name}_blocked_weight", shape=taps, dtype=kernel.dtype)
    unshuffle = PixelUnshuffle(x=layer.x, factor=BLOCK)
    arrange = BlockedWeight(weight=layer.weight, top=layer.padding[0], left=layer.padding[1])
    blocked = msgspec.structs.replace(
        layer,
        x=Ref(name=folded.name),
        weight=Ref(name=small.name),
        stride=(1, 1),
        padding=(sizes[0][1], sizes[1][1], below, right),
    )
    return (
        written(this, unshuffle, name=folded.name, outputs=(folded,), absorbed=()),
        written(this, arrange, name=small.name, outputs=(small,), absorbed=()),
        written(this, blocked),
    )


def taps_and_padding(kernel: int, padding: int) -> tuple[int, int]:
    """How many blocks the kernel covers along an axis, and how many lie before the image.

    For output o, tap r of the kernel reads pixel 2 o + r - padding. This is pixel d of block o + a,
    where r - padding = 2 a + d.
    """
    before = -(-padding // BLOCK)
    last = (kernel - 1 - padding) // BLOCK
    return last + before + 1, before
