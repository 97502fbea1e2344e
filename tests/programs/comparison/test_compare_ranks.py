"""Comparisons of several ranks: what is refused before anything starts, a race that goes on without
a rank that dies, what is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

import golow
from golow.api import Result
from golow.commands.options import DeviceName
from golow.commands.workload_flags import RanksFlags, ranks_of
from golow.levels import ladder
from golow.levels.level_selection import choices
from golow.levels.starter import Starter
from golow.observer import Silent
from golow.programs.comparison import store
from golow.programs.comparison.bench import open_bench
from golow.programs.comparison.recording import recorded
from golow.programs.comparison.repeat_command import again
from golow.programs.comparison.settings import ComparisonSettings
from golow.records.comparison import Comparison
from golow.records.errors import GolowError
from golow.report.comparison.table import heading, render
from golow.workload.request import Request
from support.processes import mentioning
from support.workers.bundles import NETWORKS, SGD
from support.workers.ranked_bundles import QUICK, RANKS, planted

pytestmark = pytest.mark.usefixtures("forked")

NETWORK = f"{NETWORKS}:Network"


# ---------------------------------------------------------------- refused at once


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ranks": 2}, "2 ranks are for training"),
        ({"ranks": 0, "mode": "train"}, "0 ranks train nothing"),
        ({"ranks": "2", "mode": "train"}, "ranks='2' is not a number"),
        ({"ranks": 100_000, "mode": "train"}, "too many for"),
        ({"ranks": 2, "mode": "train", "life": True}, "--life measures one process"),
        ({"ranks": 2, "mode": "train", "levels": ["eager"]}, "eager runs in one process"),
        ({"ranks": 2, "mode": "train", "levels": ["compile"]}, "use ddp"),
        ({"mode": "train", "levels": ["ddp"]}, "ddp is for training in several ranks"),
        ({"ranks": 2, "mode": "train", "workers": {"mine": "true"}}, "is your own worker"),
    ],
)
def test_what_ranks_cannot_do_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(GolowError) as refused:
        golow.compare(NETWORK, input_shape=(3, 8, 8), quiet=True, **given)  # type: ignore[arg-type]
    assert said in f"{refused.value.message} {refused.value.hint}"


def test_each_device_has_its_own_option() -> None:
    assert ranks_of(RanksFlags(ranks="3"), DeviceName.cpu) == 3
    assert ranks_of(RanksFlags(gpus="4"), DeviceName.cuda) == 4
    assert ranks_of(RanksFlags(), DeviceName.cuda) == 1
    with pytest.raises(GolowError) as refused:
        ranks_of(RanksFlags(ranks="2"), DeviceName.cuda)
    assert refused.value.hint == "use --gpus 2."
    with pytest.raises(GolowError) as refused:
        ranks_of(RanksFlags(gpus="2"), DeviceName.cpu)
    assert refused.value.message == "--gpus 2 needs --device cuda"


def test_several_numbers_of_ranks_are_a_study() -> None:
    for text in ("two", "1.5", ""):
        with pytest.raises(GolowError) as refused:
            ranks_of(RanksFlags(ranks=text), DeviceName.cpu)
        assert refused.value.message == f"--ranks {text} is not a number of ranks"
    with pytest.raises(GolowError) as refused:
        ranks_of(RanksFlags(gpus="1,2"), DeviceName.cuda)
    assert refused.value.message == "--gpus 1,2: a run takes one number of ranks"
    assert "gpus = [1, 2] in its file" in refused.value.hint


def test_the_levels_of_ranks_are_others() -> None:
    names = ladder.default("train", "cpu", 2)
    assert names[:3] == ["ddp", "ddp:compile", "fsdp"]
    assert "ddp" not in ladder.default("train", "cpu")
    assert [one.name for one in choices(["fsdp"], {}, "train", "cpu", 2)] == ["ddp", "fsdp"]


# ---------------------------------------------------------------- a race


@pytest.fixture(scope="module")
def comparison(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Comparison:
    """A race in which one level loses a rank at its first step, and one skips reductions."""
    request.getfixturevalue("forked")
    cache = tmp_path_factory.mktemp("cache")
    wanted = Request(
        NETWORK, mode="train", batch=2, input_shape=(3, 8, 8), optimizer=SGD, ranks=RANKS
    )
    settings = ComparisonSettings(cache=cache, time_limit=3.0, limits=QUICK)
    levels = choices(["ddp", "fsdp"], {}, "train", "cpu", RANKS)
    levels[1:1] = [planted("dies"), planted("skips-in-the-race")]
    with (
        Starter(QUICK, ranks=RANKS) as starter,
        open_bench(wanted, settings, Silent(), starter) as bench,
    ):
        raced = bench.race(levels)
        return recorded(bench.workload, settings, raced, bench.notes)


def test_a_rank_that_dies_ends_its_level_alone(comparison: Comparison) -> None:
    runs = {run.level: run for run in comparison.runs}
    assert runs["dies"].check.verdict == "failed"
    assert "rank 1: died" in runs["dies"].check.reason
    for name in ("ddp", "fsdp"):
        assert runs[name].check.verdict == "match", runs[name].check.words
        assert runs[name].time is not None
    assert not mentioning("planted_ranks.py")


def test_a_reduction_that_is_skipped_in_the_race_is_found_out(comparison: Comparison) -> None:
    """By its ranks' parameters or by a loss, whichever is looked at first."""
    found = next(run for run in comparison.runs if run.level == "skips-in-the-race")
    assert found.check.verdict == "differs"
    by = ("ranks 0 and 1 do not hold the same", "of the race the result of iteration")
    assert any(one in found.check.reason for one in by), found.check.reason


def test_the_record_has_each_ranks_times(comparison: Comparison, tmp_path: Path) -> None:
    loaded = store.load(store.save(comparison, tmp_path))
    assert loaded.workload.ranks == RANKS
    for block in loaded.runs[0].blocks:
        assert len(block.rank_ns) == RANKS
        assert block.host_ns == max(block.rank_ns, key=sum)
    row = store.to_rows(loaded)[0]
    assert row["ranks"] == RANKS
    assert row["throughput"] == pytest.approx(RANKS * 2 / row["time"])


def test_the_table_states_both_batches(
    comparison: Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "2 ranks, batch 2 per rank, 4 in total" in heading(comparison)
    render(comparison)
    shown = " ".join(capsys.readouterr().out.split())
    assert "over ddp" in shown
    assert "over eager" not in shown
    assert "times are those of the slowest rank" in shown
    assert "levels" in repr(Result(comparison)) or "level" in repr(Result(comparison))


def test_the_command_is_repeated_with_its_ranks(comparison: Comparison) -> None:
    command = again("compare", comparison.workload, levels=["ddp"])
    assert "--ranks 2" in command
    assert "--ranks 2" in again("profile", comparison.workload)
    assert again("audit", comparison.workload) == ""
