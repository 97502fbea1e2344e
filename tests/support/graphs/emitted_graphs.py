"""Graphs written by hand, for tests of what is emitted for them."""

from __future__ import annotations

from golow.lower.ir.graph import Graph, GraphInput, GraphOutput, Node, Value


def value(name: str, *shape: int, dtype: str = "float32") -> Value:
    return Value(name=name, shape=shape, dtype=dtype)


def graph_of(nodes: list[Node], outputs: list[GraphOutput], *inputs: GraphInput) -> Graph:
    given = inputs or (GraphInput(value=value("x", 2, 4), kind="input", target="0"),)
    return Graph(
        name="made", mode="infer", inputs=given, nodes=tuple(nodes), outputs=tuple(outputs)
    )


def one_node(op: str, *arguments: object, module: str = "layer1.0", **keywords: object) -> Graph:
    node = Node(
        name="layer1_0_it",
        op=op,
        arguments=arguments,  # type: ignore[arg-type]
        keywords=keywords,  # type: ignore[arg-type]
        outputs=(value("y", 2, 4),),
        module=module,
    )
    return graph_of([node], [GraphOutput(name="y", kind="output", target="0")])
