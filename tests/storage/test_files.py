"""Files and folders that appear whole: after an error nothing is left, nobody ever reads a half."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golow.records.errors import GolowError
from golow.storage import files


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# ---------------------------------------------------------------- one file


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    files.write_whole(path, b"one")
    with files.replacing(path) as file:
        file.write(b"tw")
        file.flush()
        assert path.read_bytes() == b"one"
        file.write(b"o")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o644
    assert names(tmp_path) == ["a"]


def test_the_data_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flushed = tmp_path / "a", []

    def flush(handle: int) -> None:
        assert not path.exists()
        flushed.append(os.fstat(handle).st_size)

    monkeypatch.setattr(os, "fsync", flush)
    files.write_whole(path, b"data")
    assert flushed == [4]


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_no_other(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "a"
    files.write_whole(path, b"one")

    def fail() -> None:
        with files.replacing(path) as file:
            file.write(b"two")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"one"
    assert names(tmp_path) == ["a"]


def test_a_flush_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_whole(tmp_path / "a", b"data")
    assert names(tmp_path) == []


def torn(write: Callable[[Path, bytes], object], path: Path) -> bool:
    """True if a reader ever finds a half while several writers replace the file."""
    contents = [bytes([number]) * 200_000 for number in range(4)]
    write(path, contents[0])
    writers = [
        threading.Thread(target=lambda data=data: [write(path, data) for _ in range(40)])
        for data in contents
    ]
    for writer in writers:
        writer.start()
    found = False
    while any(writer.is_alive() for writer in writers):
        found |= path.read_bytes() not in contents
    for writer in writers:
        writer.join()
    return found


def test_no_reader_sees_a_half(tmp_path: Path) -> None:
    assert torn(Path.write_bytes, tmp_path / "plain")  # what is used instead must not be
    assert not torn(files.write_whole, tmp_path / "whole")
    assert names(tmp_path) == ["plain", "whole"]


def test_a_finished_file_is_moved(tmp_path: Path) -> None:
    (tmp_path / "draft").write_bytes(b"new")
    (tmp_path / "a").write_bytes(b"old")
    files.move_into_place(tmp_path / "draft", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_what_cannot_be_written_is_named_with_its_cause_and_a_hint(tmp_path: Path) -> None:
    place = tmp_path / "none" / "a"
    with pytest.raises(GolowError) as raised, files.writing(place, "do this."):
        files.write_whole(place, b"")
    assert raised.value.message == f"{place} cannot be written: No such file or directory"
    assert raised.value.hint == "do this."
    assert isinstance(raised.value.__cause__, OSError)


def test_other_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine"), files.writing(tmp_path, ""):
        raise ValueError("mine")


# ---------------------------------------------------------------- one folder


def entry(folder: Path) -> Callable[[], bool]:
    return lambda: (folder / "done").is_file()


def test_a_folder_appears_when_it_is_finished(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "key"
    with files.building(folder, "making-", entry(folder)) as draft:
        (draft / "done").touch()
        assert draft.parent == folder.parent
        assert draft.name.startswith("making-")
        assert not folder.exists()
    assert names(folder) == ["done"]
    assert folder.stat().st_mode & 0o777 == 0o755
    assert names(folder.parent) == ["key"]


def test_an_error_leaves_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "key"
    with pytest.raises(OSError, match="mine"), files.building(folder, "making-", entry(folder)):
        raise OSError("mine")
    assert names(tmp_path) == []


def test_the_folder_of_a_faster_process_stays(tmp_path: Path) -> None:
    folder = tmp_path / "key"
    with files.building(folder, "making-", entry(folder)) as draft:
        (draft / "done").write_text("slow")
        folder.mkdir()
        (folder / "done").write_text("fast")
    assert (folder / "done").read_text() == "fast"
    assert names(tmp_path) == ["key"]


def test_a_damaged_folder_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "key"
    folder.mkdir()
    (folder / "half").touch()
    with files.building(folder, "making-", entry(folder)) as draft:
        (draft / "done").touch()
    assert names(folder) == ["done"]
    assert names(tmp_path) == ["key"]


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "key"
    with pytest.raises(GolowError) as raised, files.building(folder, "making-", entry(folder)):
        pass
    assert raised.value.message.startswith(f"the cache {tmp_path / 'file'} cannot be written: ")
    assert "GOLOW_CACHE" in raised.value.hint


# ---------------------------------------------------------------- what is no file to read


def test_what_is_read_whole_is_a_file_of_usual_size(tmp_path: Path) -> None:
    folder, pipe, large, loop = (tmp_path / name for name in ("folder", "pipe", "large", "loop"))
    folder.mkdir()
    os.mkfifo(pipe)
    with large.open("wb") as stream:
        stream.truncate(files.MOST_BYTES + 1)
    loop.symlink_to("loop")
    for path, words in {
        tmp_path / "nothing": "there is no file",
        folder: "is a folder, not a file",
        pipe: "is a pipe or a device, not a file",
        Path("/dev/zero"): "is a pipe or a device, not a file",
        large: "67,108,865 bytes",
        loop: "cannot be read: Too many levels of symbolic links",
        Path("x" * 5000): "cannot be read: File name too long",
        Path("a\0b"): "cannot be read: embedded null byte",
    }.items():
        with pytest.raises(GolowError, match=words):
            files.read_whole(path)


def test_text_is_utf8_and_json_is_a_record(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for data, words in (
        (b"one\ntw\xff", "is not UTF-8 text: byte 0xff in line 2"),
        (b'{"a": ' + b"[" * 100_000, "maximum recursion depth"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{", "truncated"),
    ):
        path.write_bytes(data)
        with pytest.raises(GolowError, match=words):
            files.read_json(path, dict[str, Any])
    path.write_bytes('{"ü": 1}'.encode())
    assert files.read_json(path, dict[str, int]) == {"ü": 1}


def test_where_a_file_can_be_written(tmp_path: Path) -> None:
    files.require_place(tmp_path / "new")
    with pytest.raises(GolowError, match="is a folder, not a file"):
        files.require_place(tmp_path)
    with pytest.raises(GolowError, match="there is no folder"):
        files.require_place(tmp_path / "nowhere" / "new")
    (tmp_path / "file").touch()
    files.require_writable(tmp_path / "nowhere" / "new", "")
    for place in Path("/proc/new"), tmp_path / "file" / "new":
        with pytest.raises(GolowError, match=f"{place} cannot be written: "):
            files.require_writable(place, "")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
