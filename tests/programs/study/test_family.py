"""The processes of a cell end together, also one whose program is just being started."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from golow.programs.study.family import MARK, end_family, look

STAT = "{pid} (a (b) c) {state} 1 1 1 0 -1 {flags} 0 0"


def process(folder: Path, pid: int, *, environment: str = "", command: str = "", state: str = "S",
            flags: int = 0) -> None:  # fmt: skip
    """Files like those that the system shows of a process."""
    place = folder / str(pid)
    place.mkdir()
    (place / "environ").write_bytes(environment.encode())
    (place / "cmdline").write_bytes(command.encode())
    (place / "stat").write_text(STAT.format(pid=pid, state=state, flags=flags))


def test_all_kinds_of_processes_are_told_apart(tmp_path: Path) -> None:
    process(tmp_path, 11, environment=f"A=1\0{MARK}=one\0", command="sleep")
    process(tmp_path, 12, environment=f"{MARK}=another\0", command="sleep")
    process(tmp_path, 13, state="R")  # between two programs
    process(tmp_path, 14, state="Z")
    process(tmp_path, 15, flags=0x00200000 | 0x40)  # of the kernel
    process(tmp_path, 16, command="env -i sleep")
    (tmp_path / "self").mkdir()
    (tmp_path / "17").mkdir()  # it ended while we looked
    found = look("one", tmp_path)
    assert (found.marked, found.starting) == ([11], [13])
    assert found.may_have_more
    for gone in ("11", "13"):
        (tmp_path / gone / "stat").unlink()
        (tmp_path / gone / "environ").unlink()
    assert not look("one", tmp_path).may_have_more


def test_nothing_on_this_machine_is_taken_for_starting_for_long() -> None:
    """Otherwise every cell would end five seconds late."""
    starting = set(look("nobody").starting)
    for _ in range(100):
        starting &= set(look("nobody").starting)
    assert starting == set()


@pytest.mark.parametrize("number", [1, 8])
def test_a_family_ends(number: int) -> None:
    mark = f"test-{os.getpid()}-{number}"
    family = [
        subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK: mark}, start_new_session=True)
        for _ in range(number)
    ]
    end_family(mark)
    assert [child.wait(10) for child in family] == [-9] * number
