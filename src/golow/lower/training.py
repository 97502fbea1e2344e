"""Passes for the training step: names for what AOTAutograd decomposed, batch norm with relu in
one, and the update of SGD as a part of the graph."""

from __future__ import annotations

import msgspec

from golow.lower.fusion import VIEWS, activation_of, clip
from golow.lower.graph import Argument, Graph, GraphInput, GraphOutput, Node, Ref, Value
from golow.lower.rewriting import Links, absorbing, given, result, rewritten
from golow.record import Optimizer

BATCH_NORM = "aten._native_batch_norm_legit_functional.default"
BATCH_NORM_BACKWARD = "aten.native_batch_norm_backward.default"
POOL, POOL_BACKWARD = (
    "aten._adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool2d_backward.default",
)


def name_global_pooling(graph: Graph) -> Graph:
    """Write the mean over an image, and the spreading of its gradient, as pooling again."""
    links = Links(graph)
    values = graph.values()
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        if node.op == "aten.mean.dim":
            x, axes, keep = given(node, "self dim keepdim", False)
            shape = values[x.name].shape if isinstance(x, Ref) else ()
            alike = "dtype" not in node.keywords
            if len(shape) == 4 and axes in ((-1, -2), (2, 3), (-2, -1)) and keep is True and alike:
                new = msgspec.structs.replace(node, op=POOL, arguments=(x, (1, 1)), keywords={})
                replaced[position] = (new,)
        elif node.op == "aten.div.Scalar":
            spread = _spread_gradient(node, links)
            if spread is not None:
                replaced |= {spread[0]: (), position: spread[1]}
    return rewritten(graph, replaced)


def _spread_gradient(node: Node, links: Links) -> tuple[int, tuple[Node, ...]] | None:
    """expand(gradient [N, C, 1, 1]) / (H W), as the gradient of pooling to one pixel."""
    maker = links.made_by(node.arguments[0], "aten.expand.default")
    output = node.outputs[0]
    if maker is None or output is None or len(output.shape) != 4:
        return None
    gradient = links.nodes[maker].arguments[0]
    pixels = output.shape[2] * output.shape[3]
    if not isinstance(gradient, Ref) or node.arguments[1] != pixels:
        return None
    if links.values[gradient.name].shape != (*output.shape[:2], 1, 1):
        return None
    if links.only_reader(result(links.nodes[maker])) is None:
        return None
    pooled = _of_pooled_shape(links, maker, output, node.module)
    if pooled is None:
        return None
    new = msgspec.structs.replace(node, op=POOL_BACKWARD, arguments=(gradient, pooled))
    return maker, (new,)


def _of_pooled_shape(links: Links, before: int, output: Value, module: str) -> Ref | None:
    """What the pooling's backward is given as the pooled tensor, of which it reads the shape alone.

    Best what was pooled itself: a value that nothing else needs so late would be kept for it.
    """
    pooled = [
        (node.module == module, node.arguments[0].name)
        for node in links.nodes[:before]
        if node.op in ("aten.mean.dim", POOL) and isinstance(node.arguments[0], Ref)
    ]
    own = [name for _, name in sorted(pooled, key=lambda item: not item[0])]
    made = [value.name for node in links.nodes[:before] for value in node.outputs if value]
    fitting = (
        name
        for name in (*own, *made)
        if (links.values[name].shape, links.values[name].dtype) == (output.shape, output.dtype)
    )
    return next((Ref(name=name) for name in fitting), None)


def name_activation_gradients(graph: Graph) -> Graph:
    """Write the gradients of relu, clip, tanh and sigmoid in terms of the activation's result.

    ATen's hardtanh_backward reads the argument, which then had to be kept beside the result.
    """
    results = {
        (node.arguments[0].name, activation): result(node)
        for node in graph.nodes
        if (activation := activation_of(node)) is not None and isinstance(node.arguments[0], Ref)
    }
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        new = _activation_gradient(node, results)
        if new is not None:
            replaced[position] = (
                msgspec.structs.replace(node, op="golow.activation_backward", arguments=new),
            )
    return rewritten(graph, replaced)


def _activation_gradient(
    node: Node, results: dict[tuple[str, tuple[str | float, ...]], str]
) -> tuple[Argument, ...] | None:
    if node.op == "aten.threshold_backward.default":
        gradient, value, threshold = node.arguments
        return (gradient, value, ("relu",)) if threshold == 0 else None
    if node.op in ("aten.tanh_backward.default", "aten.sigmoid_backward.default"):
        name = node.op.removeprefix("aten.").removesuffix("_backward.default")
        return (*node.arguments, (name,))
    if node.op == "aten.hardtanh_backward.default":
        gradient, value, low, high = node.arguments
        bounds = clip(low, high)
        if bounds is None or not isinstance(value, Ref):
            return None
        found = results.get((value.name, bounds))
        return None if found is None else (gradient, Ref(name=found), bounds)
    return None


