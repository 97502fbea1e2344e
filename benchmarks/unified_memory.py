"""Unified memory against explicit copies on one GPU: how a kernel best comes to the host's data.

    python benchmarks/unified_memory.py --out memory          # writes memory.json and memory.csv
    python benchmarks/unified_memory.py --show memory.json --page PAGE.md --figures FOLDER

The host writes a word into every page. Then the data goes to the card by one of seven ways, and a
kernel reads it, once or 16 times, and adds it up. A run is timed from the written data to the sum
on the host, which must be exact: a page that was not renewed shows. Ways and kernels take turns in
random order, in rounds, the first of them untimed. When nothing is timed any more, CUPTI counts the
page faults of one run each.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

import unified_memory_report as report
from golow.levels.gpu import has_gpu
from golow.records.errors import GolowError
from golow.records.record import encode
from golow.storage.files import write_whole, writing
from page_part import put_into
from unified_memory_report import Cell, Measured, Traffic

if TYPE_CHECKING:
    from unified_memory_gpu import Card

MIB = 1 << 20
SIZES = (1, 16, 128, 1024)  # MiB
PASSES = (1, 16)
PAGE_WORDS = 1024  # 4 KiB: the smallest page that moves by itself
LEAST_ROUNDS, MOST_ROUNDS = 5, 21
SECONDS = 8.0  # for each size, once it has its least rounds
HOLDING = len(report.WAYS)  # at most so many copies of the data are on the card


class Subject(Protocol):
    """A way from the host's memory to the kernel, at one size."""

    words: np.ndarray

    def gather(self) -> None:
        """Let the host hold the data alone, before it writes."""

    def hand_over(self) -> None:
        """What follows the host's writing; not timed."""

    def run(self, passes: int) -> tuple[float, float, int]:
        """Seconds of all, of those the kernel's, and the sum that the kernel found."""


