"""What cannot be written is said, and leaves no half record."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from golow.programs.comparison import store
from golow.records.comparison import (
    Comparison,
)
from golow.records.errors import GolowError
from support.processes import soon
from support.records.comparisons import comparison, run

SAVE = """
import sys
from pathlib import Path
from golow.programs.comparison import store
from golow.records.errors import GolowError
found = store.load(Path(sys.argv[1]))
try:
    for _ in range(int(sys.argv[3])):
        store.save(found, Path(sys.argv[2]))
        print("saved", flush=True)
except GolowError as error:
    print(error.message)
    print(error.hint)
    sys.exit(2)
"""


def large() -> Comparison:
    """Some hundred kilobytes a run."""
    return comparison(run(blocks=2000), run("compile", blocks=2000), name="large")


@pytest.mark.slow
def test_a_disk_that_is_full_by_its_limit(tmp_path: Path) -> None:
    source, target = store.save(large(), tmp_path), tmp_path / "full"
    done = subprocess.run(
        [sys.executable, "-c", SAVE, source, target, "1"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert f"{target / 'large'} cannot be written: File too large" in done.stdout
    assert "name another folder with --out" in done.stdout
    assert list(target.iterdir()) == []  # nothing half, and no temporary file


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    source, target = store.save(large(), tmp_path), tmp_path / "full"
    target.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(target)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("this process may not mount a file system")
    try:
        with pytest.raises(
            GolowError, match="cannot be written: No space left on device"
        ) as raised:
            store.save(store.load(source), target)
        assert "free some space" in raised.value.hint
        assert list(target.iterdir()) == []
    finally:
        subprocess.run(["umount", str(target)], check=True)


def test_starts_at_one_instant_do_not_disturb_each_other(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store.require_writable, [tmp_path / "runs"] * 400))
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Said before anything is measured, and again when it is saved."""
    (tmp_path / "file").write_text("no folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "runs", Path("/proc/golow")):
        with pytest.raises(GolowError, match="cannot be written"):
            store.require_writable(folder)
        with pytest.raises(GolowError, match="cannot be written"):
            store.save(comparison(), folder)
    store.require_writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_of_someone_else(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(GolowError, match="Permission denied"):
        store.require_writable(tmp_path)
    tmp_path.chmod(0o755)


def test_a_process_that_is_killed_while_it_saves_leaves_no_half_file(tmp_path: Path) -> None:
    source, target = store.save(large(), tmp_path), tmp_path / "killed"
    command = [sys.executable, "-c", SAVE, str(source), str(target), "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert soon(lambda: bool(list((target / "large").glob(".*"))))  # it writes just now
        process.send_signal(signal.SIGKILL)
    expected = store.load(source)
    assert store.load(target / "large") == expected
