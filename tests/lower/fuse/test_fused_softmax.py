"""softmax that computes what it is taken of: the passes, the kernel and whole plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.cudnn.operators.fused_softmax import kernel_of
from golow.levels.direct.cudnn.planning import arranged, build_plan
from golow.levels.direct.cudnn.problems.gemm import CONTIGUOUS, Problem
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import Statement
from golow.levels.direct.cudnn.steps.built_plan import EngineCall
from golow.levels.direct.kernel_views import View
from golow.lower.ir.graph import Graph
from golow.lower.ir.verify import verify
from golow.lower.operators.fused_softmax import FusedSoftmax
from golow.lower.operators.softmax import Softmax
from golow.records.workload import Mode
from support.direct.cuda_host import run
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, lowered
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import ROUNDING, torch_type
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, count
from support.graphs.lowering import run as interpreted

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


class Windows(nn.Module):
    """Attention in windows: a bias for each head, then a mask for each window, as in Swin."""

    def __init__(self, tokens: int = 9, masked: bool = True) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(3, tokens, tokens))
        self.register_buffer("mask", torch.randn(4, tokens, tokens))
        self.masked = masked

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = x.unflatten(-1, (3, 3, 8)).permute(2, 0, 3, 1, 4)
        scores = 0.3 * query @ key.mT + self.bias
        if self.masked:
            by_window = scores.unflatten(0, (-1, 4)) + self.mask[:, None]
            scores = by_window.flatten(0, 1)
        return scores.softmax(-1) @ value


class Cut(nn.Module):
    """Scores that a mask cuts off, and which are read elsewhere if ``kept``."""

    def __init__(self, kept: bool, log: bool = False) -> None:
        super().__init__()
        self.kept, self.log = kept, log

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.where(x > -1, x * 2 + 1, -30.0)
        found = scores.log_softmax(-1) if self.log else scores.softmax(-1)
        return found + scores.sum() if self.kept else found


def planned(module: nn.Module, x: Tensor, mode: Mode = "infer") -> Graph:
    """The graph as its plan follows it; it means what the lowered one means."""
    case = Case(module, x, mode=mode)
    before = case.lowered("cudnn")
    after = verify(arranged(before))
    found, wanted = interpreted(after, case.values), interpreted(before, case.values)
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        # A program within a node is not interpreted in float64.
        torch.testing.assert_close(found[name], tensor, check_dtype=False, rtol=1e-5, atol=1e-6)
    return after


def test_bias_and_mask_of_windows_go_into_softmax() -> None:
    graph = planned(Windows(), torch.randn(8, 9, 72))
    assert (count(graph, FusedSoftmax), count(graph, Softmax)) == (1, 0)
    [softmax] = [found for node in graph.nodes if (found := FusedSoftmax.of(node)) is not None]
    assert softmax.rounded and len(list(softmax.parts)) == 2


@pytest.mark.parametrize("log", [False, True])
def test_what_is_read_elsewhere_stays(log: bool) -> None:
    assert count(planned(Cut(True, log), torch.randn(4, 6)), FusedSoftmax) == 0
    assert count(planned(Cut(False, log), torch.randn(4, 6)), FusedSoftmax) == 1


def test_long_rows_stay() -> None:
    assert count(planned(Cut(False), torch.randn(2, 1025)), FusedSoftmax) == 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("masked", [False, True])
def test_plans_compute_what_torch_does(masked: bool, mode: Mode) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(Windows(masked=masked), nn.Flatten(), nn.Linear(3 * 9 * 8, 3))
    graph = lowered(module, mode, (8, 9, 72))
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


@pytest.mark.slow
@pytest.mark.parametrize(("tokens", "pitch"), [(49, 52), (48, 48), (9, 9)])
def test_scores_have_rows_that_begin_at_multiples_of_16_bytes(tokens: int, pitch: int) -> None:
    """Unless the gaps would be large, as from 9 to 12. What a product is told is where its operands
    are stored."""
    torch.manual_seed(0)
    graph = lowered(Windows(tokens), "infer", (4, tokens, 72))
    engines = AskedEngines()
    made = build_plan(graph, cast("Engines", engines), TYPES["default"], 1)
    scores, weighed = engines.operations
    assert isinstance(scores, Problem) and isinstance(weighed, Problem)
    calls = [call for call in made.calls if isinstance(call, EngineCall)]
    for problem, call, name in ((scores, calls[0], "d"), (weighed, calls[1], "a")):
        matrix, tensor = problem.matrices[name], call.arguments[-1 if name == "d" else 0]
        assert (matrix.row, matrix.batch) == (pitch, tokens * pitch)
        assert tensor.layout.strides(tensor.shape)[-3:] == (tokens * pitch, pitch, 1)
        assert problem.batch * tokens * pitch * 4 <= made.plan.buffers[tensor.buffer].bytes
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", engines), tensors)


def test_in_training_they_have_no_gaps() -> None:
    module = nn.Sequential(Windows(49), nn.Flatten(), nn.Linear(3 * 49 * 8, 3))
    engines = AskedEngines()
    graph = lowered(module, "train", (4, 49, 72))
    build_plan(graph, cast("Engines", engines), TYPES["default"], 1)
    problems = [item for item in engines.operations if isinstance(item, Problem)]
    assert all(item.d == CONTIGUOUS for item in problems)


# ---------------------------------------------------------------- the kernel


def kernel_for(
    shape: tuple[int, ...], source: str, result: str, log: bool, gap: int = 0
) -> tuple[Kernel, list[View]]:
    """softmax(x + b + m): b repeats along the first axis, and m, in float32, along the second."""
    repeats = (0, shape[2], 1) if len(shape) == 3 else (0, 1)
    rows = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    views = [
        View(source, rows),
        View(source, repeats, 3),
        View("float32", (*[0] * (len(shape) - 1), 1)),
    ]
    total = [Statement("t0", source, "x0 + x1"), Statement("t1", source, "t0 + x2")]
    return kernel_of(total, views, result, shape, shape[-1] + gap, log), views


@pytest.mark.slow
@examples(40)
@given(
    shape=st.sampled_from([(1, 1), (5, 7), (3, 40), (2, 3, 49), (4, 2, 8), (2, 2, 96), (2, 1024)]),
    source=st.sampled_from(["float32", "bfloat16", "float16"]),
    result=st.sampled_from(["float32", "bfloat16"]),
    log=st.booleans(),
    gaps=st.booleans(),
    seed=st.integers(0, 99),
)
def test_against_float64(
    shape: tuple[int, ...], source: str, result: str, log: bool, gaps: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    gap = -shape[-1] % 8 if gaps else 0
    kernel, views = kernel_for(shape, source, result, log, gap)
    inputs = [(3 * torch.randn(4096)).to(torch_type(view.dtype)) for view in views]
    y = torch.full((*shape[:-1], shape[-1] + gap), torch.nan).to(torch_type(result))
    arrays = [tensor.view(-1).view(torch.uint8).numpy() for tensor in (*inputs, y)]
    run(kernel, arrays)
    seen = [
        tensor.as_strided(shape, view.strides, view.start).double()
        for tensor, view in zip(inputs, views, strict=True)
    ]
    x = seen[0] + seen[1] + seen[2]
    wanted = x.log_softmax(-1) if log else x.softmax(-1)
    # x is rounded in float32, which moves the result by as much where it is a logarithm.
    absolute = 2.0**-21 * float(x.abs().max()) if log else 1e-9
    assert y[..., shape[-1] :].isnan().all()
    torch.testing.assert_close(
        y[..., : shape[-1]].double(), wanted, rtol=max(ROUNDING[result], 2.0**-19), atol=absolute
    )


def test_it_compiles_for_a_gpu() -> None:
    shapes = [(2, 3, 49), (4, 2, 64)]
    assert_compile(
        kernel_for(shape, "bfloat16", "bfloat16", log)[0] for shape in shapes for log in (0, 1)
    )
