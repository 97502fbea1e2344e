"""Temporary folders: whatever ends their owner, none is left, and nothing else is removed."""

from __future__ import annotations

import getpass
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from golow.records.errors import GolowError
from golow.storage.scratch import remove_abandoned, remove_own, scratch_folder
from support.processes import mentioning, soon

OWNER = """
from golow.storage.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "weights").write_bytes(bytes(1000))
    START
    print("made", flush=True)
    input()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory of this process and its children."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@contextmanager
def owner(start: str = "") -> Iterator[subprocess.Popen[str]]:
    """Another process with a scratch folder; start: what it starts in there. It is killed in the
    end, if the block has not ended it."""
    child = subprocess.Popen(
        [sys.executable, "-c", OWNER.replace("START", start)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "made\n"
        yield child
        child.kill()


def left(temporary: Path) -> list[str]:
    return sorted(path.name for path in temporary.iterdir())


# ---------------------------------------------------------------- as it should be


def test_a_folder_is_private_and_goes_with_its_block(temporary: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == temporary
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "bundle").mkdir()
        (folder / "bundle" / "weights").write_bytes(bytes(1000))
    assert left(temporary) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_folder_goes_with_an_error(temporary: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), scratch_folder():
        raise error
    assert left(temporary) == []


def test_a_full_disk_is_explained(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    with pytest.raises(GolowError, match="/proc cannot be written"), scratch_folder():
        pass


# ---------------------------------------------------------------- what a kill leaves


def test_the_next_start_removes_what_a_killed_one_left(temporary: Path) -> None:
    with owner() as child:
        child.kill()
    assert len(left(temporary)) == 2  # folder and lock
    with scratch_folder() as folder:
        assert left(temporary) == [folder.name, f"{folder.name}.scratch-lock"]
    assert left(temporary) == []


def test_a_folder_stays_while_its_owner_lives(temporary: Path) -> None:
    with owner() as child:
        before = left(temporary)
        with scratch_folder():
            pass
        assert left(temporary) == before
        child.communicate("\n")
    assert left(temporary) == []


READ = "import sys; sys.stdin.read()"
LIVING_ON = {
    "a process": f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {READ!r}])",
    "a fork": "import os, sys; os.fork() or (sys.stdin.read(), os._exit(0))",
}


@pytest.mark.parametrize("start", LIVING_ON.values(), ids=LIVING_ON)
def test_a_child_that_lives_on_does_not_keep_the_folder(temporary: Path, start: str) -> None:
    with owner(start) as child:
        child.kill()
        child.wait()
        # A process that was only just started does not show its own command line yet.
        assert soon(lambda: len(mentioning(str(temporary))) == 1)
        remove_abandoned()
        assert left(temporary) == []
    assert soon(lambda: mentioning(str(temporary)) == [])


def test_a_forked_child_that_ends_does_not_remove_the_folder(temporary: Path) -> None:
    with owner("import os, sys; os.fork() or sys.exit(); os.wait()") as child:
        assert len(left(temporary)) == 2
        child.communicate("\n")
    assert left(temporary) == []


NEVER_LEFT = """
import os
from golow.storage.scratch import remove_own, scratch_folder
scratch = scratch_folder()
assert scratch.__enter__().is_dir()
"""


@pytest.mark.parametrize("ending", ["", "remove_own(); os._exit(0)"])
def test_the_end_removes_a_folder_whose_block_has_not_ended(temporary: Path, ending: str) -> None:
    """A second interrupt between two callbacks of an ExitStack ends the stack, not the block."""
    subprocess.run([sys.executable, "-c", NEVER_LEFT + ending], check=True)
    assert left(temporary) == []


# ---------------------------------------------------------------- what is not golow's


def test_nothing_else_in_the_temporary_directory_is_touched(temporary: Path) -> None:
    """Folders that are only named like golow's, and links that others may have planted."""
    precious = temporary / "precious"
    precious.mkdir()
    (precious / "file").write_text("precious")
    (temporary / "golow-datasets").mkdir()
    (temporary / "golow-link.scratch-lock").symlink_to(precious / "file")
    (temporary / "golow-link").mkdir()
    (temporary / "golow-target.scratch-lock").touch()
    (temporary / "golow-target").symlink_to(precious)
    (temporary / "golow-folder.scratch-lock").mkdir()
    os.mkfifo(temporary / "golow-pipe.scratch-lock")
    before = left(temporary)
    remove_abandoned()
    assert left(temporary) == before
    assert (precious / "file").read_text() == "precious"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("foreign", ["golow-foreign", "golow-foreign.scratch-lock"])
