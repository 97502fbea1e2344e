"""The cache of LibTorch programs, filled by a compiler that only pretends, and the probe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from golow.levels.libtorch.build import build, probe
from golow.lower.ir.graph import (
    Graph,
    GraphInput,
    GraphOutput,
    Node,
    Ref,
    Value,
    encode_graph,
)
from golow.records.errors import GolowError
from golow.storage.cache import SEAL, is_sealed
from support.plants.damages import DAMAGES, damage_note
from support.processes import all_gone, is_gone, soon

FAKE_COMPILER = """#!/bin/sh
if [ "$1" = --version ]; then echo "fake compiler $VERSION"; exit 0; fi
echo "$$ $*" >> "$LOG"
$ACTION
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\\n' > "$2"
chmod +x "$2"
"""


class Fake(NamedTuple):
    """A compiler that makes nothing and notes how it was called."""

    log: Path
    cache: Path

    def calls(self) -> list[str]:
        """What it compiled and linked; questions about the compiler itself do not count."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if " -o " in line]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    script = tmp_path / "fake-g++"
    script.write_text(FAKE_COMPILER)
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("LOG", str(tmp_path / "calls"))
    monkeypatch.setenv("ACTION", ":")
    monkeypatch.setenv("VERSION", "1")
    return Fake(tmp_path / "calls", tmp_path / "cache")


def tiny(op: str = "aten.relu.default", batch: int = 2) -> Graph:
    shape = (batch, 4)
    node = Node(
        name="y",
        op=op,
        arguments=(Ref(name="x"),),
        outputs=(Value(name="y", shape=shape, dtype="float32"),),
    )
    given = Value(name="x", shape=shape, dtype="float32")
    return Graph(
        name="tiny",
        mode="infer",
        inputs=(GraphInput(value=given, kind="input", target="0"),),
        nodes=(node,),
        outputs=(GraphOutput(name="y", kind="output", target="0"),),
    )


def test_the_worker_is_compiled_once_and_every_network_once(fake: Fake) -> None:
    assert not build(tiny(), fake.cache).cached
    assert len(fake.calls()) == 3  # worker, program, link
    assert build(tiny(), fake.cache).cached
    assert build(tiny(batch=9), fake.cache).cached
    assert len(fake.calls()) == 3
    assert not build(tiny("aten.sigmoid.default"), fake.cache).cached
    assert len(fake.calls()) == 5  # another program, and its link


def test_another_compiler_builds_anew(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tiny(), fake.cache)
    monkeypatch.setenv("VERSION", "2")
    assert not build(tiny(), fake.cache).cached


@pytest.mark.parametrize("name", ["program", "build.json", SEAL])
@pytest.mark.parametrize("damage", [*DAMAGES, "removed"])
def test_a_damaged_entry_is_built_again(fake: Fake, name: str, damage: str) -> None:
    """With a note, unless nothing says that there was an entry."""
    made = build(tiny(), fake.cache)
    DAMAGES.get(damage, Path.unlink)(made.program.parent / name)
    again = build(tiny(), fake.cache)
    assert not again.cached
    noted = () if (name, damage) == (SEAL, "removed") else (damage_note(made.program.parent, name),)
    assert again.notes == noted
    assert os.access(again.program, os.X_OK)
    assert build(tiny(), fake.cache) == again._replace(cached=True, notes=())


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_worker_is_compiled_again(fake: Fake, damage: str) -> None:
    """Whose own file is kept for the programs of all networks."""
    build(tiny(), fake.cache)
    worker = next((fake.cache / "libtorch").glob("worker-*"))
    DAMAGES[damage](worker / "worker.o")
    assert build(tiny("aten.sigmoid.default"), fake.cache).notes == (
        damage_note(worker, "worker.o"),
    )
    assert len(fake.calls()) == 6  # both files and the link, twice
    assert is_sealed(worker)


def test_a_program_that_lost_its_mode_is_executable_again(fake: Fake) -> None:
    build(tiny(), fake.cache).program.chmod(0o644)
    again = build(tiny(), fake.cache)
    assert again.cached
    assert os.access(again.program, os.X_OK)


def folders(cache: Path) -> list[str]:
    return [
        p.name for p in (cache / "libtorch").iterdir() if not p.name.startswith(("logs", "worker"))
    ]


def test_nothing_is_left_beside_the_finished_folders(fake: Fake) -> None:
    program = build(tiny(), fake.cache).program
    assert folders(fake.cache) == [program.parent.name]


def test_a_cache_that_cannot_be_written_is_named(fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(GolowError, match=r"the cache .*file/libtorch cannot be written"):
        build(tiny(), tmp_path / "file")


def test_a_compiler_that_fails_is_quoted_with_its_log(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Path(os.environ["CXX"]).with_name("failing")
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exit 0\n'
        'for i in $(seq 50); do echo "error number $i"; done >&2\nexit 3\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(GolowError, match="status 3") as caught:
        build(tiny(), fake.cache)
    assert "error number 50" in caught.value.message
    assert "error number 3\n" not in caught.value.message
    log = Path(caught.value.hint.removeprefix("its whole output is in ").removesuffix("."))
    assert log.read_text().count("error number") == 50
    assert folders(fake.cache) == []


def building(fake: Fake, before: str = "") -> subprocess.Popen[bytes]:
    """A process that has called both compilers, which take long; `before` is code that it runs
    first."""
    graph = fake.log.with_name("tiny.graph")
    graph.write_bytes(encode_graph(tiny()))
    script = (
        f"import sys; from pathlib import Path\n{before}\n"
        "from golow.levels.libtorch.build import build\n"
        "from golow.lower.ir.graph import decode_graph\n"
        "build(decode_graph(Path(sys.argv[2]).read_bytes()), Path(sys.argv[1]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(fake.cache), str(graph)],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "ACTION": "sleep 30"},
    )
    assert soon(lambda: len(fake.calls()) == 2, 60)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_a_build_that_is_ended_leaves_nothing_half(fake: Fake, ending: signal.Signals) -> None:
    process = building(fake)
    process.send_signal(ending)
    assert process.wait(20) != 0
    compilers = [int(call.split()[0]) for call in fake.calls()]
    if ending is signal.SIGINT:
        assert all_gone(*compilers)
        assert folders(fake.cache) == []
    for pid in compilers:
        if not is_gone(pid):
            os.killpg(pid, signal.SIGKILL)
    assert not build(tiny(), fake.cache).cached
    assert build(tiny(), fake.cache).cached


SLOW_STARTS = """
import subprocess, time
start = subprocess.Popen.__init__
def slow(*arguments, **settings):
    start(*arguments, **settings)
    time.sleep(1)
subprocess.Popen.__init__ = slow
"""


@pytest.mark.slow
def test_ctrl_c_while_a_compiler_is_being_started_leaves_none(fake: Fake) -> None:
    """The compiler runs, and who started it does not know yet."""
    process = building(fake, SLOW_STARTS)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
    assert all_gone(*(int(call.split()[0]) for call in fake.calls()))
    assert folders(fake.cache) == []


# ---------------------------------------------------------------- the probe


def test_without_a_compiler_the_probe_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    assert probe().available
    monkeypatch.setenv("CXX", "/no/such/compiler")
    assert not probe().available
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = probe()
    assert not found.available
    assert "g++" in found.fix
    with pytest.raises(GolowError, match="no C\\+\\+ compiler") as caught:
        build(tiny(), tmp_path)
    assert "g++" in caught.value.hint


def test_the_probe_does_not_import_torch() -> None:
    script = (
        "import sys; from golow.levels.libtorch.build import probe;"
        "assert probe().available; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
