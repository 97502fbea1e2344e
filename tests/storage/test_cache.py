"""The cache: nobody else can write there, and what was damaged by accident is noticed."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import golow
from golow.levels import ladder
from golow.records.comparison import Run
from golow.records.errors import GolowError
from golow.storage.cache import (
    SEAL,
    building_sealed,
    default_cache,
    discard_damaged,
    is_sealed,
    open_cache,
    read_sealed,
    seal,
    write_sealed,
)
from support.command import golow as run_golow
from support.examples import examples
from support.plants.damages import DAMAGES, damage_note

# ---------------------------------------------------------------- whose it is


def mode(folder: Path) -> int:
    return folder.stat().st_mode & 0o777


def test_it_is_made_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GOLOW_CACHE", raising=False)
    before = os.umask(0)
    try:
        assert open_cache() == tmp_path / "home" / "golow"
        assert mode(open_cache(tmp_path / "named" / "cache")) == 0o700
    finally:
        os.umask(before)
    assert mode(open_cache()) == 0o700


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, "home/.cache/golow"),
        ({"XDG_CACHE_HOME": ""}, "home/.cache/golow"),
        ({"XDG_CACHE_HOME": "{}/caches"}, "caches/golow"),
        ({"GOLOW_CACHE": "", "XDG_CACHE_HOME": "{}/caches"}, "caches/golow"),
        ({"GOLOW_CACHE": "{}/own", "XDG_CACHE_HOME": "{}/caches"}, "own"),
    ],
)
def test_its_place_is_golows_variable_the_desktops_or_the_home_folder(
    variables: dict[str, str], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("GOLOW_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    assert default_cache() == tmp_path / place
    assert not (tmp_path / place).exists()


@pytest.mark.parametrize("allowed", [0o700, 0o755, 0o750])
def test_others_may_read_it(tmp_path: Path, allowed: int) -> None:
    tmp_path.chmod(allowed)
    assert mode(open_cache(tmp_path)) == allowed


@pytest.mark.parametrize("forbidden", [0o777, 0o720, 0o702, 0o1777])
def test_others_may_not_write_it(tmp_path: Path, forbidden: int) -> None:
    tmp_path.chmod(forbidden)
    with pytest.raises(GolowError, match="others can write the cache") as raised:
        open_cache(tmp_path)
    run_the_command(raised.value)
    assert open_cache(tmp_path) == tmp_path


def run_the_command(error: GolowError) -> None:
    """Type what the hint says."""
    command = error.hint.removeprefix("run: ").partition(", or")[0]
    subprocess.run(shlex.split(command), check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_it_is_not_another_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(GolowError, match="belongs to another user"):
        open_cache(tmp_path)


def test_what_is_above_it_counts(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    cache = open_cache(shared / "own" / "cache")
    shared.chmod(0o1777)
    assert open_cache(cache) == cache  # nobody else can rename it there
    shared.chmod(0o777)
    with pytest.raises(
        GolowError, match=f"others can write {shared}, and programs in the cache"
    ) as raised:
        open_cache(cache)
    run_the_command(raised.value)
    assert open_cache(cache) == cache


def test_what_is_above_its_link_and_its_target_counts(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "cache"
    link.symlink_to(tmp_path / "target")
    assert open_cache(link) == link
    for folder in ("links", "target"):
        (tmp_path / folder).chmod(0o777)
        with pytest.raises(GolowError, match=f"others can write {tmp_path / folder}") as raised:
            open_cache(link)
        run_the_command(raised.value)
    (tmp_path / "target").chmod(0o1777)  # the cache itself is shared then
    with pytest.raises(GolowError, match="others can write"):
        open_cache(link)


@pytest.mark.parametrize("inside", ["libtorch", "libtorch/0123"])
def test_what_is_in_it_counts(inside: str, tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "cache")
    (cache / inside).mkdir(parents=True)
    (cache / inside).chmod(0o775)
    with pytest.raises(GolowError, match=f"others can write {cache / inside}") as raised:
        open_cache(cache)
    run_the_command(raised.value)
    (cache / inside / "program").write_bytes(b"")
    assert open_cache(cache) == cache


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_another_user_left_in_it_is_removed(tmp_path: Path) -> None:
    """A cache that was open to others, and is closed now."""
    cache = open_cache(tmp_path / "cache")
    (cache / "libtorch" / "planted").mkdir(parents=True)
    os.chown(cache / "libtorch" / "planted", 12345, -1)
    with pytest.raises(GolowError, match="planted belongs to another user, 12345") as raised:
        open_cache(cache)
    run_the_command(raised.value)
    assert open_cache(cache) == cache
    assert not (cache / "libtorch" / "planted").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_above_it(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "theirs" / "cache")
    os.chown(tmp_path / "theirs", 12345, -1)
    with pytest.raises(GolowError, match="theirs belongs to another user, 12345") as raised:
        open_cache(cache)
    assert raised.value.hint.startswith("name another folder")


def test_folders_that_it_makes_are_its_users_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        cache = open_cache(tmp_path / "above" / "cache")
    finally:
        os.umask(before)
    assert (mode(cache), mode(cache.parent)) == (0o700, 0o755)


def test_its_place_may_be_a_text(tmp_path: Path) -> None:
    """As ``cache="folder"`` in Python."""
    assert open_cache(str(tmp_path / "cache")) == tmp_path / "cache"
    assert (tmp_path / "cache").is_dir()


def test_the_command_line_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("GOLOW_CACHE", str(tmp_path))
    done = run_golow("compare", "lenet5", "--levels", "eager")
    assert done.status == 2
    assert "others can write the cache" in done.error
    assert f"chmod go-w {tmp_path}" in " ".join(done.error.split())
    assert "Traceback" not in done.error


# ---------------------------------------------------------------- sealed files


@given(data=st.binary(max_size=50))
@examples(50)
def test_what_was_written_is_read(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    file, notes = tmp_path_factory.mktemp("sealed") / "new" / "file", list[str]()
    assert read_sealed(file, notes) is None
    write_sealed(file, data)
    assert read_sealed(file, notes) == data
    assert notes == []


@given(place=st.integers(0, 71 + 9), other=st.integers(1, 255))
@examples(100)
def test_any_other_byte_is_noticed(
    place: int, other: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file, notes = tmp_path_factory.mktemp("sealed") / "file", list[str]()
    write_sealed(file, b"some bytes")
    content = bytearray(file.read_bytes())
    content[place % len(content)] ^= other
    file.write_bytes(content)
    assert read_sealed(file, notes) is None
    assert notes == [damage_note(file.parent, "file")]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_noted_and_written_again(tmp_path: Path, damage: str) -> None:
    file, notes = tmp_path / "file", list[str]()
    write_sealed(file, b"some bytes")
    DAMAGES[damage](file)
    assert read_sealed(file, notes) is None
    assert notes == [damage_note(tmp_path, "file")]
    write_sealed(file, b"others")
    assert read_sealed(file, notes) == b"others"


# ---------------------------------------------------------------- sealed folders


def sealed_folder(folder: Path) -> Path:
    with building_sealed(folder, "building-") as draft:
        (draft / "deep").mkdir()
        (draft / "deep" / "one").write_bytes(b"1" * 3000)
        (draft / "two").write_bytes(b"some bytes")
    return folder


@pytest.mark.parametrize("name", ["deep/one", "two", SEAL])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_noted_and_removed(tmp_path: Path, name: str, damage: str) -> None:
    folder, notes = sealed_folder(tmp_path / "folder"), list[str]()
    discard_damaged(folder, notes)
    assert is_sealed(folder)
    assert notes == []
    DAMAGES[damage](folder / name)
    assert not is_sealed(folder)
    discard_damaged(folder, notes)
    assert notes == [damage_note(folder, name)]
    assert not folder.exists()
    assert is_sealed(sealed_folder(folder))


def test_a_file_that_is_gone_is_damage_and_one_that_came_is_not(tmp_path: Path) -> None:
    folder, notes = sealed_folder(tmp_path / "folder"), list[str]()
    (folder / "three").write_bytes(b"a lock, say")
    discard_damaged(folder, notes)
    assert is_sealed(folder)
    (folder / "two").unlink()
    discard_damaged(folder, notes)
    assert notes == [damage_note(folder, "two")]


def test_a_folder_without_a_seal_may_be_in_the_making(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"half")
    notes: list[str] = []
    discard_damaged(tmp_path, notes)
    assert (notes, is_sealed(tmp_path), (tmp_path / "file").exists()) == ([], False, True)
    seal(tmp_path)
    assert is_sealed(tmp_path)


# ---------------------------------------------------------------- what uses it


@pytest.mark.whole_network
@pytest.mark.parametrize("pattern", ["*.so", "fxgraph/**/*"])
def test_torchs_compiled_code_is_compiled_again(compiled: Path, pattern: str) -> None:
    """Both what is executed and what is unpickled. A warm start leaves the files as they are."""
    again = compare_compiled(compiled)
    assert again.build_cached
    folder = next((compiled / "inductor").iterdir())
    file = next(path for path in folder.rglob(pattern) if path.is_file())
    DAMAGES["truncated"](file)
    again = compare_compiled(compiled)
    assert again.check.verdict == "match"
    assert not again.build_cached
    assert damage_note(folder, str(file.relative_to(folder))) in again.notes


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache after a comparison with torch.compile."""
    if not ladder.choose("compile", "infer").level.probe().available:
        pytest.skip("there is no compiler")
    cache = tmp_path_factory.mktemp("compiled")
    assert not compare_compiled(cache).build_cached
    return cache


def compare_compiled(cache: Path) -> Run:
    result = golow.compare(
        "lenet5", batch=2, levels=["compile"], threads=1, time_limit=0.1, cache=cache
    )
    return result.run("compile")
