"""`--locate` names the operation in which an error was planted."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.check.checked_level import CheckedLevel
from golow.check.locating import Level as Suspect
from golow.check.locating import locate
from golow.levels import ladder
from golow.levels.level import Launch
from golow.levels.named_level import ChosenLevel
from golow.levels.starter import Starter
from golow.lower.ir.graph import Graph
from golow.observer import Silent
from golow.programs.comparison.bench import Bench, open_bench
from golow.programs.comparison.settings import ComparisonSettings
from golow.records.comparison import Check, Located, TensorError
from golow.records.errors import GolowError
from golow.records.workload import Mode
from golow.workload.bundle import Bundle
from golow.workload.request import Request

pytestmark = pytest.mark.usefixtures("forked")

COUNT = itertools.count()


class Layers(nn.Module):
    """Enough operations for several builds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.first(x))
        x = x + torch.tanh(self.second(x))
        x = x * torch.sigmoid(x) + x.softmax(-1)
        return functional.silu(self.third(x)) - x.mean(-1, keepdim=True)


def with_fault(graph: Graph, op: str, instead: str) -> Graph:
    """The graph with another operation."""
    nodes = tuple(
        msgspec.structs.replace(n, op=instead, arguments=n.arguments[:1], keywords={})
        if n.op == op
        else n
        for n in graph.nodes
    )
    return msgspec.structs.replace(graph, nodes=nodes)


def planted(name: str, op: str, instead: str, home: Path) -> ChosenLevel:
    """A level that computes another operation wherever the graph has this one."""
    level = ladder.choose(name, "infer", "cpu").level

    def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
        assert bundle.graph is not None
        other = Bundle(home / f"other-{next(COUNT)}")
        other.folder.mkdir()
        for file in bundle.folder.iterdir():
            (other.folder / file.name).symlink_to(file)
        other.file("graph.json").unlink()
        other.file("constants.safetensors").unlink()
        other.write_graph(with_fault(bundle.graph, op, instead), {})
        return level.prepare(other, variant, cache)

    return ChosenLevel(dataclasses.replace(level, prepare=prepare), "")


@pytest.fixture(scope="module", params=["infer", "train"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    torch.manual_seed(0)
    mode: Mode = request.param
    targets = torch.arange(4) if mode == "train" else None
    wanted = Request(Layers(), torch.randn(4, 8), mode=mode, targets=targets)
    settings = ComparisonSettings(time_limit=0.1, locate=True)
    with Starter() as starter, open_bench(wanted, settings, Silent(), starter) as opened:
        yield opened


def located(bench: Bench, choice: ChosenLevel) -> Located:
    standard = bench._standard(
        CheckedLevel(
            ladder.choose("eager", bench.workload.mode, "cpu"),
            bench.bundle,
            bench.cache,
            bench.starter,
        ),
        1,
    )
    with CheckedLevel(choice, bench.bundle, bench.cache, bench.starter) as level:
        level.start(standard, False, "1 of 1")
    assert level.check.verdict == "differs", level.check.reason
    return locate(Suspect(choice, bench.bundle, bench.cache, bench.starter), level.check)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "instead"),
    [
        ("aten.gelu.default", "aten.relu.default"),
        ("aten.silu.default", "aten.relu.default"),
    ],
)
def test_the_operation_is_named(bench: Bench, op: str, instead: str, tmp_path: Path) -> None:
    found = located(bench, planted("onednn", op, instead, tmp_path))
    assert found.operation == op
    assert found.error > found.limit
    assert 1 <= found.builds <= 3
    assert op in found.words


@pytest.mark.slow
def test_a_comparison_says_where(bench: Bench, tmp_path: Path) -> None:
    if bench.workload.mode == "train":
        pytest.skip("one mode is enough")
    eager = ladder.choose("eager", "infer", "cpu")
    wrong = planted("onednn", "aten.tanh.default", "aten.sin.default", tmp_path)
    _, entrant = bench.race([eager, wrong]).entrants
    assert entrant.level.check.verdict == "differs"
    words = entrant.level.check.words
    assert "; first wrong at aten.tanh.default in the model's forward pass after " in words


@pytest.mark.whole_network
def test_another_level_is_built_again_likewise(bench: Bench, tmp_path: Path) -> None:
    op = "aten.tanh.default"
    assert located(bench, planted("libtorch", op, "aten.sin.default", tmp_path)).operation == op


@pytest.mark.slow
def test_a_fault_that_vanishes_is_in_a_fusion(bench: Bench, tmp_path: Path) -> None:
    """The verdict is an old one: what is built again is right."""
    name = f"0/{'output/0' if bench.workload.mode == 'infer' else 'loss/loss'}"
    error = TensorError(
        name=name, elements=32, scale=1.0, error=0.5, eager_error=0.0, limit=1e-6, passed=False
    )
    choice = ladder.choose("onednn", bench.workload.mode, "cpu")
    suspect = Suspect(choice, bench.bundle, bench.cache, bench.starter)
    found = locate(suspect, Check(verdict="differs", tensors=(error,)))
    assert not found.operation
    assert "fusion" in found.words


def test_what_cannot_be_located_is_said(bench: Bench) -> None:
    choice = ladder.choose("eager", bench.workload.mode, "cpu")
    suspect = Suspect(choice, bench.bundle, bench.cache, bench.starter)
    with pytest.raises(GolowError, match="captured graph"):
        locate(suspect, Check(verdict="differs"))
