"""Gradients of embeddings of few tokens at `cudnn`: the kernel on this processor, on drawn sizes
against float64, and in plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import Tensor, nn

from golow.levels.direct.cudnn.operators.take import FEW, Rows, collect_kernel
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.lower.operators.take import TakeBackward
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import gpu, on_host, run, torch_type
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines
    from golow.lower.ir.graph import Graph
    from golow.records.workload import Mode

__all__ = ["gpu"]  # a fixture
SIZES = some.tuples(
    some.integers(1, 40), some.integers(1, 3), some.sampled_from([1, 3, 8, 16, 24]),
    some.integers(1, 70),
)  # fmt: skip
GAPS = some.tuples(some.integers(0, 3), some.integers(0, 2))


def spread(
    sizes: tuple[int, int, int, int], gaps: tuple[int, int], dtype: str, seed: int
) -> tuple[Tensor, Tensor, Rows, tuple[int, int, int]]:
    """A gradient and indices in memory with gaps, and how they are stored."""
    places, outer, inner, size = sizes
    generator = torch.Generator().manual_seed(seed)
    place, own = inner * (1 + gaps[0]), 1 + gaps[1]
    gradient = torch.randn(outer, places, place, generator=generator).to(torch_type(dtype))
    index = torch.randint(size, (places, own), generator=generator)
    skipped = int(torch.randint(-1, size, (), generator=generator))
    rows = Rows(places=places, outer=outer, inner=inner, size=size, skipped=skipped)
    return gradient, index, rows, (places * place, place, own)


def reference(gradient: Tensor, index: Tensor, rows: Rows) -> Tensor:
    taken = gradient.double()[..., : rows.inner]
    return TakeBackward.meaning(taken, index[:, 0], 1, rows.size, rows.skipped)


@examples(30)
@given(SIZES, GAPS, some.sampled_from(["float32", "bfloat16"]), some.integers(0, 1000))
def test_rows_are_sums_of_their_gradients(
    sizes: tuple[int, int, int, int], gaps: tuple[int, int], dtype: str, seed: int
) -> None:
    """Every element is written: those of rows that no index names, and the skipped row's, are 0."""
    gradient, index, rows, steps = spread(sizes, gaps, dtype, seed)
    vector = 8 if rows.inner % 8 == 0 else 1
    y = torch.full((rows.outer, rows.size, rows.inner), float("nan"))
    kernel = collect_kernel((dtype, "int64", "float32"), rows, vector, steps)
    on_host(kernel, [gradient, index], [y])
    torch.testing.assert_close(y.double(), reference(gradient, index, rows), rtol=1e-5, atol=1e-5)


def test_it_compiles() -> None:
    rows = Rows(places=32, outer=1, inner=16, size=100)
    assert_compile(
        collect_kernel((dtype, index, result), rows, vector, (0, 16, 1))
        for dtype, result in (("float32", "float32"), ("bfloat16", "bfloat16"))
        for index in ("int64", "int32")
        for vector in (1, 4)
    )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_on_a_gpu(gpu: object, dtype: str) -> None:
    gradient, index, rows, steps = spread((256, 2, 24, 3000), (2, 1), dtype, 3)
    y = torch.empty(rows.outer, rows.size, rows.inner)
    run(gpu, collect_kernel((dtype, "int64", "float32"), rows, 4, steps), [gradient, index], [y])
    torch.testing.assert_close(y.double(), reference(gradient, index, rows), rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- in plans


class Tables(nn.Module):
    """Lookups in tables of several sizes, whose rows are joined, as in a recommender."""

    def __init__(self, size: int = 50, width: int = 8) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size + k, width) for k in range(14))
        self.head = nn.Linear(14 * width, 3)

    def forward(self, indices: Tensor) -> Tensor:
        rows = [table(indices[:, k]) for k, table in enumerate(self.tables)]
        return self.head(torch.cat(rows, 1))


def tokens(batch: int) -> Tensor:
    return torch.randint(50, (batch, 14), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def graphs() -> dict[str, Graph]:
    """Each stage of the passes computes the same, as `Case` checks."""
    cases: dict[str, tuple[int, Mode]] = {
        "few": (6, "train"), "many": (FEW + 1, "train"), "infer": (6, "infer"),
    }  # fmt: skip
    return {
        name: Case(Tables(), tokens(batch), mode=mode).lowered("cudnn")
        for name, (batch, mode) in cases.items()
    }


def operations(graph: Graph) -> list[str]:
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["bf16"], 4)
    assert_sound(made)
    return [step.operation for step in made.plan.steps]


@pytest.mark.parametrize("name", ["few", "many", "infer"])
def test_every_value_is_where_the_plan_says(graphs: dict[str, Graph], name: str) -> None:
    follow_with_tokens(graphs[name])


def follow_with_tokens(graph: Graph) -> None:
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    [given] = [item.value for item in graph.inputs if item.kind == "input"]
    tensors[given.name] = tokens(given.shape[0])
    follow(graph, cast("Engines", AskedEngines()), tensors)


class Summed(nn.Module):
    """Sums over rows: the gradient is one number for many elements."""

    def __init__(self, axes: tuple[int, ...], features: int) -> None:
        super().__init__()
        self.table, self.axes = nn.Embedding(50, 8), axes
        self.head = nn.Linear(features, 3)

    def forward(self, indices: Tensor) -> Tensor:
        return self.head(self.table(indices).sum(self.axes, keepdim=True).flatten(1))


@pytest.mark.parametrize(("axes", "features"), [((2,), 14), ((1,), 8), ((1, 2), 1)])
def test_a_gradient_may_repeat_its_elements(axes: tuple[int, ...], features: int) -> None:
    follow_with_tokens(Case(Summed(axes, features), tokens(6), mode="train").lowered("cudnn"))


def test_a_lookup_is_a_step_in_each_direction(graphs: dict[str, Graph]) -> None:
    """Indices and gradients are read where they are stored; rows are written where they are
    joined."""
    found = operations(graphs["few"])
    assert (found.count("take"), found.count("take_backward")) == (14, 14)
    assert not {"copy", "concatenate", "zero", "order"} & set(found)


def test_many_tokens_are_sorted(graphs: dict[str, Graph]) -> None:
    found = operations(graphs["many"])
    assert found.count("order") == found.count("zero") == 14


def test_inference_copies_nothing(graphs: dict[str, Graph]) -> None:
    found = operations(graphs["infer"])
    assert found.count("take") == 14
    assert not {"copy", "concatenate"} & set(found)
