"""The benchmark of unified memory, as far as it needs no card: sizes, sums, rounds, and what is
made of a record."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unified_memory as benchmark
import unified_memory_report as report
from golow.levels.gpu import has_gpu
from golow.records.comparison import Quantity, Ratio
from golow.records.errors import GolowError
from golow.records.record import encode
from page_part import put_into
from support.direct.kernel_compilation import assert_compile
from support.places import DOCS
from unified_memory import MIB, Data, fitting, measure, sizes_of
from unified_memory_report import BASELINE, WAYS, Cell, Line, Measured, Traffic

SCRIPT = Path(benchmark.__file__)
PAGE = DOCS / "results" / "memory.md"
MARKED = """# Memory

<!-- unified memory: begin -->
old
<!-- unified memory: end -->

What follows.
"""


class OnTheHost:
    """A way whose kernel is NumPy; a stale one copies the data only once."""

    def __init__(self, size: int, stale: bool = False) -> None:
        self.words = np.empty(size // 4, np.uint32)
        self.stale = stale
        self.copy: np.ndarray | None = None

    def gather(self) -> None:
        """Nothing is elsewhere."""

    def hand_over(self) -> None:
        """Nothing is advised."""

    def run(self, passes: int) -> tuple[float, float, int]:
        """Add up pass for pass, as the kernel does."""
        if self.copy is None or not self.stale:
            self.copy = self.words.copy()
        found = sum((2 * p + 1) * int(self.copy.sum(dtype=np.uint64)) for p in range(passes))
        return 2e-3, 1e-3, found % 2**32


# ---------------------------------------------------------------- sizes and sums


@given(free=st.integers(0, 16 << 30))
def test_all_copies_of_a_size_fit_into_what_is_free(free: int) -> None:
    sizes = [MIB * size for size in benchmark.SIZES]
    kept, left_out = fitting(sizes, free)
    assert all(len(WAYS) * size <= free for size in kept)
    assert len(kept) + len(left_out) == len(sizes)
    assert kept == sizes[: len(kept)]


@given(sizes=st.sets(st.integers(1, 1024), min_size=1))
def test_sizes_are_read_as_mebibytes(sizes: set[int]) -> None:
    assert sizes_of(",".join(map(str, sizes))) == sorted(MIB * size for size in sizes)


@pytest.mark.parametrize("text", ["", "0", "2048", "1,x", "-4"])
def test_a_wrong_size_is_refused(text: str) -> None:
    with pytest.raises(GolowError, match="whole MiB from 1 to 1024"):
        sizes_of(text)


@given(pages=st.integers(1, 5), renewals=st.integers(1, 4), passes=st.integers(1, 20))
def test_the_expected_sum_is_the_sum_of_the_passes(pages: int, renewals: int, passes: int) -> None:
    data, subject = Data(4096 * pages), OnTheHost(4096 * pages)
    subject.words[:] = data.words
    for _ in range(renewals):
        data.renew(subject)
    assert subject.run(passes)[2] == data.expected(passes)


# ---------------------------------------------------------------- rounds


def test_every_way_is_timed_with_both_kernels_in_every_round() -> None:
    cells = measure({"a": OnTheHost(MIB), "b": OnTheHost(MIB)}, MIB, seconds=0, seed=0)
    assert {(cell.way, cell.passes) for cell in cells} == {
        (way, passes) for way in "ab" for passes in benchmark.PASSES
    }
    assert {len(cell.seconds) for cell in cells} == {benchmark.LEAST_ROUNDS}
    assert {len(cell.kernel_seconds) for cell in cells} == {benchmark.LEAST_ROUNDS}


def test_data_that_was_not_renewed_is_found() -> None:
    subjects = {"right": OnTheHost(MIB), "stale": OnTheHost(MIB, stale=True)}
    with pytest.raises(GolowError, match=r"stale: the kernel that reads \d+ times found the sum"):
        measure(subjects, MIB, seconds=0, seed=0)


# ---------------------------------------------------------------- a record


def made_up(no_traffic: str = "") -> Measured:
    """A way takes 1 ms more than the one before it, per MiB; rounds differ by a percent."""
    cells = [
        Cell(
            way=way,
            passes=passes,
            bytes=size * MIB,
            seconds=tuple(1e-3 * (n + 1) * size * (1 + r / 100) for r in range(5)),
            kernel_seconds=(1e-4 * size,) * 5,
            traffic=None
            if no_traffic or size != 16
            else Traffic(gpu_faults=1234 * n, cpu_faults=0, to_device=size * MIB, to_host=0),
        )
        for size in (1, 16)
        for passes in benchmark.PASSES
        for n, way in enumerate(WAYS)
    ]
    return Measured(
        date="2026-11-25",
        gpu="NVIDIA Made-up",
        driver="CUDA 13.0",
        processor="a processor",
        cells=tuple(cells),
        left_out=("1024 MiB, because it does not fit",),
        no_traffic=no_traffic,
    )


def test_times_are_medians_and_ratios_to_pinned_copies() -> None:
    lines = {(x.cell.way, x.cell.bytes, x.cell.passes): x for x in report.lines(made_up())}
    assert lines[BASELINE, MIB, 1].ratio is None
    managed = lines["managed", 16 * MIB, 16]
    assert managed.time.value == pytest.approx(3e-3 * 16 * 1.02)
    assert managed.time.low is not None and managed.time.low < managed.time.value
    assert managed.ratio is not None and managed.ratio.value == pytest.approx(3)


def test_the_tables_have_every_way_and_fit() -> None:
    text = report.markdown(made_up())
    assert "| managed | 3.06 ms (3) | 49.0 ms (3) |" in text
    assert text.count("| stays on host |") == 4  # twice its times, twice its page faults
    assert "| prefetch | 16 | 3,702 | 16.0 MiB | 0 | 0 B |" in text
    assert "Left out: 1024 MiB, because it does not fit." in text
    assert max(len(line) for line in text.splitlines() if line.startswith("|")) <= 100
    assert "not readable here: no CUPTI" in report.markdown(made_up("no CUPTI"))


def test_the_csv_has_a_row_for_each_cell() -> None:
    header, *rows = report.csv_text(made_up()).splitlines()
    assert header.startswith("way,passes,bytes,rounds,seconds,seconds_low,seconds_high")
    assert len(rows) == 2 * 2 * len(WAYS)


def show(file: Path, *further: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--show", str(file), *further]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_stored_record_becomes_page_and_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file, page = tmp_path / "memory.json", tmp_path / "memory.md"
    file.write_bytes(encode(made_up()))
    page.write_text(MARKED)
    done = show(file, "--page", str(page), "--figures", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    text = page.read_text()
    assert text.startswith("# Memory\n") and text.endswith("\n\nWhat follows.\n")
    assert "old" not in text and report.markdown(made_up()) in text
    svg = (tmp_path / "unified-memory.svg").read_text()
    assert all(way in svg for way in WAYS)
    assert "A kernel that reads its data once" in svg


@pytest.mark.slow
def test_what_is_no_record_and_no_page_is_one_line(tmp_path: Path) -> None:
    file, page = tmp_path / "memory.json", tmp_path / "memory.md"
    done = show(file)
    assert done.returncode == 2 and "is not a record of this benchmark" in done.stderr
    file.write_bytes(encode(made_up()))
    page.write_text("# Without marks\n")
    done = show(file, "--page", str(page))
    assert done.returncode == 2 and "the page has no" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_page_of_the_results_has_its_marks() -> None:
    assert "the tables" in put_into(PAGE.read_text(), report.MARKS, "the tables")


def stored_lines() -> Iterator[Line]:
    """The statistics of the CSV file beside the page."""
    with PAGE.with_suffix(".csv").open(newline="") as file:
        for row in csv.DictReader(file):
            traffic = {
                "gpu_faults": row["gpu_fault_groups"],
                "cpu_faults": row["cpu_faults"],
                "to_device": row["bytes_to_device"],
                "to_host": row["bytes_to_host"],
            }
            cell = {
                **{name: row[name] for name in ("way", "passes", "bytes")},
                "seconds": (),
                "kernel_seconds": (),
                "traffic": traffic if row["cpu_faults"] else None,
            }
            time = Quantity(name="time", unit="s", value=float(row["seconds"]))
            ends = [float(row[name] or 0) for name in ("ratio", "ratio_low", "ratio_high")]
            against = Ratio(value=ends[0], low=ends[1], high=ends[2], word="same")
            read = msgspec.convert(cell, Cell, strict=False)
            yield Line(read, time, 0.0, against if row["ratio"] else None)


def test_the_tables_of_the_page_are_those_of_the_stored_figures() -> None:
    assert report.tables(list(stored_lines())) in PAGE.read_text()


# ---------------------------------------------------------------- the GPU


def test_the_kernel_compiles() -> None:
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    from unified_memory_gpu import read_kernel

    assert_compile([read_kernel(MIB, 16, blocks=1056)])


@pytest.mark.slow
@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_without_a_card_it_says_so() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "there is no NVIDIA GPU" in done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="there is no GPU")
def test_every_way_finds_the_sum_on_the_card(tmp_path: Path) -> None:
    command = [sys.executable, SCRIPT, "--sizes", "1,16", "--seconds", "0", "--out", tmp_path / "m"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = benchmark.read_record(tmp_path / "m.json")
    assert {cell.way for cell in found.cells} == set(WAYS)
    assert found.left_out == ()