class Data:
    """What the host writes: words that are all different, and one new word in every page."""

    def __init__(self, size: int) -> None:
        self.words = np.arange(size // 4, dtype=np.uint32) * np.uint32(2654435761)
        pages = self.words[::PAGE_WORDS]
        self._pages = len(pages)
        self._rest = int(self.words.sum(dtype=np.uint64)) - int(pages.sum(dtype=np.uint64))
        self._round = 0

    def renew(self, subject: Subject) -> None:
        """Write another word than ever before into every page."""
        self._round += 1
        subject.gather()
        subject.words[::PAGE_WORDS] = self._round
        subject.hand_over()

    def expected(self, passes: int) -> int:
        """The sum that a kernel must find in what was written last, modulo 2^32."""
        return passes * passes * (self._rest + self._pages * self._round) % 2**32


def run_once(data: Data, name: str, subject: Subject, passes: int) -> tuple[float, float]:
    """Renew the data, run, check the sum; return the seconds of all, and of those the kernel's."""
    data.renew(subject)
    seconds, kernel, found = subject.run(passes)
    if found != (wanted := data.expected(passes)):
        raise GolowError(
            f"{name}: the kernel that reads {passes} times found the sum {found}, not {wanted}"
        )
    return seconds, kernel


def measure(subjects: Mapping[str, Subject], size: int, seconds: float, seed: int) -> list[Cell]:
    """Time every way with every kernel in rounds, at least `LEAST_ROUNDS`, then until the seconds
    are over. Raises `GolowError` for a wrong sum."""
    data = Data(size)
    for subject in subjects.values():
        subject.words[:] = data.words
    turns = list(product(subjects, PASSES))
    shuffled = random.Random(seed)  # noqa: S311
    times = defaultdict[tuple[str, int], list[tuple[float, float]]](list)
    start = time.monotonic()
    for number in range(MOST_ROUNDS + 1):
        if number > LEAST_ROUNDS and time.monotonic() - start > seconds:
            break
        shuffled.shuffle(turns)
        for name, passes in turns:
            found = run_once(data, name, subjects[name], passes)
            if number:  # the first round loads code and makes pages
                times[name, passes].append(found)
    return [
        Cell(
            way=name,
            passes=passes,
            bytes=size,
            seconds=tuple(all_of_it for all_of_it, _ in times[name, passes]),
            kernel_seconds=tuple(kernel for _, kernel in times[name, passes]),
        )
        for passes, name in product(PASSES, subjects)
    ]


def fitting(sizes: Sequence[int], free: int) -> tuple[list[int], tuple[str, ...]]:
    """The sizes in bytes of which the card can hold all copies at once, and what is left out."""
    kept = [size for size in sizes if HOLDING * size <= free]
    dropped = [size for size in sizes if size not in kept]
    return kept, tuple(
        f"{size // MIB} MiB, because {HOLDING} such copies do not fit into {free // MIB} MiB free"
        for size in dropped
    )


def measure_card(sizes: Sequence[int], seconds: float) -> Measured:
    """Measure on the first visible card."""
    if not has_gpu():
        raise GolowError(
            "there is no NVIDIA GPU", "run it on a machine with one; --show needs none."
        )
    try:
        from unified_memory_gpu import Card
    except ImportError as error:
        raise GolowError(
            f"NVIDIA's bindings are missing: {error}", "pip install 'golow[cudnn]'"
        ) from error
    from golow.measure.environment import environment

    with tempfile.TemporaryDirectory() as cache:
        card = Card(Path(cache))
        kept, left_out = fitting(sizes, card.free_bytes())
        cells = []
        for seed, size in enumerate(kept):
            cells += measure(card.ways(size), size, seconds, seed)
            print(f"{size // MIB} MiB: {len(cells[-1].seconds)} rounds", file=sys.stderr)
        cells, missing = _with_traffic(card, cells)
    return Measured(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        gpu=card.gpu.name,
        driver=card.driver_version(),
        processor=environment().cpu_model,
        cells=tuple(cells),
        left_out=left_out,
        no_traffic=missing,
    )


def _with_traffic(card: Card, cells: list[Cell]) -> tuple[list[Cell], str]:
    """The cells of the largest size with what CUPTI counts in one more run each, or why not."""
    from unified_memory_gpu import Counters

    largest = max((cell.bytes for cell in cells), default=0)
    if not largest:
        return cells, "nothing was measured"
    try:
        counters = Counters()
    except GolowError as error:
        return cells, error.message
    data, subjects = Data(largest), card.ways(largest)
    for subject in subjects.values():
        subject.words[:] = data.words
    found: dict[tuple[str, int], Traffic] = {}
    for name, passes in product(subjects, PASSES):
        data.renew(subjects[name])
        with counters.counting() as read:
            subjects[name].run(passes)
        found[name, passes] = read()
    return [
        msgspec.structs.replace(cell, traffic=found[cell.way, cell.passes])
        if cell.bytes == largest
        else cell
        for cell in cells
    ], ""


# ---------------------------------------------------------------- the command


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write NAME.json and NAME.csv", metavar="NAME")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="MiB, with commas")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each size")
    parser.add_argument("--show", type=Path, metavar="FILE.json", help="show a record instead")
    parser.add_argument("--page", type=Path, help="with --show: put the tables into this page")
    parser.add_argument("--figures", type=Path, help="with --show: draw into this folder")
    return parser.parse_args(given)


def sizes_of(text: str) -> list[int]:
    """Bytes of ``1,8,64`` MiB. Raises `GolowError` for what is no size up to 1024 MiB."""
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1 or found[-1] > SIZES[-1]:
        raise GolowError(
            f"--sizes {text!r}: whole MiB from 1 to {SIZES[-1]}, with commas between",
            "--sizes 1,64,1024",
        )
    return [size * MIB for size in found]


def read_record(file: Path) -> Measured:
    """A stored record. Raises `GolowError` for a file that is none."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Measured)
    except (OSError, msgspec.MsgspecError) as error:
        raise GolowError(f"{file} is not a record of this benchmark: {error}") from error


def show(asked: argparse.Namespace) -> None:
    """Print the tables of a record; write page and figure where asked."""
    found = read_record(asked.show)
    part = report.markdown(found)
    print(part)
    if asked.page is not None:
        try:
            page = put_into(asked.page.read_text(), report.MARKS, part)
        except (OSError, ValueError) as error:
            raise GolowError(f"{asked.page}: {error}") from error
        with writing(asked.page, "name another page."):
            write_whole(asked.page, page.encode())
    if asked.figures is not None:
        print(*report.write_figure(found, asked.figures), sep="\n")


def main() -> None:
    """Measure and write, or show."""
    asked = arguments()
    try:
        if asked.show is not None:
            show(asked)
            return
        found = measure_card(sizes_of(asked.sizes), asked.seconds)
        print(report.summary(found))
        if asked.out is not None:
            with writing(asked.out, "name another folder."):
                write_whole(Path(f"{asked.out}.json"), encode(found))
                write_whole(Path(f"{asked.out}.csv"), report.csv_text(found).encode())
    except GolowError as error:
        print(
            f"error: {error.message}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
