"""The C++ that the level libtorch writes: text only, nothing is compiled here."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from golow import models
from golow.levels.libtorch.emit import emit_program, without_comments
from golow.lower.capture.capture import capture_inference, capture_training
from golow.lower.ir.graph import Graph, GraphInput, GraphOutput, Node, Ref
from golow.records.errors import Unsupported
from support.examples import examples
from support.graphs.emitted_graphs import graph_of, one_node, value


class Small(nn.Module):
    """Convolution, batch norm, residual sum, dropout, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = functional.relu(self.norm(x) + x)
        return self.head(self.drop(x.mean((2, 3))))


def inference(module: nn.Module, *inputs: Tensor) -> Graph:
    return capture_inference("small", module, inputs).graph


def training(module: nn.Module, *inputs: Tensor, pixels: tuple[int, ...] = ()) -> Graph:
    targets = (torch.randint(2, (inputs[0].shape[0], *pixels)),)
    return capture_training("small", module, inputs, targets, functional.cross_entropy).graph


def code_lines(program: str) -> list[str]:
    """The body of ``step`` without comments, one statement a line."""
    body = without_comments(program).split("override {\n")[1].split("\n  }\n};")[0]
    return [" ".join(part.split()) for part in body.split(";")]


# ---------------------------------------------------------------- whole programs