def fuse_batch_norm_relu(graph: Graph) -> Graph:
    """Put a relu into the batch norm that it alone reads, in both directions."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        if node.op != BATCH_NORM:
            continue
        relu = links.only_reader(result(node)) if node.outputs[0] is not None else None
        if relu is None or links.nodes[relu].op != "aten.relu.default":
            continue
        activated = result(links.nodes[relu])
        backward = _backward_pair(links, activated, node)
        if backward is None:
            continue
        x, scale, shift, mean, variance, _, momentum, epsilon = node.arguments
        arguments = (x, scale, shift, mean, variance, momentum, epsilon)
        outputs = (links.nodes[relu].outputs[0], *node.outputs[1:])
        replaced[position] = (
            msgspec.structs.replace(
                node,
                op="golow.batch_norm_relu",
                arguments=arguments,
                outputs=outputs,
                absorbed=absorbing(node, links.nodes[relu]),
            ),
        )
        replaced[relu] = ()
        replaced |= _fused_backward(links, activated, *backward)
    return rewritten(graph, replaced)


def _backward_pair(links: Links, activated: str, norm: Node) -> tuple[int, int] | None:
    """Positions of the relu's and of the norm's backward, where they follow each other."""
    for position in links.readers[activated]:
        node = links.nodes[position]
        if node.op != "golow.activation_backward" or node.arguments[1:] != (
            Ref(name=activated),
            ("relu",),
        ):
            continue
        reader = links.only_reader(result(node))
        if reader is not None and links.nodes[reader].op == BATCH_NORM_BACKWARD:
            backward = links.nodes[reader].arguments
            if backward[0] == Ref(name=result(node)) and backward[1] == norm.arguments[0]:
                return position, reader
    return None


def _fused_backward(
    links: Links, activated: str, relu: int, norm: int
) -> dict[int, tuple[Node, ...]]:
    gradient = links.nodes[relu].arguments[0]
    _, x, scale, _, _, mean, deviation, _, epsilon, wanted = links.nodes[norm].arguments
    arguments = (gradient, Ref(name=activated), x, scale, mean, deviation, epsilon, wanted)
    new = msgspec.structs.replace(
        links.nodes[norm],
        op="golow.batch_norm_relu_backward",
        arguments=arguments,
        absorbed=absorbing(links.nodes[norm], links.nodes[relu]),
    )
    return {relu: (), norm: (new,)}


def append_update(graph: Graph, optimizer: Optimizer) -> Graph:
    """Add SGD's update of every parameter that has a gradient, as early as it may happen.

    Right after the gradient it is still in the cache, and nothing needs to keep it; a parameter
    that a later node reads is updated after that node. The learning rate is an input, so that it
    can change from step to step.
    """
    links = Links(graph)
    parameters = {item.target: item.value for item in graph.inputs if item.kind == "parameter"}
    rate = Value(name="learning_rate", shape=(), dtype="float32")
    after: dict[int, list[Node]] = {}
    inputs, outputs = [GraphInput(value=rate, kind="learning_rate", target="")], []
    for item in graph.outputs:
        if item.kind != "gradient":
            continue
        parameter = parameters[item.target]
        momentum = msgspec.structs.replace(parameter, name=f"{parameter.name}_momentum")
        inputs.append(GraphInput(value=momentum, kind="momentum", target=item.target))
        layer = item.target.rpartition(".")[0]
        update = _update(parameter, momentum, item.name, rate, optimizer, layer)
        last = max(links.maker[item.name], _last_read(links, parameter.name))
        after.setdefault(last, []).extend(update)
        for node, kind in zip(update, ("momentum", "parameter"), strict=True):
            outputs.append(GraphOutput(name=result(node), kind=kind, target=item.target))  # type: ignore[arg-type]
    nodes = tuple(
        new for position, node in enumerate(graph.nodes) for new in (node, *after.get(position, ()))
    )
    return msgspec.structs.replace(
        graph, inputs=(*graph.inputs, *inputs), nodes=nodes, outputs=(*graph.outputs, *outputs)
    )


def _last_read(links: Links, name: str) -> int:
    """Position of the last node that reads the value, or a view of it."""
    last = -1
    for position in links.readers[name]:
        node = links.nodes[position]
        last = max(last, position)
        if node.op in VIEWS:
            views = [value.name for value in node.outputs if value is not None]
            last = max([last, *(_last_read(links, view) for view in views)])
    return last


def _update(
    parameter: Value, momentum: Value, gradient: str, rate: Value, optimizer: Optimizer, layer: str
) -> tuple[Node, Node]:
    moved = msgspec.structs.replace(parameter, name=f"{momentum.name}_new")
    updated = msgspec.structs.replace(parameter, name=f"{parameter.name}_new")
    factors = (optimizer.momentum, optimizer.weight_decay)
    inputs = (Ref(name=momentum.name), Ref(name=gradient), Ref(name=parameter.name))
    return (
        Node(
            name=moved.name,
            op="golow.new_momentum",
            arguments=(*inputs, *factors),
            outputs=(moved,),
            module=layer,
            phase="update",
        ),
        Node(
            name=updated.name,
            op="golow.new_parameter",
            arguments=(Ref(name=parameter.name), Ref(name=moved.name), Ref(name=rate.name)),
            outputs=(updated,),
            module=layer,
            phase="update",
        ),
    )
