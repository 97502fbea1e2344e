"""An artifact on a machine that is not the one that made it; files that are damaged or hostile."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golow.artifact.container import SEAL, Container
from golow.artifact.loading import load_compiled
from golow.artifact.manifest import FORMAT, MANIFEST
from golow.compiled.compiled_module import CompiledModule
from golow.levels import gpu
from golow.levels.compiler import find_compiler
from golow.records.errors import GolowError
from support.artifacts import changed, in_new_process, manifest, names, with_manifest
from support.direct.compiled_modules import X, close
from support.examples import examples

FOREIGN = [*"abc", "avx9000"]
LOAD = """
import sys
import golow
f = golow.load_compiled(sys.argv[1], cache=sys.argv[2])
assert f.check().matches
print("notes:", f.notes)
"""
ILLEGAL = """
extern "C" void kernel_0(void* const*, const long*, const void*) { __builtin_trap(); }
extern "C" int play(void*, long) { __builtin_trap(); }
extern "C" int play_at(void*) { __builtin_trap(); }
"""


@pytest.fixture
def illegal(saved: Path, tmp_path: Path) -> dict[str, bytes]:
    """The compiled kernels of a processor with other instructions."""
    compiler = find_compiler()
    assert compiler is not None
    (tmp_path / "illegal.cpp").write_text(ILLEGAL)
    library = tmp_path / "illegal.so"
    command = [*compiler.command, "-shared", "-fPIC", str(tmp_path / "illegal.cpp"), "-o"]
    subprocess.run([*command, str(library)], check=True)
    return {name: library.read_bytes() for name in names(saved) if name.endswith(".so")}


@pytest.mark.slow
def test_no_instruction_that_the_processor_lacks(
    saved: Path, illegal: dict[str, bytes], tmp_path: Path
) -> None:
    """Kernels for another processor are compiled again, once; believed to be for this one, they end
    the process, so that the plant is one."""
    file = changed(saved, tmp_path / "same.golow", illegal)
    answer = in_new_process(LOAD, file, tmp_path / "first")
    assert answer.returncode < 0, answer.stderr
    other = with_manifest(file, tmp_path / "other.golow", instruction_sets=FOREIGN)
    for _ in range(2):
        answer = in_new_process(LOAD, other, tmp_path / "second")
        assert answer.returncode == 0, answer.stderr
        assert "kernels were compiled again for this processor" in answer.stdout
    built = list((tmp_path / "second" / "onednn" / "kernels").iterdir())
    assert len(built) == sum(name.endswith(".so") for name in names(saved))


def test_without_a_compiler(
    f: CompiledModule, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shipped kernels need none; those of another processor are NumPy's then."""
    monkeypatch.setenv("CXX", "/no/such/compiler")
    g = load_compiled(saved, cache=tmp_path / "empty")
    assert torch.equal(g(X), f(X))
    assert g.notes == ()
    other = with_manifest(saved, tmp_path / "other.golow", instruction_sets=FOREIGN)
    g = load_compiled(other, cache=tmp_path / "empty")
    assert close(g(X), f(X))
    assert len(g.notes) == 1
    assert g.notes[0].startswith("without a C++ compiler")


def test_a_damaged_copy_in_the_cache_is_written_again(
    f: CompiledModule, saved: Path, tmp_path: Path
) -> None:
    load_compiled(saved, cache=tmp_path).close()
    for file in (tmp_path / "artifacts").iterdir():
        file.unlink()  # this process runs what was in it
        file.write_bytes(b"no library")
    assert torch.equal(load_compiled(saved, cache=tmp_path)(X), f(X))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"format": FORMAT + 1}, f"format {FORMAT + 1}, which a later golow wrote"),
        ({"level": "none"}, "for the level none, which this golow does not load"),
        ({"plans": "none"}, "manifest.json cannot be read"),
        ({"inputs": [{"name": 1}]}, "manifest.json cannot be read"),
        ({"threads": 0}, "0 threads"),
    ],
)
def test_a_manifest_that_cannot_be_met(
    saved: Path, tmp_path: Path, fields: dict[str, object], words: str
) -> None:
    file = with_manifest(saved, tmp_path / "other.golow", **fields)
    with pytest.raises(GolowError, match=words):
        load_compiled(file)