class Masked(nn.Module):
    """Python's operators on truth values."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.where((mask & (x > 0)) | (x < -1) ^ mask, x, 0.0)


def test_pythons_operators_have_the_names_of_the_headers() -> None:
    program = emit_program(inference(Masked(), torch.randn(3, 4), torch.rand(3, 4) > 0.5))
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        assert f"ops::{name}_Tensor::call(" in program


def test_every_argument_of_the_schema_is_written() -> None:
    lines = code_lines(emit_program(inference(Small(), torch.randn(2, 3, 8, 8))))
    assert (
        "auto stem = ops::conv2d::call("
        "input_0, stem_weight, stem_bias, {1, 1}, {1, 1}, {1, 1}, 1)" in "".join(lines)
    )
    assert any("ops::add_Tensor::call(norm, stem, 1)" in line for line in lines)


def test_only_the_headers_that_are_needed_are_included() -> None:
    program = emit_program(inference(Small(), torch.randn(2, 3, 8, 8)))
    included = re.findall(r"#include <ATen/ops/(\w+)_ops\.h>", program)
    called = {
        re.sub(r"_(Tensor|dim|default)$", "", n) for n in re.findall(r"ops::(\w+)::", program)
    }
    assert set(included) == called
    assert included == sorted(included)


class Listed(nn.Module):
    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        return torch.cat([x, x])[places]


def test_what_defines_lists_is_included_where_there_are_lists() -> None:
    program = emit_program(inference(Listed(), torch.randn(3, 4), torch.tensor([5, 0])))
    assert "#include <ATen/core/List.h>" in program  # of index
    assert "#include <ATen/core/IListRef.h>" in program  # of cat
    assert "ATen/core/" not in emit_program(inference(Small(), torch.randn(2, 3, 8, 8)))


def test_one_inference_program_serves_every_batch_size_and_resolution() -> None:
    module = Small()
    first = emit_program(inference(module, torch.randn(2, 3, 8, 8)))
    second = emit_program(inference(module, torch.randn(5, 3, 12, 12)))
    assert first != second
    assert without_comments(first) == without_comments(second)


def test_comments_name_the_layer_once_a_group_and_the_shape_of_each_value() -> None:
    program = emit_program(inference(Small(), torch.randn(2, 3, 8, 8)))
    assert program.count("// stem\n") == 1
    assert "// float32[2, 4, 8, 8]" in program


def test_emission_is_deterministic() -> None:
    graph = training(Small(), torch.randn(2, 3, 8, 8))
    assert emit_program(graph) == emit_program(graph)


# By their nodes: ten seconds of capturing each.
LARGE = (
    "resnet50 mobilenet_v2 densenet121 efficientnet_b0 convnext_tiny vit_b_16 swin_t shufflenet_v2 "
    "unet"
).split()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.whole_network if name in LARGE else ())
        for name in sorted(models.ZOO)
        if models.ZOO[name].takes_images  # tests/workload/test_text_models.py has the others
    ],
)
def test_the_zoo_is_emitted(name: str) -> None:
    entry = models.ZOO[name]
    side = max(entry.minimum_resolution, 32)
    module = models.build(name, resolution=side)
    image = torch.zeros(2, entry.in_channels, side, side)
    pixels = (side, side) if entry.per_pixel else ()
    assert_released_once(emit_program(inference(module, image)))
    assert_released_once(emit_program(training(module, image, pixels=pixels)))


# ---------------------------------------------------------------- lifetimes


def assert_released_once(program: str) -> None:
    """Every local is released exactly once after its last use, unless it leaves."""
    lines = code_lines(program)
    text = " ; ".join(lines)
    declared = set(re.findall(r"\bauto (\w+) =", text))
    for group in re.findall(r"(?:^|; )Tensor ([\w, ]+) ;", text):
        declared |= set(group.split(", "))
    body, _, leaving = text.partition("result.outputs =")
    for name in declared:
        uses = [i for i, line in enumerate(lines) if re.search(rf"(?<!ops::)\b{name}\b", line)]
        released = [
            i for i, line in enumerate(lines) if line in (f"{name}.reset()", f"{name}.clear()")
        ]
        if re.search(rf"\b{name}\b", leaving):
            assert not released, f"{name} leaves and is released"
        else:
            assert released == [uses[-1]], f"{name} is used after its release, or never released"
    assert body


def test_values_are_released_after_their_last_use() -> None:
    assert_released_once(emit_program(inference(Small(), torch.randn(2, 3, 8, 8))))
    assert_released_once(emit_program(training(Small(), torch.randn(2, 3, 8, 8))))


def test_results_that_nobody_reads_are_not_kept() -> None:
    unread = Node(
        name="best",
        op="aten.max_pool2d_with_indices.default",
        arguments=(Ref(name="x"), (2, 2)),
        outputs=(value("best"), value("where")),
        several=True,
    )
    leaving = [GraphOutput(name="best", kind="output", target="0")]
    assert "auto best = std::get<0>(" in emit_program(graph_of([unread], leaving))


LAYERS = {
    "conv": lambda: nn.Conv2d(4, 4, 3, padding=1),
    "depthwise": lambda: nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False),
    "norm": lambda: nn.BatchNorm2d(4),
    "relu": lambda: nn.ReLU(inplace=True),
    "gelu": lambda: nn.GELU(),
    "pool": lambda: nn.MaxPool2d(3, 1, 1),
    "average": lambda: nn.AvgPool2d(3, 1, 1),
    "drop": lambda: nn.Dropout(0.5),
    "residual": lambda: Residual(),
}


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        halves = self.conv(x).chunk(2, 1)
        return x + torch.cat((halves[1], halves[0]), 1)


@examples(8)
@given(st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=6), st.booleans())
def test_random_networks_are_emitted(names: list[str], train: bool) -> None:
    # PyTorch itself cannot train through two operations in place on one tensor.
    assume(("relu", "relu") not in pairwise(names))
    # A convolution first: an operation in place on the input itself is refused.
    body = [LAYERS[name]() for name in ("conv", *names)]
    module = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    image = torch.randn(2, 4, 6, 6)
    graph = training(module, image) if train else inference(module, image)
    program = emit_program(graph)
    assert program == emit_program(graph)
    assert_released_once(program)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=40))
def test_random_graphs_release_every_value_once(pairs: list[tuple[int, int]]) -> None:
    names = ["x"]
    nodes = []
    for index, (left, right) in enumerate(pairs):
        operands = (Ref(name=names[left % len(names)]), Ref(name=names[right % len(names)]))
        names.append(f"sum_{index}")
        nodes.append(
            Node(
                name=names[-1],
                op="aten.add.Tensor",
                arguments=operands,
                outputs=(value(names[-1], 2, 4),),
            )
        )
    program = emit_program(
        graph_of(nodes, [GraphOutput(name=names[-1], kind="output", target="0")])
    )
    unread = {name for name in names[1:-1] if program.count(f"{name}.reset()") == 0}
    assert all(f"auto {name} =" not in program for name in unread)
    assert_released_once(program)


# ---------------------------------------------------------------- training


def test_batch_norm_writes_its_running_statistics_in_place() -> None:
    program = emit_program(training(Small(), torch.randn(2, 3, 8, 8)))
    assert "ops::_batch_norm_with_update::call(" in program
    assert "functional" not in program
    assert "legit" not in program
    assert "norm_running_mean = " not in program
    assert "norm_num_batches_tracked = " in program


def test_a_batch_norm_that_runs_twice_writes_the_same_buffers_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.norm(x))

    program = emit_program(training(Twice(), torch.randn(3, 4)))
    assert program.count("ops::_batch_norm_with_update::call(") == 2
    assert program.count("norm_running_mean, norm_running_var, 0.1") == 2


def test_the_backward_of_a_batch_norm_gets_what_its_library_keeps() -> None:
    program = emit_program(training(Small(), torch.randn(2, 3, 8, 8)))
    assert "native_batch_norm_backward" not in program
    [forward] = re.findall(r"std::tie\(([^()]*)\) =\s+ops::_batch_norm_with_update::call", program)
    reserve = forward.split(", ")[-1]
    [backward] = re.findall(r"ops::batch_norm_backward::call\((.*?)\);", program, re.DOTALL)
    assert backward.endswith(f", {reserve}")


def test_a_batch_norm_without_weight_stays_pytorchs_own() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4, affine=False)
            self.head = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.head(x))

    program = emit_program(training(Plain(), torch.randn(3, 4)))
    assert "ops::_native_batch_norm_legit::call(" in program
    assert "ops::native_batch_norm_backward::call(" in program


def batch_norm(outputs: list[GraphOutput], *more: Node) -> str:
    """A step with one batch norm whose statistics leave as the outputs say."""
    inputs = [GraphInput(value=value("x", 2, 4), kind="input", target="0")]
    for name in ("mean", "var"):
        inputs.append(GraphInput(value=value(name, 4), kind="buffer", target=name))
    made = tuple(value(name, 4) for name in ("y", "save_mean", "save_var", "mean_1", "var_1"))
    node = Node(
        name="norm",
        op="aten._native_batch_norm_legit_functional.default",
        arguments=(Ref(name="x"), None, None, Ref(name="mean"), Ref(name="var"), True, 0.1, 1e-5),
        outputs=made,
        several=True,
    )
    return emit_program(graph_of([node, *more], outputs, *inputs))


NEW_STATISTICS = [
    GraphOutput(name="mean_1", kind="buffer", target="mean"),
    GraphOutput(name="var_1", kind="buffer", target="var"),
]
RESULT = GraphOutput(name="y", kind="output", target="0")


def test_statistics_are_written_in_place_only_where_nobody_else_reads_the_old_ones() -> None:
    assert "legit::call(" in batch_norm([*NEW_STATISTICS, RESULT])

    reader = Node(
        name="late",
        op="aten.relu.default",
        arguments=(Ref(name="mean"),),
        outputs=(value("late", 4),),
    )
    late = GraphOutput(name="late", kind="output", target="1")
    assert "functional::call(" in batch_norm([*NEW_STATISTICS, RESULT, late], reader)


def test_statistics_that_also_leave_otherwise_are_not_written_in_place() -> None:
    also = GraphOutput(name="mean_1", kind="output", target="1")
    program = batch_norm([*NEW_STATISTICS, RESULT, also])
    assert "functional::call(" in program
    assert "    mean = mean_1;" in program


def test_buffers_that_change_places_are_copied_first() -> None:
    inputs = [
        GraphInput(value=value(name, 4), kind="buffer", target=name) for name in ("old", "new")
    ]
    outputs = [
        GraphOutput(name="old", kind="buffer", target="new"),
        GraphOutput(name="new", kind="buffer", target="old"),
    ]
    lines = code_lines(emit_program(graph_of([], outputs, *inputs)))
    assert lines[1:5] == [
        "auto new_v1_new = old.clone()",
        "auto old_new = new_v1.clone()",
        "new_v1 = new_v1_new",
        "old = old_new",
    ]


def test_dropout_can_be_switched_off_at_run_time() -> None:
    program = emit_program(training(Small(), torch.randn(2, 3, 8, 8)))
    assert "ops::native_dropout::call(mean, probability(0.25), true)" in program
    assert re.search(r"native_dropout_backward::call\(\s*\w+, \w+, dropout_scale\(1\.33", program)
    assert "probability" not in emit_program(inference(Small(), torch.randn(2, 3, 8, 8)))


def test_gradients_and_loss_leave_by_the_names_of_the_state() -> None:
    program = emit_program(training(Small(), torch.randn(2, 3, 8, 8)))
    for name in ("stem_weight", "stem_bias", "norm_weight", "norm_bias", "head_weight"):
        assert f"    {name}.gradient = " in program
    assert "    result.loss = " in program
    assert 'Buffer norm_running_mean{*this, "norm.running_mean", updated};' in program


# ---------------------------------------------------------------- what cannot be emitted


def test_an_operation_without_a_cpp_form_names_node_and_layer() -> None:
    with pytest.raises(Unsupported) as caught:
        emit_program(one_node("mylib.rotate.default", Ref(name="x")))
    error = caught.value
    assert (error.level, error.node, error.module) == ("libtorch", "layer1_0_it", "layer1.0")
    assert "mylib.rotate.default" in error.reason


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (one_node("aten.no_such_thing.default", Ref(name="x")), "no operator"),
        (one_node("aten.rand_like.default", Ref(name="x")), "random"),
        (one_node("aten.bernoulli.p", Ref(name="x"), 0.5), "random"),
        (one_node("aten.item.default", Ref(name="x")), "something other than tensors"),
        (one_node("aten.relu_.default", Ref(name="x")), "overwrites the input x"),
        (one_node("aten.relu.default", Ref(name="x"), 1), "takes 1 arguments"),
        (one_node("aten.relu.default"), "without its argument self"),
        (one_node("aten.relu.default", Ref(name="x"), upside_down=True), "no argument upside_down"),
        (one_node("aten.__lshift__.Tensor", Ref(name="x"), Ref(name="x")), "do not declare"),
        (one_node("aten.sum.dim_IntList", Ref(name="x"), ("N",)), "is not an argument of type"),
        (one_node("aten.normal.Tensor_float", Ref(name="x"), 1.0, generator=0), "type Generator"),
    ],
)
def test_what_cannot_be_emitted_says_why(graph: Graph, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        emit_program(graph)
