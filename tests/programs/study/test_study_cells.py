"""Axes become cells: all of them, in an order whose beginning spans the grid, each with its key."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.programs.study.cells import bisected, cells, key
from golow.programs.study.study_record import Cell, CellGeneration, StudyLimits, StudyLoad, asks
from golow.records.workload import Mode
from support.examples import examples
from support.records import studies

CELL = Cell(
    model="mlp",
    mode="infer",
    batch=8,
    resolution=None,
    precision="default",
    threads=2,
    device="cpu",
    levels=("eager", "torchscript", "onednn"),
    interval=0.02,
    seconds=10.0,
)

AXIS = st.lists(st.integers(1, 4000), min_size=1, max_size=9, unique=True).map(sorted).map(tuple)


@pytest.mark.slow
@examples(30)
@given(batch=AXIS, resolution=AXIS, threads=AXIS)
def test_every_crossing_is_a_cell_once(
    batch: tuple[int, ...], resolution: tuple[int, ...], threads: tuple[int, ...]
) -> None:
    modes: tuple[Mode, ...] = ("infer", "train")
    found = cells(studies.study(batch=batch, resolution=resolution, threads=threads, mode=modes), 1)
    at = [(cell.batch, cell.resolution, cell.threads, cell.mode) for cell in found]
    assert sorted(at) == sorted(product(batch, resolution, threads, modes))
    assert len({key(cell) for cell in found}) == len(found)


@given(batch=AXIS, resolution=AXIS)
def test_the_first_cells_are_the_corners_and_each_round_halves_the_gaps(
    batch: tuple[int, ...], resolution: tuple[int, ...]
) -> None:
    found = [
        (batch.index(cell.batch), resolution.index(cell.resolution or 0))
        for cell in cells(studies.study(batch=batch, resolution=resolution), 1)
    ]
    corners = set(product({0, len(batch) - 1}, {0, len(resolution) - 1}))
    assert set(found[: len(corners)]) == corners
    turns = bisected(len(batch)), bisected(len(resolution))
    rounds = [max(turns[0][x], turns[1][y]) for x, y in found]
    assert rounds == sorted(rounds)


def test_the_grid_of_the_paper_begins_with_its_corners() -> None:
    sides = tuple(2**n for n in range(3, 11))
    found = cells(studies.study(batch=sides, resolution=sides), 1)
    assert [(cell.batch, cell.resolution) for cell in found[:9]] == [
        *((8, 8), (1024, 8), (8, 1024), (1024, 1024)),
        *((64, 8), (8, 64), (64, 64), (1024, 64), (64, 1024)),
    ]


@pytest.mark.parametrize(
    ("count", "turns"),
    [(1, [0]), (2, [0, 0]), (3, [0, 1, 0]), (5, [0, 2, 1, 2, 0]), (8, [0, 2, 3, 1, 3, 2, 3, 0])],
)
def test_turns(count: int, turns: list[int]) -> None:
    assert bisected(count) == turns


def test_cells_of_one_place_in_the_grid_follow_one_another() -> None:
    study = studies.study(model=("mlp", "lenet5"), mode=("infer", "train"), resolution=(16, 32))
    found = cells(study, 1)
    places = [(cell.batch, cell.resolution) for cell in found]
    assert [places[n] for n in range(0, len(places), 4)] == list(dict.fromkeys(places))
    assert [(cell.model, cell.mode) for cell in found[:4]] == list(
        product(("mlp", "lenet5"), ("infer", "train"))
    )


def test_doubling_goes_up_to_all_hardware_threads_of_the_machine() -> None:
    study = studies.study(threads="doubling", batch=(8,), resolution=())
    assert [cell.threads for cell in cells(study, 1)] == [1]
    assert {cell.threads for cell in cells(study, 6)} == {1, 2, 4, 6}
    assert {cell.threads for cell in cells(study, 8)} == {1, 2, 4, 8}


def test_levels_are_those_that_can_run_so() -> None:
    study = studies.study(
        mode=("infer", "train"), levels=("vendor", "onednn", "openvino", "cudagraph"), batch=(1,)
    )
    levels = {cell.mode: cell.levels for cell in cells(study, 1)}
    assert levels == {"infer": ("eager", "onednn", "openvino"), "train": ("eager", "onednn")}


def test_ranks_train_and_have_a_baseline_of_their_own() -> None:
    study = studies.study(
        mode=("infer", "train"), levels=("ddp", "vendor", "libtorch"), batch=(1,), ranks=(1, 2)
    )
    levels = {(cell.mode, cell.ranks): cell.levels for cell in cells(study, 4)}
    assert levels == {
        ("infer", 1): ("eager", "onednn", "libtorch"),
        ("train", 1): ("eager", "onednn", "libtorch"),
        ("train", 2): ("ddp", "onednn"),
    }
    on_gpus = studies.study(
        mode=("train",), levels=("ddp", "vendor"), batch=(1,), device="cuda", gpus=(1, 4)
    )
    levels = {(cell.resolution, cell.ranks): cell.levels for cell in cells(on_gpus, 4)}
    assert levels == {
        (side, ranks): (baseline, "cudnn")
        for side in on_gpus.resolution
        for ranks, baseline in ((1, "eager"), (4, "ddp"))
    }
    assert all(asks(on_gpus, cell) for cell in cells(on_gpus, 4))


# ---------------------------------------------------------------- keys


def test_the_key_of_a_cell_stays_what_it_was() -> None:
    """A change of this key makes every study on every disk be measured anew: raise the format
    version with it."""
    assert key(CELL) == "347af0c58098e012"


def test_the_order_of_levels_is_no_part_of_the_key_and_all_else_is() -> None:
    turned = msgspec.structs.replace(CELL, levels=("onednn", "eager", "torchscript"))
    assert key(turned) == key(CELL)
    changes: list[dict[str, object]] = [
        {"model": "lenet5"},
        {"mode": "train"},
        {"batch": 9},
        {"resolution": 28},
        {"input": "3x8x8"},
        {"precision": "ieee"},
        {"threads": None},
        {"device": "cuda"},
        {"levels": ("eager",)},
        {"channels": 1},
        {"classes": 10},
        {"interval": 0.01},
        {"seconds": 11.0},
        {"source": "0" * 64},
        {"pretrained": False},
        {"phase": "decode"},
        {"load": StudyLoad(rate=(50.0,))},
        {"generation": CellGeneration(prompt=8, tokens=4)},
        {"calibrate": "digits"},
        {"ranks": 2},
    ]
    assert {name for change in changes for name in change} == set(Cell.__struct_fields__)
    others = {key(msgspec.structs.replace(CELL, **change)) for change in changes}
    assert len(others | {key(CELL)}) == len(changes) + 1


def test_what_only_ends_a_cell_does_not_change_it() -> None:
    limits = StudyLimits(cell_seconds=1.0, memory="1 GiB")
    before, after = cells(studies.study(), 1), cells(studies.study(limits=limits), 1)
    assert [key(cell) for cell in before] == [key(cell) for cell in after]
