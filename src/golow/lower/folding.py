"""Passes for inference that move work from every iteration to the moment of loading.

What they compute depends on weights alone, so a plan does it once.
"""

from __future__ import annotations

import msgspec

from golow.lower.fusion import CONVOLUTION, LINEAR, RESIDUAL
from golow.lower.graph import Argument, Graph, Node, Ref, Value
from golow.lower.rewriting import Links, absorbing, result, rewritten


def fold_batch_norm(graph: Graph) -> Graph:
    """Put a batch norm with running statistics into the convolution or linear layer before it."""
    links = Links(graph)
    values = graph.values()
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        statistics = _running_statistics(node)
        maker = links.made_by(node.arguments[0], CONVOLUTION, LINEAR) if statistics else None
        if statistics is None or maker is None:
            continue
        first = links.nodes[maker]
        if links.only_reader(result(first)) != position or first.arguments[-1] != ():
            continue
        if first.arguments[RESIDUAL] is not None:
            continue  # the norm scales the residual too
        if first.op == LINEAR and len(values[result(first)].shape) != 2:
            continue  # the norm's channels are not the layer's last axis
        replaced |= {maker: (), position: _folded(first, node, statistics, values)}
    return rewritten(graph, replaced)


def _running_statistics(node: Node) -> tuple[Argument, ...] | None:
    """(scale, shift, mean, variance, epsilon) of a batch norm that does not train."""
    if node.op == "aten.batch_norm.default":
        _, scale, shift, mean, variance, training, _, epsilon, _ = node.arguments
    elif node.op == "aten._native_batch_norm_legit_no_training.default":
        (_, scale, shift, mean, variance, _, epsilon), training = node.arguments, False
    else:
        return None
    if training or not isinstance(mean, Ref) or not isinstance(variance, Ref):
        return None
    return scale, shift, mean, variance, epsilon


def _folded(
    first: Node, norm: Node, statistics: tuple[Argument, ...], values: dict[str, Value]
) -> tuple[Node, ...]:
    scale, shift, mean, variance, epsilon = statistics
    weight, bias, normed = first.arguments[1], first.arguments[2], norm.outputs[0]
    assert isinstance(weight, Ref) and isinstance(mean, Ref) and normed is not None  # noqa: S101
    new_weight = msgspec.structs.replace(values[weight.name], name=f"{normed.name}_folded_weight")
    new_bias = msgspec.structs.replace(values[mean.name], name=f"{normed.name}_folded_bias")
    base = {"module": norm.module, "phase": norm.phase}
    arguments = (
        first.arguments[0],
        Ref(name=new_weight.name),
        Ref(name=new_bias.name),
        *first.arguments[3:],
    )
    return (
        Node(
            name=new_weight.name,
            op="golow.folded_weight",
            arguments=(weight, scale, variance, epsilon),
            outputs=(new_weight,),
            **base,  # type: ignore[arg-type]
        ),
        Node(
            name=new_bias.name,
            op="golow.folded_bias",
            arguments=(bias, scale, shift, mean, variance, epsilon),
            outputs=(new_bias,),
            **base,  # type: ignore[arg-type]
        ),
        msgspec.structs.replace(
            first, arguments=arguments, outputs=(normed,), absorbed=absorbing(first, norm)
        ),
    )


def trim_kernels(graph: Graph) -> Graph:
    """Cut off the taps of a kernel that only ever meet zero padding.

    A 3x3 kernel with padding 1 over an image of one pixel reads its centre alone: in a deep
    network's last layers on small images eight ninths of the weights are multiplied by zero.
    """
    values = graph.values()
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        if node.op == CONVOLUTION and (new := _trimmed(node, values)) is not None:
            replaced[position] = new
    return rewritten(graph, replaced)


def _trimmed(node: Node, values: dict[str, Value]) -> tuple[Node, ...] | None:
    x, weight, bias, residual, stride, padding, dilation, groups, activation = node.arguments
    assert isinstance(x, Ref) and isinstance(weight, Ref)  # noqa: S101
    image, kernel = values[x.name].shape[2:], values[weight.name].shape[2:]
    output = node.outputs[0]
    assert output is not None and isinstance(padding, tuple)  # noqa: S101
    before, after = padding[:2], padding[2:]
    ranges, sides = [], []
    for axis in (0, 1):
        steps = [d[axis] for d in (stride, dilation, before, after)]  # type: ignore[index]
        taps = _taps_in_image(image[axis], kernel[axis], output.shape[2 + axis], *steps)  # type: ignore[arg-type]
        ranges.append((taps.start, taps.stop))
        sides.append(_padding_left(taps, kernel[axis], *steps[1:]))  # type: ignore[arg-type]
    if all(r == (0, size) for r, size in zip(ranges, kernel, strict=True)):
        return None
    if any(side < 0 for both in sides for side in both):
        return None  # the image itself would have to be cut
    shape = (*values[weight.name].shape[:2], *(stop - start for start, stop in ranges))
    small = Value(name=f"{output.name}_trimmed", shape=shape, dtype=values[weight.name].dtype)
    trim = Node(
        name=small.name,
        op="golow.trimmed",
        arguments=(weight, *ranges),
        outputs=(small,),
        module=node.module,
        phase=node.phase,
    )
    (top, bottom), (left, right) = sides
    arguments = (
        *(x, Ref(name=small.name), bias, residual, stride),
        *((top, left, bottom, right), dilation, groups, activation),
    )
    return trim, msgspec.structs.replace(node, arguments=arguments)


def _taps_in_image(
    image: int, kernel: int, output: int, stride: int, dilation: int, before: int, after: int
) -> range:
    """The taps from the first to the last that meets a pixel at some position of the output."""
    met = [
        tap
        for tap in range(kernel)
        if any(0 <= i * stride - before + tap * dilation < image for i in range(output))
    ]
    return range(met[0], met[-1] + 1) if met else range(kernel)


def _padding_left(
    taps: range, kernel: int, dilation: int, before: int, after: int
) -> tuple[int, int]:
    """The padding that is left before and after; below zero the image itself would be cut."""
    return before - taps.start * dilation, after - (kernel - taps.stop) * dilation
