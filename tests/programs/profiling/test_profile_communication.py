"""Communication between ranks in their traces: how much of it is exposed, and who arrives last."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

import golow
from golow.levels.starter import Starter
from golow.programs.profiling import store
from golow.programs.profiling.communication import Communication, communication
from golow.programs.profiling.divided import write_divided
from golow.programs.profiling.trace import Trace, read_trace
from golow.records.comparison import LayerTime
from golow.records.errors import GolowError
from golow.report.page import profile as page
from golow.report.profiling.table import render
from golow.worker.ranks import joined, rank_file
from support.records import profiles
from support.records.traces import event, step, written
from support.workers.ranked_bundles import QUICK, RANKS, planted, ranked_bundle


def test_on_a_cpu_what_runs_beside_gloo_overlaps(tmp_path: Path) -> None:
    """An operator that only starts a reduction is not computing."""
    of_rank = written(
        tmp_path,
        [
            step(0, 0, 100),
            event("autograd", "cpu_op", 10, 40),
            event("c10d::allreduce_", "cpu_op", 30, 38, **{"Input Dims": [[[6]], []]}),
            event("gloo:all_reduce", "user_annotation", 30, 60, lane="gloo", **SIZES),
            event("aten::mm", "cpu_op", 45, 50),
            event("gloo:all_reduce", "user_annotation", 70, 90, lane="gloo", **SIZES),
        ],
    )
    first = exchanged([of_rank, of_rank]).ranks[0]
    assert first.communication == pytest.approx(50e-6)
    assert first.exposed == pytest.approx(43e-6)  # without 38 to 40, and 45 to 50
    assert first.waited == 0


SIZES = {"Input Dims": [[2, 3]]}


def test_on_a_gpu_kernels_overlap_and_operators_do_not(tmp_path: Path) -> None:
    of_rank = written(
        tmp_path,
        [
            step(0, 0, 100),
            event("aten::mm", "cpu_op", 0, 100),
            event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "kernel", 20, 60, lane="nccl"),
            event("gemm", "kernel", 10, 50, lane="stream"),
            event("nccl:all_reduce", "user_annotation", 0, 5),
        ],
    )
    found = exchanged([of_rank, of_rank])
    assert found.ranks[0].communication == pytest.approx(40e-6)
    assert found.ranks[0].exposed == pytest.approx(10e-6)
    assert len(found.collectives) == 1


def test_the_last_to_arrive_waits_for_nobody(tmp_path: Path) -> None:
    """Whatever the clocks of the ranks say; operations that run at once are told apart."""
    traces = []
    for rank, (large, small) in enumerate([(30, 4), (10, 6)]):
        shift = 1000 * rank
        events = [step(0, shift, shift + 100)]
        sizes = {"large": [[500, 500]], "small": [[3]]}
        begun = {"large": 20, "small": 21} if rank == 0 else {"large": 22, "small": 20}
        for name, took in (("large", large), ("small", small)):
            start = shift + begun[name]
            details = {"lane": name, "Input Dims": sizes[name]}
            events.append(event("gloo:all_reduce", "cpu_op", start, start + took, **details))
        folder = tmp_path / str(rank)
        folder.mkdir()
        traces.append(written(folder, events))
    large_one, small_one = exchanged(traces).collectives
    assert (large_one.elements, small_one.elements) == (250_000, 3)
    assert large_one.seconds == pytest.approx(10e-6)
    assert large_one.waits == pytest.approx((20e-6, 0))
    assert large_one.last == (0, 1)
    assert small_one.waits == pytest.approx((0, 2e-6))
    assert small_one.last == (1, 0)


def test_a_direct_levels_averages_have_the_layers_of_the_backward_pass(tmp_path: Path) -> None:
    def steps(wait: int) -> tuple[LayerTime, ...]:
        return (
            LayerTime(modules=("a",), phase="forward", operation="linear", ns=(5, 5)),
            LayerTime(modules=("b", "act"), phase="backward", operation="linear", ns=(7, 7)),
            LayerTime(modules=("",), phase="backward", operation="all_reduce", ns=(9 + wait, 9)),
            LayerTime(modules=("a",), phase="backward", operation="linear", ns=(7, 7)),
            LayerTime(modules=("",), phase="backward", operation="all_reduce", ns=(3, 3)),
        )

    for rank, wait in enumerate((0, 4)):
        file = rank_file(tmp_path / "trace.json", rank)
        write_divided(steps(wait), file, on_device=False)
    found = exchanged([read_trace(rank_file(tmp_path / "trace.json", rank)) for rank in range(2)])
    assert [one.layers for one in found.collectives] == [("b", "act"), ("a",)]
    assert found.collectives[0].waits == pytest.approx((0, 2e-9))
    assert found.ranks[1].exposed == found.ranks[1].communication == pytest.approx(14e-9)
    shown = msgspec.structs.replace(profiles.level(), communication=found)
    store.save((profiles.profile([shown]),), tmp_path)
    again = store.load(tmp_path)
    assert again[0].levels[0].communication == found
    console = Console(file=io.StringIO(), width=100)
    render(again, console=console)
    told = console.file.getvalue()  # type: ignore[attr-defined]
    page_of = msgspec.json.encode(page.sections(again, "a")).decode()
    for words in ("b to act", "arrives last", "waits for others"):
        assert words in told
        assert words in page_of


def test_one_rank_has_none(tmp_path: Path) -> None:
    trace = written(tmp_path, [step(0, 0, 10), event("aten::mm", "cpu_op", 0, 5)])
    assert communication([trace]) is None
    assert communication([trace, trace]) is None


def test_the_layers_of_every_rank_are_kept() -> None:
    answers = [{"ok": True, "layers": [rank]} for rank in range(2)]
    assert joined(answers)["ranks"] == [[0], [1]]


@pytest.mark.usefixtures("forked")
def test_a_rank_that_comes_late_is_named(tmp_path: Path) -> None:
    bundle = ranked_bundle(tmp_path)
    late, file = planted("late"), tmp_path / "trace.json"
    launch = late.prepare(bundle, tmp_path)
    starter = Starter(QUICK, ranks=RANKS)
    with starter.worker("late", launch, bundle) as worker:
        worker.load(bundle.folder)
        worker.time(1, 1)
        worker.profile(2, file)
    found = exchanged([read_trace(rank_file(file, rank)) for rank in range(RANKS)])
    [one] = found.collectives
    assert one.last == (0, 1)
    assert found.ranks[0].waited > found.ranks[1].waited == 0
    assert found.ranks[0].exposed > 0


def test_the_way_down_is_of_one_process() -> None:
    with pytest.raises(GolowError, match="one process"):
        golow.profile("mlp", mode="train", ranks=2, way_down="0", quiet=True)


def exchanged(traces: list[Trace]) -> Communication:
    found = communication(traces)
    assert found is not None
    return found
