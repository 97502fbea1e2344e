"""Where ranks meet: messages, what must be the same everywhere, and ranks that end."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from golow.levels.called.training.optimizer_settings import settings_of
from golow.levels.called.training.program_ranks import (
    StoreMeeting,
    of_first_rank,
    require_same_settings,
)
from golow.levels.direct.ranks.exchanges import Exchanges
from golow.levels.direct.ranks.meeting import FolderMeeting, Meeting, RankLost, meeting_of_worker
from golow.records.errors import GolowError
from golow.worker.ranks import Place

RANKS = 2


def meetings(kind: str, folder: Path) -> list[Meeting]:
    """The ends of all ranks."""
    if kind == "folder":
        return [FolderMeeting(folder, rank, RANKS, 30) for rank in range(RANKS)]
    store = dist.HashStore()
    return [StoreMeeting(store, rank, RANKS, "test", 30) for rank in range(RANKS)]


@pytest.fixture(params=["folder", "store"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> list[Meeting]:
    return meetings(request.param, tmp_path)


def together(ends: list[Meeting], work: Any) -> list[Any]:
    def caught(end: Meeting) -> Any:
        try:
            return work(end)
        except GolowError as error:
            return error

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(caught, ends))


def test_messages_reach_all_ranks(ends: list[Meeting]) -> None:
    def work(end: Meeting) -> Any:
        said = end.everyone("number", str(end.rank).encode())
        names = [end.numbered("a"), end.numbered("a"), end.numbered("b")]
        return said, end.from_first("first", lambda: f"by {end.rank}".encode()), names

    found = together(ends, work)
    assert found == [([b"0", b"1"], b"by 0", ["a-1", "a-2", "b-1"])] * RANKS


def test_what_differs_is_refused_on_all_ranks(ends: list[Meeting]) -> None:
    assert together(ends, lambda end: end.require_same("x", b"same", "it")) == [None] * RANKS
    for error in together(ends, lambda end: end.require_same("y", bytes([end.rank]), "the plan")):
        assert "the plan of rank 0 differs from that of rank 1" in str(error)


def plan(*shapes: tuple[int, ...], layout: str = "rows") -> Any:
    """A plan that averages these."""
    operands = [SimpleNamespace(shape=shape, layout="plain") for shape in shapes]
    steps = [SimpleNamespace(operation="all_reduce", reads=operands)] if shapes else []
    inputs = {("parameter", "w"): SimpleNamespace(layout=layout)}
    return SimpleNamespace(plan=SimpleNamespace(steps=steps), inputs=inputs)


def test_plans_of_other_exchanges_are_refused(ends: list[Meeting]) -> None:
    """The first ones on all ranks, and each rank's further ones where they are built."""

    def alike(end: Meeting) -> None:
        exchanges = Exchanges(end)
        exchanges.require_fitting(plan())  # it exchanges nothing
        exchanges.require_fitting(plan((3,), (2, 2)))
        exchanges.require_fitting(plan((3,), (2, 2)))
        if end.rank == 1:
            with pytest.raises(GolowError, match="in a different order from the first one"):
                exchanges.require_fitting(plan((2, 2), (3,)))

    assert together(ends, alike) == [None] * RANKS

    def other(end: Meeting) -> None:
        Exchanges(end).require_fitting(plan((3,), layout="rows" if end.rank else "blocks"))

    for error in together(ends, other):
        assert "exchange of gradients of rank 0 differs" in str(error)


def test_a_rank_whose_process_ended_is_not_waited_for(tmp_path: Path) -> None:
    """Long before the time limit."""
    code = (
        "import sys; from pathlib import Path\n"
        "from golow.levels.direct.ranks.meeting import FolderMeeting\n"
        "FolderMeeting(Path(sys.argv[1]), 1, 2)"
    )
    subprocess.run((sys.executable, "-c", code, str(tmp_path)), check=True)
    end = FolderMeeting(tmp_path, 0, 2, patience=3600)
    with pytest.raises(RankLost, match="rank 1 of 2 has ended, and rank 0 waited for it"):
        end.hear("anything", 1)


def test_a_store_that_hears_nothing_ends_the_wait() -> None:
    end = StoreMeeting(dist.HashStore(), 0, 2, "test", patience=0.2)
    with pytest.raises(RankLost, match="rank 1 of 2 did not arrive within"):
        end.hear("anything", 1)


def test_weights_are_those_of_the_first_rank() -> None:
    """In several messages; the store forgets them."""
    store = dist.HashStore()
    ends = [StoreMeeting(store, rank, RANKS, "test", 30) for rank in range(RANKS)]
    states = [{"w": torch.full((3 << 20,), float(n)), "n": torch.tensor(n)} for n in (5, 6)]
    found = together(ends, lambda end: of_first_rank(end, states[end.rank]))  # type: ignore[arg-type]
    for state in found:
        assert torch.equal(state["w"], states[0]["w"])
        assert int(state["n"]) == 5
    assert not store.check(["test/weights-0.0"])


@pytest.mark.parametrize("differs", ["nothing", "rate", "state", "every"])
def test_ranks_that_would_update_otherwise_are_refused(differs: str) -> None:
    """Before the first step: afterwards they diverge in silence, or wait for each other."""

    def work(end: Meeting) -> None:
        other = differs if end.rank == 1 else "nothing"
        module = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(module.parameters(), 0.2 if other == "rate" else 0.1, 0.9)
        for parameter in module.parameters():
            parameter.grad = torch.ones_like(parameter) * (2 if other == "state" else 1)
        optimizer.step()
        settings = settings_of(module, optimizer, None, "onednn")
        require_same_settings(end, settings, 2 if other == "every" else 1)

    store = dist.HashStore()
    found = together([StoreMeeting(store, rank, RANKS, "test", 30) for rank in range(RANKS)], work)
    for error in found:
        assert (error is None) == (differs == "nothing")
        assert error is None or "the optimizer, with its settings" in str(error)


def test_a_worker_meets_where_it_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert meeting_of_worker(1) is None
    with pytest.raises(GolowError, match="name no place"):
        meeting_of_worker(2)
    for name, value in Place(1, 2, tmp_path).variables().items():
        monkeypatch.setenv(name, value)
    found = meeting_of_worker(2)
    assert found is not None
    assert (found.rank, found.ranks) == (1, 2)
    with pytest.raises(GolowError, match="GOLOW_RANKS is 2, and the workload has 3 ranks"):
        meeting_of_worker(3)
