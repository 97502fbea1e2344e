"""Views that no stride describes, and rows as they are stored: what `cudnn` copies of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.cudnn.passes import passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.layouts import Layout, unpacked
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.steps.built_plan import Tensor as Placed
from golow.levels.direct.cudnn.steps.split_axis_views import Folded, folded
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Mode
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound, lowered
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


def places(view: Folded) -> Tensor:
    """Where each element is stored, in the order of the view."""
    found = torch.zeros(1, dtype=torch.int64)
    for part in view.parts:
        found = (found.unsqueeze(1) + part.step * torch.arange(part.size)).flatten()
    return found


@examples(200)
@given(st.data())
def test_a_view_in_parts_is_what_torch_makes_of_it(data: st.DataObject) -> None:
    """Any permutations and shapes, one after the other."""
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    tensor = torch.arange(torch.Size(sizes).numel()).view(sizes)
    view = folded(Placed(0, tuple(sizes), Layout("float32")))
    for _ in range(4):
        if data.draw(st.booleans()):
            order = data.draw(st.permutations(range(tensor.dim())))
            tensor, view = tensor.permute(order), view.permuted(order)
        else:
            shape = data.draw(st.permutations(tensor.shape))
            cut = data.draw(st.integers(0, len(shape)))
            shape = [*shape[:cut], torch.Size(shape[cut:]).numel()]
            made = view.reshaped(shape)
            if made is None:
                continue
            tensor, view = tensor.reshape(shape), made
        assert (
            tuple(torch.Size([p.size for p in axis]).numel() for axis in view.axes) == tensor.shape
        )
        assert places(view).tolist() == tensor.flatten().tolist()
        if view.strides is not None:
            whole = torch.arange(tensor.numel())
            assert whole.as_strided(tensor.shape, view.strides).equal(tensor)


class Encoder(nn.Module):
    """A transformer's layer, whose heads are made of a tensor with its batch second."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


class Vocabulary(nn.Module):
    """Scores of a vocabulary whose rows begin anywhere, and what is read of them."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.whole, self.scores = whole, nn.Linear(16, 1025)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.scores(x.transpose(0, 1))
        return scores if self.whole else scores.softmax(-1)[:, :, 3:9].transpose(0, 1).mean(1)


NETWORKS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "encoder": (Encoder(), (3, 6, 32)),
    "scores": (Vocabulary(True), (3, 5, 16)),
    "read scores": (Vocabulary(False), (3, 5, 16)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, "infer") for name in NETWORKS] + [("read scores", "train"), ("encoder", "train")],
)
def test_every_value_is_where_the_plan_says(name: str, mode: Mode) -> None:
    torch.manual_seed(0)
    module, shape = NETWORKS[name]
    if name == "encoder" and mode == "train":
        module = nn.Sequential(module, nn.Flatten(), nn.Linear(192, 4))
    case = Case(module, torch.randn(shape), mode=mode)
    graph = apply(case.after(*CLEAN_UP), passes(case.workload))
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


def test_attention_of_an_encoder_copies_nothing() -> None:
    """Eleven copies before: for the first product, for query, key and value, and for the last,
    which adds the residual."""
    case = Case(Encoder(), torch.randn(3, 6, 32))
    graph = apply(
        case.after(*CLEAN_UP), passes(msgspec.structs.replace(case.workload, precision="bf16"))
    )
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["bf16"], 1)
    assert_sound(made)
    names = [step.operation for step in made.plan.steps]
    assert names == ["fetch", "layer_norm", "linear", "attention", "linear"]


def test_long_rows_begin_at_multiples_of_16_bytes() -> None:
    case = Case(Vocabulary(True), torch.randn(3, 5, 16))
    graph = apply(case.after(*CLEAN_UP), passes(case.workload))
    engines = AskedEngines()
    build_plan(graph, cast("Engines", engines), TYPES["bf16"], 1)
    assert [(problem.n, problem.d.row) for problem in engines.operations] == [
        (1024, 1032),
        (1, 1032),
    ]


class Half(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 2)[:, :8]


@pytest.mark.parametrize(("outputs", "gap"), [(1029, 3), (1028, 0), (1021, 0)])
def test_an_output_may_have_gaps_between_its_rows(outputs: int, gap: int) -> None:
    """It is not copied together; who reads it takes account of them."""
    graph = lowered(nn.Sequential(nn.Linear(16, outputs)), "infer", (2, 3, 16))
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["ieee"], 4)
    assert {step.operation for step in made.plan.steps} <= {"fetch", "linear"}
    output, pitch = made.outputs["output", "0"], outputs + gap
    assert output.layout.strides(output.shape) == (3 * pitch, pitch, 1)
    memory = np.arange(output.layout.extent(output.shape), dtype=np.float32)
    read = unpacked(memory, output.shape, output.layout)
    assert read.shape == (2, 3, outputs)
    assert (read[0, 0, 1], read[0, 1, 0], read[1, 2, 5]) == (1, pitch, 5 * pitch + 5)


def test_an_output_that_shows_a_part_of_a_tensor_is_a_copy() -> None:
    graph = lowered(Half(), "infer", (2, 16))
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["ieee"], 4)
    assert made.outputs["output", "0"].layout.order == "rows"
