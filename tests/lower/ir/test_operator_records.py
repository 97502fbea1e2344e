"""Records of operators: they validate, survive being written, print as Python that runs, and are
read without torch."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

from golow.lower.ir.graph import (
    Argument,
    Graph,
    Node,
    Ref,
    Symbol,
    decode_graph,
    encode_graph,
    print_python,
)
from golow.lower.ir.operator import PREFIX, Operator, record_of, vocabulary, written
from golow.lower.ir.verify import interpret
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.fill import Fill
from golow.lower.operators.pad import Pad
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from support.graphs.lowering import Case, ops, record
from support.graphs.one_call import call, tensor
from support.graphs.operator_examples import RECORDS

# ---------------------------------------------------------------- records


EMPTY = Node(name="y", op="", arguments=())
EXAMPLES = {op: written(EMPTY, record) for op, record in RECORDS.items()}


def test_every_operator_has_an_example_with_all_its_fields() -> None:
    assert set(EXAMPLES) == set(vocabulary())
    for name, node in EXAMPLES.items():
        assert set(node.keywords) == set(vocabulary()[name].__struct_fields__)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_record_is_read_as_it_was_written(name: str) -> None:
    node = EXAMPLES[name]
    arguments = record_of(node)
    assert type(arguments) is vocabulary()[name]
    assert arguments == type(arguments).of(node) == record_of(written(node, arguments))
    again = msgspec.json.decode(msgspec.json.encode(node), type=Node)
    assert record_of(again) == arguments


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_field_of_another_type_raises(name: str) -> None:
    node = EXAMPLES[name]
    wrongs: tuple[Any, ...] = (Symbol(kind="dtype", name="float32"), ("text", None), "no such word")
    for field in node.keywords:
        for wrong in wrongs:
            if field in ("dtype", "result_type") and isinstance(wrong, str):
                continue
            planted = msgspec.structs.replace(node, keywords=node.keywords | {field: wrong})
            with pytest.raises(msgspec.ValidationError, match=rf"\$\.{field}"):
                record_of(planted)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_field_that_is_missing_raises(name: str) -> None:
    node, kind = EXAMPLES[name], vocabulary()[name]
    required = {item.name for item in msgspec.structs.fields(kind) if item.required}
    for field in required:
        rest = {key: item for key, item in node.keywords.items() if key != field}
        with pytest.raises(msgspec.ValidationError, match=field):
            record_of(msgspec.structs.replace(node, keywords=rest))


@pytest.mark.parametrize(
    ("kind", "field", "wrong"),
    [
        (Convolution, "stride", (1, 1, 1)),
        (Convolution, "groups", True),
        (Convolution, "groups", 1.5),
        (Convolution, "x", None),
        (Convolution, "activation", "relu"),
        (Binary, "function", "power"),
        (Binary, "b", None),
        (Permute, "order", 1),
        (Fill, "value", None),
    ],
)
def test_what_looks_right_and_is_not_raises(
    kind: type[Operator], field: str, wrong: Argument
) -> None:
    node = EXAMPLES[kind.op()]
    planted = msgspec.structs.replace(node, keywords=node.keywords | {field: wrong})
    with pytest.raises(msgspec.ValidationError, match=field):
        record_of(planted)


def test_a_name_outside_the_vocabulary_has_no_record() -> None:
    assert record_of(Node(name="y", op="aten.relu.default", arguments=(Ref(name="x"),))) is None
    assert Permute.of(EXAMPLES[Reshape.op()]) is None


# ---------------------------------------------------------------- graphs of operators


class Mixed(nn.Module):
    """Most of what graphs can hold: two branches, norms, views, numbers, an infinity."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4)
        self.side, self.pool = nn.Conv2d(4, 4, 1), nn.MaxPool2d(2, 1)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x))
        x = nn.functional.relu6(x + self.side(x))
        x = self.pool(nn.functional.pad(x, (1, 0), value=float("-inf")))
        x = torch.cat([x, x.transpose(2, 3)], 2)
        return self.head(nn.functional.softmax(x, 1).mean((2, 3)) / 2)


@pytest.mark.parametrize("level", ["onednn", "cudnn"])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_lowered_graph_survives_being_written_and_runs_as_python(mode: Any, level: Any) -> None:
    torch.manual_seed(0)
    case = Case(Mixed(), torch.randn(3, 3, 12, 10), mode=mode)
    graph = case.lowered(level)
    assert decode_graph(encode_graph(graph)) == graph
    assert str(graph) == print_python(graph)
    given = inputs_of(graph, case)
    with torch.no_grad():
        found, wanted = run_as_python(graph, given), interpret(graph, given)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert all(node.op.startswith(PREFIX) for node in graph.nodes), ops(graph)


def inputs_of(graph: Graph, case: Case) -> dict[str, Tensor]:
    found = {}
    for item in graph.inputs:
        zeros = torch.full(item.value.shape, 0.1, dtype=getattr(torch, item.value.dtype))
        found[item.value.name] = case.values.get((item.kind, item.target), zeros)
    return found


def run_as_python(graph: Graph, given: dict[str, Tensor]) -> dict[str, Tensor]:
    text = str(graph).replace("from torch.ops import aten", "aten = torch.ops.aten")
    scope: dict[str, Any] = {}
    exec(text, scope)  # noqa: S102 (our own print)
    found: dict[str, Tensor] = scope[graph.name](given)
    return found


def test_an_infinity_survives() -> None:
    graph = call("aten.constant_pad_nd.default", tensor(2, 3), [1, 1], float("-inf"))
    graph = decode_graph(encode_graph(graph))
    assert record(graph, Pad).value == float("-inf")
    assert "value=float('-inf')" in str(graph)
    found = run_as_python(graph, {"x0": tensor(2, 3)})["output/0"]
    assert found[0, 0] == float("-inf")


READS = """
import sys
from golow.lower.ir.graph import decode_graph
from golow.lower.ir.operator import activation_functions, record_of, spellings, vocabulary
graph = decode_graph(open(sys.argv[1], "rb").read())
read = [record_of(node) for node in graph.nodes]
assert None not in read and len(read) == int(sys.argv[2])
assert len(vocabulary()) > 30 and len(activation_functions()) > 8 and len(spellings()) > 60
assert str(graph)
print("torch" in sys.modules)
"""


def test_a_graph_is_read_without_torch(tmp_path: Any) -> None:
    graph = call("aten.relu.default", tensor(2, 3))
    nodes = (*graph.nodes, *EXAMPLES.values())
    file = tmp_path / "graph.json"
    file.write_bytes(encode_graph(msgspec.structs.replace(graph, nodes=nodes)))
    command = [sys.executable, "-c", READS, str(file), str(len(nodes))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "False\n"
