"""A folder with one writer: the second is told, and a killed holder leaves it free."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from golow.records.errors import GolowError
from golow.storage.lock import held

HOLDER = """
import sys
from collections.abc import Iterator
from pathlib import Path
from golow.storage.lock import held
with held(Path(sys.argv[1]), "", ""):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the folder."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    yield child
    child.kill()
    child.communicate()


def test_the_second_is_refused_and_a_killed_one_holds_nothing(
    tmp_path: Path, holder: subprocess.Popen[bytes]
) -> None:
    with (
        pytest.raises(GolowError, match="another has it"),
        held(tmp_path, "another has it", ""),
    ):
        pytest.fail("two had it")
    holder.kill()
    holder.wait()
    with held(tmp_path, "another has it", ""):
        pass


def test_whoever_is_patient_gets_it(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    threading.Timer(0.2, holder.kill).start()
    with held(tmp_path, "another has it", "", patience=60):
        assert holder.wait() != 0


def test_the_block_may_fail_and_its_error_stays(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="of its own"), held(tmp_path, "taken", ""):
        raise TimeoutError("of its own")
    with held(tmp_path, "taken", ""):
        pass


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(GolowError, match="cannot be written") as told,
        held(tmp_path / "file" / "folder", "taken", "free some space"),
    ):
        pytest.fail("there is no folder")
    assert told.value.hint == "free some space"
