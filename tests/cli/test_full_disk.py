"""A full disk, wherever it is: words, status 2, and no measured result is lost."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

import golow
from golow.api import ErrorWithResult
from golow.programs.comparison import store
from golow.records.errors import GolowError
from golow.storage.full_disk import full_disk
from golow.storage.scratch import scratch_folder
from support.records import studies

Small = Callable[[str], Path]
COMPARE = ("compare", "lenet5", "--levels", "eager", "--time-limit", "0.1", "--threads", "1")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    """Mount a small file system, of that size."""
    place = tmp_path / "small"
    place.mkdir()

    def mounted(size: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(place)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no file system can be mounted here")
        return place

    yield mounted
    if place.is_mount():
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def filled(place: Path) -> None:
    """Make files until there is room for no other."""
    for number in count():
        (place / f"file-{number}").touch()


def run(
    *arguments: str, temporary: Path | None = None, output: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run golow in a process of its own. output: a file that its standard output goes to."""
    variables = {**os.environ, **({} if temporary is None else {"TMPDIR": str(temporary)})}
    command = [sys.executable, "-m", "golow", *arguments]
    if not output:
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    with Path(output).open("w") as file:
        return subprocess.run(
            command, env=variables, stdout=file, stderr=subprocess.PIPE, text=True, check=False
        )


def assert_in_words(end: subprocess.CompletedProcess[str], *words: str) -> None:
    assert end.returncode == 2
    assert "Traceback" not in end.stderr
    assert "No space left on device" in end.stderr
    for word in words:
        assert word in end.stderr


# ---------------------------------------------------------------- the temporary folder


@pytest.mark.slow
@pytest.mark.usefixtures("forked_commands")
@pytest.mark.parametrize(
    ("size", "mode"),
    [("8k", "infer"), ("330k", "infer"), ("1m", "train")],
    ids=["at once", "in the bundle", "in the reference"],
)
def test_a_full_temporary_folder_is_named(
    small: Small, tmp_path: Path, size: str, mode: str
) -> None:
    place = small(size)
    end = run(*COMPARE, "--mode", mode, "--out", str(tmp_path / "runs"), temporary=place)
    assert_in_words(end, f"the temporary folder {place} cannot be written", "TMPDIR=/large/disk")
    assert list(place.iterdir()) == []


def test_the_error_of_a_library_is_one_of_a_full_disk(small: Small) -> None:
    import torch
    from safetensors.torch import save_file

    place = small("8k")
    with pytest.raises(GolowError, match="No space left") as raised, scratch_folder():
        save_file({"x": torch.zeros(10_000)}, place / "file")
    assert full_disk(raised.value) is not None


def test_a_full_disk_elsewhere_is_that_place(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = small("8k,nr_inodes=9")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with pytest.raises(GolowError) as raised, scratch_folder():
        filled(place)
    assert raised.value.message.startswith(f"{place}/file-")
    assert "TMPDIR" not in raised.value.hint


def test_other_errors_pass_through_a_temporary_folder() -> None:
    with pytest.raises(ZeroDivisionError), scratch_folder():
        print(1 / 0)
    assert full_disk(ZeroDivisionError("division by zero")) is None


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from golow.__main__ import main
main()
"""


@pytest.mark.slow
def test_no_temporary_folder_at_all_is_one_message() -> None:
    command = [sys.executable, "-c", LIMITED, "lower", "mlp"]
    end = subprocess.run(command, capture_output=True, text=True, check=False)
    assert end.returncode == 2
    assert "No usable temporary directory" in end.stderr and "TMPDIR=/large/disk" in end.stderr
    assert "Traceback" not in end.stderr


# ---------------------------------------------------------------- the folder of records


@pytest.mark.slow
@pytest.mark.usefixtures("forked_commands")
def test_a_record_that_does_not_fit_is_kept_in_the_temporary_folder(
    small: Small, tmp_path: Path
) -> None:
    place, temporary = small("8k"), tmp_path / "temporary"
    temporary.mkdir()
    end = run(*COMPARE, "--out", str(place), temporary=temporary)
    [folder] = temporary.glob("golow-record-*/*")
    words = (f"the record is in a temporary folder, {folder}", "name another folder with --out")
    assert_in_words(end, *words, "mv ")
    assert golow.load(folder).comparison.runs[0].level == "eager"
    assert "eager" in end.stdout
    assert list(place.iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("forked_commands")
def test_a_full_output_costs_no_record(tmp_path: Path) -> None:
    end = run(*COMPARE, "--out", str(tmp_path), output="/dev/full")
    assert_in_words(end, "the output cannot be written")
    [folder] = tmp_path.iterdir()
    assert f"record: {folder}" in end.stderr
    assert golow.load(folder).comparison.runs


@pytest.mark.slow
def test_a_full_output_is_one_message() -> None:
    assert_in_words(run("models", output="/dev/full"), "the output cannot be written")


@pytest.mark.slow
@pytest.mark.usefixtures("forked_commands")
def test_a_full_pipe_of_json_costs_no_record(tmp_path: Path) -> None:
    end = run(*COMPARE, "--out", str(tmp_path / "runs"), "--json", "-", output="/dev/full")
    assert_in_words(end)
    [folder] = (tmp_path / "runs").iterdir()
    assert golow.load(folder).comparison.runs


def test_nothing_is_left_of_a_record_that_does_not_fit(tmp_path: Path) -> None:
    """A limit on the size of files; what fits is written, and removed again."""
    comparison = studies.comparison(rounds=(10, 10_000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(GolowError, match="File too large"):
            store.save(comparison, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
    assert store.load(store.save(comparison, tmp_path)) == comparison


# ---------------------------------------------------------------- in Python


@pytest.mark.slow
@pytest.mark.usefixtures("forked_commands")
def test_a_late_error_brings_the_result(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The temporary folder has room for the race, and none for the life cycle's caches."""
    monkeypatch.setattr(tempfile, "tempdir", str(small("700k")))
    with pytest.raises(ErrorWithResult, match="cannot be written") as raised:
        golow.compare(
            "lenet5", levels=["eager"], time_limit=0.1, threads=1, life=True, quiet=True,
            observer=Filling(tmp_path / "small"),
        )  # fmt: skip
    folder = raised.value.result.save(tmp_path)
    assert golow.load(folder).comparison.runs[0].level == "eager"


class Filling:
    """An observer that fills the disk when the comparison is done."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def stage(self, text: str) -> None:
        if text == "preparing the life cycle":
            handle = os.open(self.place / "filler", os.O_CREAT | os.O_WRONLY)
            with suppress(OSError):
                while True:
                    os.write(handle, bytes(4096))
            os.close(handle)

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        pass
