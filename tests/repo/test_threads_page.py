"""The figure of threads in the results: an epoch follows from the page's other measurements."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from support.places import DOCS

STEPS = 938  # of an epoch: 60,000 images in batches of 64
LEVELS = ["eager", "torchscript", "libtorch", "onednn, cudnn"]


@pytest.fixture(scope="module")
def figure() -> Iterator[ModuleType]:
    """docs/generate_threads_figure.py, which imports the records' module beside it."""
    sys.path.insert(0, str(DOCS))
    yield import_module("generate_threads_figure")
    sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def tables(figure: ModuleType) -> dict[str, Any]:
    return dict(figure.stored("threads"))


def value(cell: Any) -> float:
    return float(cell[0] if isinstance(cell, list) else cell)


@pytest.mark.parametrize("level", LEVELS)
def test_an_epoch_on_the_gpu_is_so_many_measured_steps(
    level: str, figure: ModuleType, tables: dict[str, Any]
) -> None:
    name = level.rpartition(" ")[2]
    steps = [value(row[2]) for row in tables["steps on a GPU"].rows if row[1] == name]
    epochs = dict(figure.rows(tables["epochs"]))
    assert epochs[level][2:] == pytest.approx([STEPS * step * 1e-3 for step in steps], rel=0.01)


@pytest.mark.parametrize("level", LEVELS)
def test_an_epoch_on_the_cpu_is_the_pages_epoch(
    level: str, figure: ModuleType, tables: dict[str, Any]
) -> None:
    name = level.partition(",")[0]
    [(every, one)] = [row[1:3] for row in tables["epochs on a CPU"].rows if row[0] == name]
    epochs = dict(figure.rows(tables["epochs"]))
    assert epochs[level][:2] == [value(one), value(every)]


def test_the_drawn_figure_is_that_of_the_table(figure: ModuleType, tables: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib")
    drawn = figure.figure_of(tables["epochs"])
    shown = [list(line.get_ydata()) for axes in drawn.axes for line in axes.lines]
    epochs = dict(figure.rows(tables["epochs"]))
    assert sorted(shown) == sorted(part for row in epochs.values() for part in (row[:2], row[2:]))
