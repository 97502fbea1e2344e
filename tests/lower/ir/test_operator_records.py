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
    Activation,
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
from support.lowering import Case, ops, record
from support.one_call import call, tensor

# ---------------------------------------------------------------- records


def examples() -> dict[str, Node]:
    """A node for every operator of the vocabulary."""
    x, pair = Ref(name="x"), (1, 1)
    window = {"kernel": pair, "stride": pair, "padding": pair, "ceil": True}
    relu = Activation(name="relu")
    heads = {"query": x, "key": x, "value": x, "added": None, "causal": True, "scale": None}
    layer = {
        "kind": "lstm", "backwards": True, "x": x, "hidden": x, "cell": x, "input_weight": x,
        "hidden_weight": x, "input_bias": x, "hidden_bias": x, "projection": x,
    }  # fmt: skip
    stack = {
        "kind": "lstm", "bidirectional": False, "biased": False, "x": x, "hidden": (x, x),
        "cell": (x, x), "weights": (x, x, x, x),
    }  # fmt: skip
    fields: dict[str, dict[str, Any]] = {
        "activate": {"x": x, "activation": relu},
        "activate_backward": {
            "gradient": x, "value": x, "activation": relu, "from_result": True
        },
        "adam_step": {"steps": x, "learning_rate": x, "betas": (0.9, 0.999)},
        "adam_update": {
            "parameter": x, "momentum": x, "square": x, "gradient": x, "learning_rate": x,
            "rate": x, "root": x, "betas": (0.9, 0.999), "epsilon": 1e-8, "weight_decay": 0.01,
            "decoupled": True, "clip": None,
        },
        "adaptive_average_pool": {"x": x, "size": pair},
        "adaptive_average_pool_backward": {"gradient": x, "shape": (1, 2, 3, 4)},
        "attention": heads,
        "attention_backward": heads
        | {"added": x, "gradient": x, "output": x, "logarithm": x},
        "average_pool": {"x": x, "with_padding": True, "divisor": 2, **window},
        "average_pool_backward": {
            "gradient": x, "x": x, "with_padding": True, "divisor": None, **window
        },
        "arg_reduce": {"function": "maximum", "x": x, "axis": 1, "keep": True},
        "batch_norm": {
            "x": x, "scale": x, "shift": None, "running_mean": x, "running_variance": x,
            "momentum": 0.1, "epsilon": 1e-5, "residual": x, "activation": relu,
        },
        "batch_norm_backward": {
            "gradient": x, "x": x, "scale": None, "mean": x, "inverse_deviation": x,
            "epsilon": 1e-5, "wanted": (True, False, True, False), "second": x, "result": x,
            "activation": relu, "step": (1, 1),
        },
        "batch_norm_inference": {
            "x": x, "scale": x, "shift": x, "mean": x, "variance": x, "epsilon": 1e-5
        },
        "binary": {"function": "add", "a": x, "b": 2, "activation": None},
        "clip_factor": {"gradients": (x, x), "norm": 1.0},
        "concatenate": {"parts": (x, x), "axis": 1},
        "fused": {"inputs": (x, x), "program": ("{}",), "yields": ("y",)},
        "convolution": {
            "x": x, "weight": x, "bias": None, "residual": x, "stride": pair,
            "padding": (1, 2, 3, 4), "dilation": pair, "groups": 1, "activation": relu,
        },
        "convolution_backward": {
            "gradient": x, "x": x, "weight": x, "stride": pair, "padding": (1, 1, 1, 1),
            "dilation": pair, "groups": 1, "wanted": (True, True, False),
            "compact": False,
        },
        "copy": {"x": x},
        "cross_entropy": {"x": x, "target": x, "reduction": "mean", "ignored": -100},
        "cross_entropy_backward": {
            "gradient": x, "x": x, "target": x, "largest": x, "logarithm": x, "total_weight": x,
            "reduction": "sum", "ignored": 1,
        },
        "cumulative_sum": {"x": x, "axis": 0, "dtype": "int64"},
        "dropout": {"x": x, "probability": 0.5},
        "dropout_backward": {"gradient": x, "mask": x, "scale": 2.0},
        "expand": {"x": x, "shape": (2, 3)},
        "fill": {"shape": (), "value": 1.0, "dtype": "float32"},
        "folded_bias": {
            "bias": None, "scale": x, "shift": x, "mean": x, "variance": x, "epsilon": 1e-5
        },
        "folded_weight": {"weight": x, "scale": None, "variance": x, "epsilon": 1e-5},
        "flip": {"x": x, "axes": (0, 1)},
        "gather": {"x": x, "index": x, "axis": 0},
        "group_moments": {"x": x, "groups": 4, "epsilon": 1e-5},
        "group_norm_gradients": {
            "gradient": x, "x": x, "mean": x, "deviation": x, "weight": None, "groups": 4
        },
        "index": {"x": x, "indices": (None, x)},
        "index_put": {"x": x, "indices": (x,), "values": x, "add": True},
        "iota": {"start": 0, "step": 1.5, "count": 3, "dtype": "int64"},
        "grouped_product": {"x": x, "weight": x, "ends": x, "turned": True},
        "grouped_sums": {"x": x, "gradient": x, "ends": x},
        "layer_norm": {"x": x, "weight": x, "bias": None, "axes": 1, "epsilon": 1e-5},
        "layer_norm_backward": {
            "gradient": x, "x": x, "mean": x, "deviation": x, "weight": x, "bias": None, "axes": 1
        },
        "linear": {"x": x, "weight": x, "bias": x, "residual": None, "activation": relu},
        "loss_gradient": {"dtype": "float32"},
        "matrix_product": {"a": x, "b": x},
        "max_pool": {"x": x, "dilation": pair, "indices": True, **window},
        "max_pool_backward": {"gradient": x, "x": x, "indices": x, "dilation": pair, **window},
        "nll_loss": {"logs": x, "target": x, "reduction": "mean", "ignored": -100},
        "nll_loss_backward": {
            "gradient": x, "logs": x, "target": x, "reduction": "sum",
            "ignored": 1, "total_weight": x,
        },
        "pad": {"x": x, "before": (0, 1), "after": (1, 0), "value": float("-inf")},
        "permute": {"x": x, "order": (1, 0)},
        "pixel_unshuffle": {"x": x, "factor": 2},
        "pointwise": {"function": "power", "operands": (x, 2.0, True), "dtype": "float32"},
        "recurrence": layer,
        "recurrence_backward": layer | {"gradient": x, "last_gradient": x, "output": x},
        "recurrent_layers": {
            "kind": "gru", "layers": 2, "bidirectional": True, "batch_first": True, "biased": False,
            "x": x, "hidden": x, "cell": None, "weights": (x, x),
        },
        "recurrent_stack": stack,
        "recurrent_stack_backward": stack | {"gradient": x, "output": x},
        "reduce": {"function": "sum", "x": x, "axes": (0, 1), "keep": False},
        "reshape": {"x": x, "shape": (6,)},
        "rms_norm": {"x": x, "residual": x, "weight": None, "axes": 1, "epsilon": 1e-6},
        "rms_norm_backward": {
            "gradient": x, "x": x, "deviation": x, "weight": x, "added": None, "axes": 1,
        },
        "rmsprop_update": {
            "parameter": x, "square": x, "momentum": None, "gradient": x, "learning_rate": x,
            "smoothing": 0.99, "epsilon": 1e-8, "factor": 0.0, "weight_decay": 0.0, "clip": x,
        },
        "resample": {"x": x, "size": (4, 6), "mode": "nearest"},
        "resample_backward": {"gradient": x, "size": (2, 3), "mode": "linear"},
        "roll": {"x": x, "axes": (0, 1), "starts": (1, 2)},
        "scatter": {"x": x, "index": x, "source": x, "axis": 0, "add": True},
        "sgd_update": {
            "parameter": x, "momentum": x, "gradient": x, "learning_rate": x, "factor": 0.9,
            "weight_decay": 0.0, "nesterov": True, "clip": x,
        },
        "slice": {"x": x, "axis": 0, "start": 0, "stop": 2, "step": 1},
        "softmax": {"x": x, "axis": 1, "log": True},
        "softmax_backward": {"gradient": x, "result": x, "axis": 0, "log": False},
        "sort": {"x": x, "axis": 0, "descending": True},
        "add_rows": {"x": x, "gradient": x, "index": x, "axis": 0, "skipped": 1},
        "take": {"x": x, "index": x, "axis": 0},
        "take_backward": {"gradient": x, "index": x, "axis": 0, "size": 5, "skipped": 1},
        "fused_softmax": {
            "inputs": (x,), "program": ("{}",), "log": False, "rounded": True,
        },
        "joined_weight": {"parts": (x, x)},
        "trimmed_weight": {"weight": x, "rows": (0, 1), "columns": pair},
        "unit_norm": {"x": x, "factor": None, "epsilon": 1e-12},
    }  # fmt: skip
    empty = Node(name="y", op="", arguments=())
    return {
        PREFIX + name: written(empty, vocabulary()[PREFIX + name](**given))
        for name, given in fields.items()
    }


EXAMPLES = examples()


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
            if field == "dtype" and isinstance(wrong, str):
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
