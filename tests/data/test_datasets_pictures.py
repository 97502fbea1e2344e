"""Folders of pictures: how they may be stored, what they may be, and what is said of others."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from golow.data import folder
from golow.data.part import Part
from golow.records.errors import GolowError
from support.data.dataset_files import picture
from support.data.dataset_parts import read, refused


def pictures(path: Path, layout: Mapping[str, int]) -> Path:
    for place, count in layout.items():
        for number in range(count):
            picture(path / place / f"{number:02d}.png", seed=zlib.crc32(place.encode()) + number)
    return path


def test_a_folder_with_training_and_test_part(tmp_path: Path) -> None:
    layout = {"train/b": 2, "train/a": 3, "test/a": 1, "test/b": 2}
    path = pictures(tmp_path, layout)
    (path / "train/a/.hidden").write_text("")
    (path / "train/b/Thumbs.db").write_text("")
    assert folder.classes(path) == ("a", "b")
    found = folder.parts(path)
    labels, images = read(found["train"], (9, 12))
    assert labels.tolist() == [0, 0, 0, 1, 1]
    expected = np.asarray(Image.open(path / "train/a/02.png")).transpose(2, 0, 1)
    np.testing.assert_array_equal(images[2], expected)
    assert read(found["test"], (5, 4))[0].tolist() == [0, 1, 1]


def test_a_folder_of_classes_is_split(tmp_path: Path) -> None:
    path = pictures(tmp_path, {"a": 10, "b": 4, "c": 1})
    found = folder.parts(path)
    train, test = found["train"], found["test"]
    assert np.bincount(train.labels()).tolist() == [8, 3, 1]
    assert np.bincount(test.labels()).tolist() == [2, 1]
    assert set(train.files) | set(test.files) == set(path.rglob("*.png"))
    assert not set(train.files) & set(test.files)
    assert folder.parts(path)["test"].files == test.files


def test_a_test_part_may_be_called_val_and_lack_a_class(tmp_path: Path) -> None:
    path = pictures(tmp_path, {"train/a": 1, "train/b": 1, "val/b": 1})
    assert folder.parts(path)["test"].labels().tolist() == [1]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    assert folder.classes(pictures(tmp_path, {"train": 2, "car": 2})) == ("car", "train")


@pytest.mark.parametrize(
    ("layout", "extra", "word"),
    [
        ({}, None, "has 0 folders"),
        ({"a": 2}, None, "has 1 folders"),
        ({"a": 2, "b": 0}, "b/notes.txt", "b/notes.txt is not an image"),
        ({"a": 2, "b": 0}, "b/more/x.png", "b/more is not an image"),
        ({"a": 2, "b": 0}, "b/.nothing", "b has no images"),
        ({"train/a": 1, "train/b": 1, "test/c": 1}, None, "test has the class c"),
        ({"train/a": 1, "train/b": 1}, "test/.nothing", "no images"),
        ({"a": 1, "b": 1}, None, "no images"),
    ],
)
def test_a_folder_that_is_laid_out_otherwise(
    layout: dict[str, int], extra: str | None, word: str, tmp_path: Path
) -> None:
    path = pictures(tmp_path, layout)
    if extra is not None:
        (path / extra).parent.mkdir(parents=True, exist_ok=True)
        (path / extra).write_text("")
    with pytest.raises(GolowError, match=word):
        folder.parts(path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(GolowError, match="is not a folder"):
        folder.classes(tmp_path / "nowhere")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    path = pictures(tmp_path, {"a": 1, "b": 1})
    (path / "a" / "\udcff.png").write_bytes(b"")
    with pytest.raises(GolowError, match="not plain text"):
        folder.parts(path)


@pytest.mark.parametrize(
    ("suffix", "mode"),
    [
        *[("jpg", mode) for mode in ("RGB", "L", "CMYK")],
        *[("png", mode) for mode in ("RGB", "L", "1", "P", "LA", "RGBA")],
        *[("bmp", mode) for mode in ("RGB", "L", "1", "P")],
        *[("webp", mode) for mode in ("RGB", "RGBA")],
    ],
)
def test_pictures_of_every_kind_become_rgb(suffix: str, mode: str, tmp_path: Path) -> None:
    file = picture(tmp_path / "a" / f"x.{suffix}", mode=mode)
    picture(tmp_path / "a" / "y.png")
    picture(tmp_path / "b" / "z.png")
    part = next(part for part in folder.parts(tmp_path).values() if file in part.files)
    images = read(part, (9, 12))[1]
    expected = np.asarray(Image.open(file).convert("RGB")).transpose(2, 0, 1)
    np.testing.assert_array_equal(images[part.files.index(file)], expected)


def png(width: int, height: int) -> bytes:
    """A PNG that says it is so large, with as good as nothing in it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


def damaged(kind: str, file: Path) -> bytes:
    good = picture(file).read_bytes()
    return {
        "cut off": good[: len(good) // 2],
        "empty": b"",
        "text": b"<html>404 Not Found</html>",
        "bomb": png(60_000, 60_000),
        "large": png(9_000, 9_000),
        "missing pixels": png(100, 100),
        "a GIF": b"GIF89a\1\0\1\0\0\0\0,\0\0\0\0\1\0\1\0\0\2\1\0\0;",
    }[kind]


@pytest.mark.parametrize(
    "kind", ["cut off", "empty", "text", "bomb", "large", "missing pixels", "a GIF"]
)
@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_a_picture_that_does_not_decode(kind: str, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / "a" / f"x.{suffix}"
    file.parent.mkdir()
    file.write_bytes(damaged(kind, tmp_path / f"good.{suffix}"))
    picture(tmp_path / "b" / "y.png")
    (tmp_path / f"good.{suffix}").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        refused(folder_part(tmp_path), (8, 8), str(file), "pixels" if kind == "large" else "decode")


def folder_part(path: Path) -> Part:
    """Two classes of one picture each: all of it is the training set."""
    picture(path / "a" / "zz.png")
    picture(path / "b" / "zz.png")
    from golow.data.part import PicturePart

    files = tuple(sorted(path.rglob("*.*")))
    return PicturePart(files, "", files, lambda: np.zeros(len(files), dtype=np.int64))


def test_sixteen_bits_are_refused_rather_than_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "x.png"
    Image.fromarray(np.full((4, 4), 30_000, dtype=np.uint16)).save(file)
    refused(folder_part(tmp_path), (4, 4), str(file), "more than 8 bits")
