"""What a cell will need is taken from those that were measured; what is certain to be too much is
not tried."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from golow.programs.study.cell import held_together
from golow.programs.study.cells import cells, key
from golow.programs.study.forecast import Devices, expected_seconds, outlook, so_far_at_a_time
from golow.programs.study.memory import (
    HELD_MARGIN,
    REACH,
    expected_bytes,
    guessed_bytes,
    held_bytes,
    limit_bytes,
    too_large,
)
from golow.programs.study.study_record import Cell, CellRecord, StudyLimits
from golow.records.comparison import Quantity, Run
from support.records import studies

GIB = 2**30
[CELL] = cells(studies.study(batch=(8,), resolution=(64,)), 1)


def cell(batch: int, resolution: int = 64, **changes: object) -> Cell:
    return msgspec.structs.replace(CELL, batch=batch, resolution=resolution, **changes)


def record(of: Cell, **found: object) -> CellRecord:
    made = CellRecord(format_version=1, key=key(of), cell=of, state="done", created="")
    return msgspec.structs.replace(made, **found)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80%", 80),
        ("12.5 %", 12),
        ("40 GiB", 40 * GIB),
        ("1.5 MiB", 3 * 2**19),
        ("40 GB", None),
        ("40", None),
        ("-1%", None),
        ("GiB", None),
        ("", None),
    ],
)
def test_limits(text: str, size: int | None) -> None:
    assert limit_bytes(text, 100) == size


def test_a_share_of_nobody_knows_what_is_no_limit() -> None:
    assert limit_bytes("80%", None) is None
    assert limit_bytes("1 KiB", None) == 1024


def test_the_need_is_in_proportion_to_the_pixels() -> None:
    known = [
        record(cell(16), needed_bytes=160),
        record(cell(64), needed_bytes=640),
        record(cell(32), needed_bytes=2000),  # an operation took much for itself
        record(cell(128), state="failed"),
    ]
    assert expected_bytes(cell(128), known) == 1280
    assert expected_bytes(cell(64, 128), known) == 2560
    assert expected_bytes(cell(128), known[1:]) == 1280
    assert expected_bytes(cell(128), known[:1]) is None
    assert expected_bytes(cell(128, mode="train"), known) is None  # of another kind


def test_a_small_cell_tells_nothing_of_a_far_larger_one() -> None:
    known = [record(cell(n), needed_bytes=n) for n in (8, 16)]
    assert expected_bytes(cell(8 * REACH), known) == 8 * REACH
    assert expected_bytes(cell(8 * REACH + 1), known) is None
    assert expected_bytes(cell(1), known) == 1


# ResNet-50 in training at four levels on an H200: batch, resolution, MiB that an iteration of eager
# needed, MiB that all levels held (docs/results/levental2020.csv). At 1024 pictures of 8x8 one
# convolution of cuDNN takes gigabytes for itself.
SMALL = [(8, 16, 2, 3828), (64, 8, 11, 3882), (8, 64, 47, 4046), (1024, 8, 4254, 28940)]
LARGER = [(8, 256, 810, 7726), (64, 128, 1645, 11590), (1024, 16, 4500, 29962)]


def measured(*sizes: tuple[int, int, int, int]) -> list[CellRecord]:
    return [
        record(cell(batch, side), needed_bytes=needed * 2**20, held_bytes=held * 2**20)
        for batch, side, needed, held in sizes
    ]


def test_gigabytes_of_one_operation_do_not_grow_with_the_pixels() -> None:
    """A line through the two largest cells said 1048 GiB, and the cell was skipped."""
    large, limit = cell(8, 1024), 112 * GIB  # 13.3 GiB, and 64.9 by all levels
    assert too_large(large, measured(*SMALL), limit) == ""
    known = measured(*SMALL, *LARGER)
    assert expected_bytes(large, known) == pytest.approx(13.3 * GIB, rel=0.1)
    assert held_bytes(large, known) == pytest.approx(64.9 * GIB, rel=0.3)
    assert held_bytes(cell(32, 64), known) == pytest.approx(4.6 * GIB, rel=0.3)


def test_what_a_cell_holds_is_on_the_line_of_what_others_held() -> None:
    known = [
        record(cell(8), needed_bytes=GIB, held_bytes=22 * GIB),
        record(cell(16), needed_bytes=2 * GIB, held_bytes=42 * GIB),
    ]
    assert held_bytes(cell(32), known) == round(HELD_MARGIN * 82 * GIB)
    guessed = held_bytes(cell(32), known[:1])
    assert guessed != held_bytes(cell(32), known)
    without_one = [known[0], msgspec.structs.replace(known[1], out_of_memory=("torchscript",))]
    assert held_bytes(cell(32), without_one) > guessed  # by what eager needs, of which two tell
    of_other_levels = [record(cell(n, levels=("eager",)), held_bytes=n * GIB) for n in (8, 16)]
    assert held_bytes(cell(32), of_other_levels) == guessed
    small_levels = [msgspec.structs.replace(each, held_bytes=GIB) for each in known]
    assert held_bytes(cell(32), small_levels) == round(HELD_MARGIN * 2 * 4 * GIB)  # in float64


def on_device(run: Run, size: int, *others: str) -> Run:
    conditions = msgspec.structs.replace(run.conditions, resident_with=others)
    memory = (Quantity(name="device_used", unit="B", value=size),)
    return msgspec.structs.replace(run, conditions=conditions, memory=memory)


def test_what_levels_held_beside_one_another() -> None:
    made = studies.comparison()
    eager, script = made.runs
    both = (on_device(eager, 30, "torchscript"), on_device(script, 12, "eager"))
    assert held_together(msgspec.structs.replace(made, runs=both)) == 42
    failed = msgspec.structs.replace(script, blocks=())
    alone = (on_device(eager, 30), failed)
    assert held_together(msgspec.structs.replace(made, runs=alone)) == 30
    apart = (on_device(eager, 30), on_device(script, 12))  # in two races
    assert held_together(msgspec.structs.replace(made, runs=apart)) is None
    assert held_together(made) is None  # nobody told


def test_a_cell_far_above_the_limit_is_certain_to_be_too_large() -> None:
    known = [record(cell(8), needed_bytes=GIB), record(cell(16), needed_bytes=2 * GIB)]
    assert too_large(cell(32), known, 3 * GIB) == ""  # 4 of 3: not certain
    reason = too_large(cell(64), known, 3 * GIB)
    assert "about 8 GiB" in reason and "3 GiB are allowed" in reason
    assert too_large(cell(64), known, None) == ""
    assert too_large(cell(64), known[:1], 3 * GIB) == ""


def test_what_ran_out_at_a_smaller_cell_will_at_a_larger_one() -> None:
    known = [record(cell(32, 64), state="failed", out_of_memory=("eager", "torchscript"))]
    for larger in (cell(32, 128), cell(64, 64), cell(64, 128), cell(32, 64)):
        assert "already ran out at a batch of 32 at 64x64" in too_large(larger, known, None)
    for other in (cell(16, 1024), cell(1024, 32), cell(64, 128, mode="train")):
        assert too_large(other, known, None) == ""
    in_ranks = {"mode": "train", "ranks": 2, "levels": ("ddp", "onednn")}
    of_ranks = [record(cell(32, 64, **in_ranks), out_of_memory=("ddp",))]
    assert too_large(cell(64, 64, **in_ranks), of_ranks, None)
    levels_alone = [record(cell(32, 64), out_of_memory=("torchscript",))]
    assert too_large(cell(64, 128), levels_alone, None) == ""


def test_a_guess_grows_with_what_is_trained() -> None:
    small, large = cell(8, model="resnet50"), cell(1024, 1024, model="resnet50", mode="train")
    assert 1e7 < guessed_bytes(small) < 1e9
    assert guessed_bytes(large) > 1e12
    assert guessed_bytes(cell(8, model="mine.py:Net")) > 0


@pytest.mark.slow
def test_what_is_expected_is_said_without_waiting_for_large_imports() -> None:
    code = "import golow.programs.study.forecast, sys; print({'torch', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# ---------------------------------------------------------------- time


def test_the_time_of_a_cell_lies_between_those_of_its_neighbours() -> None:
    known = [record(cell(16), seconds=10.0), record(cell(64), seconds=34.0)]
    limits = StudyLimits()
    assert expected_seconds(cell(32), known, limits) == pytest.approx(18.0)
    assert expected_seconds(cell(1024), known, limits) == 34.0
    assert expected_seconds(cell(1), known, limits) == 10.0
    assert expected_seconds(cell(32, mode="train"), known, limits) == 22.0


def test_the_outlook_says_whether_it_guesses() -> None:
    left, limits = [cell(32), cell(64)], StudyLimits(cell_seconds=1.0)
    first = outlook(3, left, [], limits, GIB)
    assert first.guessed and first.left == 2 and first.limit_bytes == GIB
    assert first.seconds == 2.0  # a cell takes no longer than it may
    later = outlook(3, left, [record(cell(16), seconds=8.0)], limits, GIB, at_a_time=2)
    assert not later.guessed and later.seconds == 8.0
    assert outlook(3, [], [], limits, None).bytes is None


def test_a_cell_that_fills_its_card_leaves_no_time_for_others() -> None:
    known = [record(cell(n), seconds=12.0, needed_bytes=n, held_bytes=n * GIB) for n in (8, 16)]
    limits, left = StudyLimits(), [cell(32), cell(64)]  # 32 and 64 GiB and the margin
    for devices, seconds in (
        (None, 24 / 6),
        (Devices(1, 1000 * GIB), 24 / 6),
        (Devices(1, 40 * GIB), 12 * HELD_MARGIN * 32 / 40 + 12),
        (Devices(2, 40 * GIB), 6 * HELD_MARGIN * 32 / 40 + 6),
    ):
        shown = outlook(4, left, known, limits, None, at_a_time=6, devices=devices)
        assert shown.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("spans", "average"),
    [
        ([], 1.0),
        ([(0, 10)], 1.0),
        ([(0, 10), (10, 20)], 1.0),
        ([(0, 10), (0, 10), (0, 10)], 3.0),
        ([(0, 10), (5, 15)], 20 / 15),
        ([(0, 10), (2, 4), (40, 50), (40, 50)], 32 / 20),  # a night between two sessions
    ],
)
def test_how_many_cells_were_measured_beside_one_another(
    spans: list[tuple[int, int]], average: float
) -> None:
    records = [
        record(cell(8, 8), created=f"2026-11-22T10:00:{start:02}+00:00", seconds=float(end - start))
        for start, end in spans
    ]
    skipped = record(cell(8, 8), state="skipped", created="2026-11-22T12:00:00+00:00")
    assert so_far_at_a_time([skipped, *reversed(records)]) == pytest.approx(average)