def test_a_machine_without_the_library(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(GolowError, match=r"it needs onednn: .*x86-64, not aarch64"):
        load_compiled(saved)


def test_a_machine_without_a_gpu(saved: Path, tmp_path: Path) -> None:
    """In one sentence, before anything is built."""
    file = with_manifest(saved, tmp_path / "gpu.golow", level="cudnn")
    if gpu.has_gpu():
        pytest.skip("there is a GPU")
    with pytest.raises(GolowError, match="it needs cudnn: there is no NVIDIA GPU"):
        load_compiled(file)


def opened(file: Path) -> dict[str, bytes]:
    """Read all of a file."""
    container = Container(file)
    return {name: bytes(container.mapped(name)) for name in container.names}


@examples(1000)
@given(data=st.data())
def test_a_changed_file_is_told_from_the_whole_one(saved: Path, data: st.DataObject) -> None:
    """Bytes that are changed, cut off, taken out or put in: what is read is what was written, or
    nothing."""
    whole = saved.read_bytes()
    kind = data.draw(st.sampled_from(["change", "cut", "remove", "insert"]))
    place = data.draw(st.integers(0, len(whole) - 1))
    piece = data.draw(st.binary(min_size=1, max_size=8))
    found = {
        "change": whole[:place] + piece + whole[place + len(piece) :],
        "cut": whole[:place],
        "remove": whole[:place] + whole[place + len(piece) :],
        "insert": whole[:place] + piece + whole[place:],
    }[kind]
    file = saved.with_name("changed.golow")
    file.write_bytes(found)
    said, content = "", {}
    try:
        content = opened(file)
    except GolowError as error:
        said = error.message
    assert "is not a complete golow artifact" in said or content == opened(saved)


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside", "a\\b", ".", ""])
def test_names_that_leave_the_file(saved: Path, tmp_path: Path, name: str) -> None:
    file = changed(saved, tmp_path / "hostile.golow", {name: b"content"} if name else {"a//b": b""})
    with pytest.raises(GolowError, match="an entry is called"):
        load_compiled(file)
    assert not (tmp_path.parent / "outside").exists()


def test_entries_that_are_compressed(saved: Path, tmp_path: Path) -> None:
    """A few bytes that become gigabytes."""
    file = tmp_path / "bomb.golow"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(SEAL, b"{}" + b" " * 10_000_000)
    assert file.stat().st_size < 20_000
    with pytest.raises(GolowError, match="is compressed"):
        load_compiled(file)


def test_sizes_that_are_only_said(saved: Path, tmp_path: Path) -> None:
    """In the list of entries, and in the header of the tensors."""
    whole = bytearray(saved.read_bytes())
    at = whole.rindex(b"PK\x01\x02")
    struct.pack_into("<II", whole, at + 20, 2**31, 2**31)
    (tmp_path / "large.golow").write_bytes(whole)
    with pytest.raises(GolowError, match="larger than the file"):
        load_compiled(tmp_path / "large.golow")
    for tensors in (
        {"0.weight": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}},
        {"0.weight": {"dtype": "F32", "shape": [-1, -4], "data_offsets": [0, 16]}},
        {"0.weight": {"dtype": "F32", "shape": [4], "data_offsets": [8, 4]}},
        {"0.weight": {"dtype": "OBJECT", "shape": [1], "data_offsets": [0, 8]}},
        {"0.weight": 3},
        [],
    ):
        header = json.dumps(tensors).encode()
        content = len(header).to_bytes(8, "little") + header + bytes(16)
        file = changed(saved, tmp_path / "tensors.golow", {"weights.safetensors": content})
        with pytest.raises(GolowError, match="is not a safetensors file"):
            load_compiled(file)


@pytest.mark.parametrize("content", [b"", b"PK", b"no archive at all" * 100])
def test_files_that_are_no_artifacts(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.golow").write_bytes(content)
    with pytest.raises(GolowError, match="is not a complete golow artifact"):
        load_compiled(tmp_path / "x.golow")
    with zipfile.ZipFile(tmp_path / "x.golow", "w") as archive:
        archive.writestr("readme.txt", "an archive of something else")
    with pytest.raises(GolowError, match="is not a complete golow artifact"):
        load_compiled(tmp_path / "x.golow")
    with pytest.raises(GolowError, match="there is no file"):
        load_compiled(tmp_path / "none.golow")


def test_equal_modules_make_equal_files(f: CompiledModule, saved: Path, tmp_path: Path) -> None:
    f.save(tmp_path / "again.golow")
    assert (tmp_path / "again.golow").read_bytes() == saved.read_bytes()
    assert manifest(saved)["origin"]["library"].startswith("oneDNN 3.")
    assert MANIFEST in names(saved)


@pytest.mark.slow
def test_a_full_disk_leaves_the_earlier_file(
    f: CompiledModule, saved: Path, tmp_path: Path
) -> None:
    """By a limit on the size of files, in a process of its own."""
    file = tmp_path / "model.golow"
    shutil.copy(saved, file)
    limited = (
        "import resource, signal, sys, torch, golow\n"
        "from torch import nn\n"
        "f = golow.compile(nn.Linear(400, 400).eval(), torch.ones(1, 400), quiet=True)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "try:\n    f.save(sys.argv[1])\n"
        "except golow.GolowError as error:\n    sys.exit(f'said: {error.message}')\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", limited, str(file)], capture_output=True, text=True, check=False
    )
    assert "said: " in answer.stderr
    assert "cannot be written" in answer.stderr
    assert file.read_bytes() == saved.read_bytes()
    assert [one.name for one in tmp_path.iterdir()] == ["model.golow"]