def test_what_another_user_made_stays(temporary: Path, foreign: str) -> None:
    (temporary / "golow-foreign").mkdir()
    (temporary / "golow-foreign.scratch-lock").touch()
    os.chown(temporary / foreign, 12345, 12345)
    remove_abandoned()
    assert left(temporary) == ["golow-foreign", "golow-foreign.scratch-lock"]


# ---------------------------------------------------------------- all at the same time

STARTS = """
from golow.storage.scratch import scratch_folder
for _ in range(300):
    with scratch_folder() as folder:
        (folder / "weights").write_bytes(bytes(1000))
        assert folder.with_suffix(".scratch-lock").exists()
"""


@pytest.mark.slow
def test_starts_at_the_same_time_leave_each_other_alone(temporary: Path) -> None:
    """Each looks for abandoned folders while the others make theirs."""
    children = [subprocess.Popen([sys.executable, "-c", STARTS]) for _ in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    assert left(temporary) == []


WRITER = """
import sys
from pathlib import Path
print("writing", flush=True)
for number in range(10**9):
    Path(sys.argv[1], str(number)).touch()
"""


def test_a_worker_that_still_writes_does_not_keep_the_folder(temporary: Path) -> None:
    with scratch_folder() as folder:
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.2)
    assert left(temporary) == []
    assert writer.wait(10) != 0  # it found no folder
    writer.stdout.close()


INTERRUPTED = """
import signal, sys, threading
from golow.storage.scratch import scratch_folder

def interrupt(number, frame):
    global interrupts
    if frame.f_globals is not globals():
        interrupts += 1
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
done = []
threading.Thread(target=lambda: done.append(sys.stdin.read()), daemon=True).start()
print("made", flush=True)
rounds = interrupts = 0
while not done:
    try:
        rounds += 1
        with scratch_folder() as folder:
            (folder / "weights").write_bytes(bytes(1000))
    except KeyboardInterrupt:
        pass
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(rounds, interrupts)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["lower", "lenet5"],
        "compare lenet5 --levels eager --threads 1 --time-limit 0.1 --out {}".split(),
    ],
    ids=lambda command: command[0],
)
def test_a_command_leaves_no_folder_of_pytorchs_compiler(
    temporary: Path, tmp_path_factory: pytest.TempPathFactory, command: list[str]
) -> None:
    out = str(tmp_path_factory.mktemp("runs"))
    words = [word.format(out) for word in command]
    variables = {k: v for k, v in os.environ.items() if k != "TORCHINDUCTOR_CACHE_DIR"}
    subprocess.run(
        [sys.executable, "-m", "golow", *words], check=True, capture_output=True, env=variables
    )
    assert left(temporary) == []


def test_a_folder_of_pytorchs_compiler_with_something_in_it_stays(temporary: Path) -> None:
    folder = temporary / f"torchinductor_{getpass.getuser()}"
    (folder / "kernels").mkdir(parents=True)
    remove_own()
    assert left(temporary) == [folder.name]
    (folder / "kernels").rmdir()
    remove_own()
    assert left(temporary) == []


@pytest.mark.slow
def test_no_interrupt_leaves_a_folder(temporary: Path) -> None:
    """Hundreds of interrupts at random moments, while a process makes and removes folders."""
    moments = random.Random(0)  # noqa: S311 - moments, not secrets
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        for _ in range(500):
            time.sleep(moments.uniform(0, 0.004))
            child.send_signal(signal.SIGINT)
        time.sleep(0.1)
        output, _ = child.communicate()
    rounds, interrupts = map(int, output.split())
    print(f"{interrupts} interrupts in {rounds} rounds")
    assert interrupts > 100
    assert left(temporary) == []
