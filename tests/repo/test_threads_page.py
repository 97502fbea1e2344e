"""The table of threads in the results: its figures follow from the page's own measurements."""

from __future__ import annotations

import importlib.util
import re

import pytest

from support.places import DOCS

STEPS = 938  # of an epoch: 60,000 images in batches of 64
spec = importlib.util.spec_from_file_location("figure", DOCS / "generate_threads_figure.py")
assert spec is not None and spec.loader is not None
figure = importlib.util.module_from_spec(spec)
spec.loader.exec_module(figure)

PAGE: str = figure.PAGE.read_text()
TABLE: dict[str, list[float]] = dict(figure.rows(PAGE))


@pytest.mark.parametrize("level", ["eager", "torchscript", "libtorch", "onednn, cudnn"])
def test_an_epoch_on_the_gpu_is_so_many_measured_steps(level: str) -> None:
    measured = PAGE[PAGE.index("## On a GPU") :]
    name = level.rpartition(" ")[2]
    found = re.findall(rf"^\| (?:1|16) \| {name} \| ([\d.]+) ms", measured, re.MULTILINE)
    epochs = [STEPS * float(step) * 1e-3 for step in found]
    assert TABLE[level][2:] == pytest.approx(epochs, rel=0.01)


@pytest.mark.parametrize("level", ["eager", "torchscript", "libtorch", "onednn, cudnn"])
def test_an_epoch_on_the_cpu_is_the_pages_epoch(level: str) -> None:
    name = level.partition(",")[0]
    [(every, one)] = re.findall(
        rf"^\| {name} \| \**(\d+) s\**\*? \| \**(\d+) s", PAGE, re.MULTILINE
    )
    assert TABLE[level][:2] == [float(one), float(every)]


def test_the_drawn_figure_is_that_of_the_table() -> None:
    pytest.importorskip("matplotlib")
    drawn = figure.figure_of(PAGE)
    shown = [list(line.get_ydata()) for axes in drawn.axes for line in axes.lines]
    assert sorted(shown) == sorted(part for row in TABLE.values() for part in (row[:2], row[2:]))


def test_another_table_is_refused() -> None:
    with pytest.raises(ValueError, match="does not begin with the table of CPU, 1 thread"):
        list(figure.rows("| a | b |\n|---|---|\n| c | 1 |\n"))
