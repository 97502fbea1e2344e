"""Shares of a machine cut no physical core in two."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.worker.cores import default_threads, physical_cores, shares, spread


def machine(root: Path, cores: list[list[int]]) -> Path:
    """A made-up one with these threads on each core."""
    for core in cores:
        for thread in core:
            folder = root / f"sys/devices/system/cpu/cpu{thread}/topology"
            folder.mkdir(parents=True)
            (folder / "thread_siblings_list").write_text(f"{','.join(map(str, core))}\n")
    return root


def test_threads_of_a_core_are_found(tmp_path: Path) -> None:
    root = machine(tmp_path, [[n, n + 4] for n in range(4)])
    assert physical_cores(range(8), root) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert physical_cores((1, 2, 5), root) == [[1, 5], [2]]
    assert physical_cores((8, 9), root) == [[8], [9]]  # the kernel does not tell


def test_threads_are_spread_over_cores(tmp_path: Path) -> None:
    root = machine(tmp_path, [[0, 1], [2, 3], [4, 5]])
    assert spread(range(6), 2, root) == [0, 2]
    assert spread(range(6), 4, root) == [0, 2, 4, 1]
    assert spread((1, 4, 5), 9, root) == [1, 4, 5]


def test_a_process_keeps_to_its_threads() -> None:
    """Also the threads that it starts later."""
    code = (
        "import os; from threading import Thread; from golow.worker.cores import keep_to\n"
        "keep_to(1)\n"
        "thread = Thread(target=lambda: print(len(os.sched_getaffinity(0)))); thread.start()\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "1"


def test_a_share_has_whole_cores(tmp_path: Path) -> None:
    root = machine(tmp_path, [[n, n + 8] for n in range(8)])
    assert shares(range(16), 2, root) == [(0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)]
    assert shares(range(16), 3, root) == [(0, 1, 8, 9), (2, 3, 10, 11), (4, 5, 12, 13)]
    assert shares(range(16), 16, root) == [(thread,) for thread in range(16)]
    assert shares(range(2), 3, root) == [(), (), ()]


@given(st.integers(1, 24), st.integers(1, 3), st.integers(1, 12), st.data())
def test_shares_are_disjoint_and_equal(
    cores: int, on_each: int, count: int, data: st.DataObject
) -> None:
    threads = data.draw(st.permutations(range(cores * on_each)))
    together = [threads[n * on_each : (n + 1) * on_each] for n in range(cores)]
    with pytest.MonkeyPatch.context() as patch:
        siblings = {str(thread): core for core in together for thread in core}
        patch.setattr(
            Path,
            "read_text",
            lambda path: str(siblings[path.parent.parent.name.removeprefix("cpu")]),
        )
        found = shares(sorted(threads), count)
    assert len({len(share) for share in found}) == 1
    assert len(set(chain(*found))) == sum(map(len, found))
    if count <= cores:
        assert len(found[0]) == cores // count * on_each
        assert all(
            set(core) <= set(share) for share in found for core in together if {*core} & {*share}
        )


def test_a_level_gets_one_thread_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine(tmp_path, [[n, n + 4] for n in range(4)])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 3, 5, 6})
    assert default_threads(root) == 3


def test_this_machine() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    assert sorted(chain(*physical_cores(allowed))) == allowed
    assert 1 <= default_threads() <= len(allowed)
