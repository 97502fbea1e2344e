"""The readers of the publishers' formats: what is in a file is read, what is wrong is named."""

from __future__ import annotations

import gzip
import struct
import tempfile
import warnings
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dataset_files import (
    annotation,
    drawn,
    picture,
    write_cifar10,
    write_mnist,
    write_stl10,
    write_voc,
)
from golow.data import cifar10, digits, folder, mnist, stl10, voc
from golow.data.part import Part
from golow.data.pictures import resized
from golow.record import GolowError


def read(part: Part, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Labels [N] and all images [N, C, *size]."""
    labels, batches = part.labels(), list(part.images(size))
    assert labels.dtype == np.int64
    assert all(batch.dtype == np.uint8 for batch in batches)
    images = np.concatenate(batches)
    assert len(labels) == len(images)
    return labels, images


def refused(part: Part, size: tuple[int, int], *words: str) -> None:
    with pytest.raises(GolowError) as caught:
        read(part, size)
    for word in words:
        assert word in caught.value.message
    assert caught.value.hint


# ---------------------------------------------------------------- MNIST


@pytest.mark.parametrize("gzipped", [True, False])
def test_mnist(gzipped: bool, tmp_path: Path) -> None:
    arrays = drawn((1, 28, 28), train=1030, test=7)  # more than a batch
    found = mnist.parts(write_mnist(tmp_path, arrays, gzipped))
    assert list(found) == ["train", "test"]
    for name, part in found.items():
        labels, images = read(part, (28, 28))
        np.testing.assert_array_equal(images, arrays[name][0])
        np.testing.assert_array_equal(labels, arrays[name][1])


IDX = b"\0\0\x08\x03" + struct.pack(">3I", 2, 28, 28) + bytes(2 * 784)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "is cut off"),
        (IDX[:15], "is cut off"),
        (IDX[:-1], "is cut off"),
        (IDX + b"\0", "longer than its header says"),
        (b"\0\0\x08\x01" + IDX[4:], "begins with magic 0x801"),
        (b"PK\3\4" + IDX[4:], "begins with magic 0x504b0304"),
        (IDX[:8] + struct.pack(">2I", 27, 28) + IDX[16:], "expected 0x803 and 28x28"),
        (IDX[:4] + struct.pack(">3I", 0, 28, 28), "has no samples"),
        (IDX[:4] + struct.pack(">3I", 2**32 - 1, 28, 28) + IDX[16:], "labels for 4,294,967,295"),
        (IDX[:4] + struct.pack(">3I", 3, 28, 28) + bytes(3 * 784), "2 labels for 3 images"),
    ],
)
@pytest.mark.parametrize("gzipped", [True, False])
def test_mnist_images_that_are_none(data: bytes, word: str, gzipped: bool, tmp_path: Path) -> None:
    inside = write_mnist(tmp_path, drawn((1, 28, 28), train=2, test=2), gzipped)
    file = inside / f"train-images-idx3-ubyte{'.gz' if gzipped else ''}"
    file.write_bytes(gzip.compress(data) if gzipped else data)
    refused(mnist.parts(inside)["train"], (28, 28), word, str(inside))


def test_mnist_labels_out_of_range(tmp_path: Path) -> None:
    arrays = drawn((1, 28, 28), train=5, test=2)
    arrays["train"][1][:] = [0, 9, 3, 10, 1]
    part = mnist.parts(write_mnist(tmp_path, arrays))["train"]
    refused(part, (28, 28), "train-labels", "sample 3 is 10, expected 0 to 9")


def test_mnist_labels_that_claim_more_than_there_is(tmp_path: Path) -> None:
    """The header may say four thousand million; nothing of that size is allocated."""
    inside = write_mnist(tmp_path, drawn((1, 28, 28), train=2, test=2), gzipped=False)
    many = struct.pack(">I", 2**32 - 1)
    for name, start in (("images-idx3", 16), ("labels-idx1", 8)):
        file = inside / f"train-{name}-ubyte"
        data = file.read_bytes()
        file.write_bytes(data[:4] + many + data[8:start] + data[start:])
    refused(mnist.parts(inside)["train"], (28, 28), "train-labels", "cut off")


def test_a_gzip_file_with_a_wrong_checksum(tmp_path: Path) -> None:
    inside = write_mnist(tmp_path, drawn((1, 28, 28), train=2, test=2))
    file = inside / "train-images-idx3-ubyte.gz"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    refused(mnist.parts(inside)["train"], (28, 28), "does not unpack", "CRC")


# ---------------------------------------------------------------- CIFAR-10 and STL-10


def test_cifar10(tmp_path: Path) -> None:
    arrays = drawn((3, 32, 32), train=50, test=3)
    found = cifar10.parts(write_cifar10(tmp_path, arrays))
    for name in ("train", "test"):
        labels, images = read(found[name], (32, 32))
        np.testing.assert_array_equal(images, arrays[name][0])
        np.testing.assert_array_equal(labels, arrays[name][1])


def test_cifar10_that_is_damaged(tmp_path: Path) -> None:
    inside = write_cifar10(tmp_path, drawn((3, 32, 32), train=10, test=3))
    file = inside / "data_batch_3.bin"
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    refused(cifar10.parts(inside)["train"], (32, 32), str(file), "6,145 bytes", "records of 3,073")
    file.write_bytes(b"")
    refused(cifar10.parts(inside)["train"], (32, 32), str(file), "0 bytes")
    file.write_bytes(b"\x0a" + data[1:])
    refused(cifar10.parts(inside)["train"], (32, 32), str(file), "sample 0 is 10")
    file.unlink()
    refused(cifar10.parts(inside)["train"], (32, 32), str(file), "is missing")


def test_stl10(tmp_path: Path) -> None:
    arrays = drawn((3, 96, 96), train=160, test=3, unlabeled=4)  # more than a batch
    found = stl10.parts(write_stl10(tmp_path, arrays))
    assert list(found) == ["train", "test", "unlabeled"]
    for name, part in found.items():
        labels, images = read(part, (96, 96))
        np.testing.assert_array_equal(images, arrays[name][0])
        expected = np.full(4, -1) if name == "unlabeled" else arrays[name][1]
        np.testing.assert_array_equal(labels, expected)


@pytest.mark.parametrize("only", ["train", "test"])
def test_stl10_of_which_one_part_is_there(only: str, tmp_path: Path) -> None:
    """Two halves: every sample once, as often as not in file order, the same each time."""
    images, labels = drawn((3, 96, 96), test=150)["test"]
    inside = write_stl10(tmp_path, {only: (images, labels)})
    found = stl10.parts(inside)
    halves = {name: read(found[name], (96, 96)) for name in ("train", "test")}
    assert [len(half[0]) for half in halves.values()] == [75, 75]
    whole = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    for half_labels, half_images in halves.values():
        for image, label in zip(half_images, half_labels, strict=True):
            assert whole.pop(image.tobytes()) == label
    assert not whole
    assert f"only {only} is there" in found["train"].source
    again = read(stl10.parts(inside)["train"], (96, 96))
    np.testing.assert_array_equal(again[1], halves["train"][1])


def test_stl10_that_is_damaged(tmp_path: Path) -> None:
    inside = write_stl10(tmp_path, drawn((3, 96, 96), train=4, test=1))
    labels = inside / "train_y.bin"
    labels.write_bytes(b"\1\2\3")
    refused(stl10.parts(inside)["train"], (96, 96), str(labels), "3 labels for 4 images")
    labels.write_bytes(b"\1\2\0\3")
    refused(stl10.parts(inside)["train"], (96, 96), str(labels), "sample 2 is 0, expected 1 to 10")
    labels.unlink()
    refused(stl10.parts(inside)["train"], (96, 96), str(labels), "is missing")
    (inside / "train_X.bin").write_bytes(bytes(27_647))
    refused(stl10.parts(inside)["train"], (96, 96), "27,647 bytes", "records of 27,648")


def test_one_image_of_stl10_cannot_be_split(tmp_path: Path) -> None:
    found = stl10.parts(write_stl10(tmp_path, drawn((3, 96, 96), test=1)))
    refused(found["train"], (96, 96), "cannot be split")


# ---------------------------------------------------------------- PASCAL VOC


def test_voc(tmp_path: Path) -> None:
    inside = write_voc(tmp_path)
    first, largest = voc.parts(inside), voc.parts(inside, "largest")
    assert first["train"].labels().tolist() == [0, 1, 2]
    assert first["test"].labels().tolist() == [3, 4]
    assert largest["train"].labels().tolist() == [1, 2, 3]
    _, images = read(first["test"], (30, 43))
    expected = np.asarray(Image.open(inside / "JPEGImages/2007_000003.jpg"))  # 43 x 30 already
    np.testing.assert_array_equal(images[0], expected.transpose(2, 0, 1))


ENTITY_BOMB = (
    '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]><annotation><object><name>&c;</name></object>'
    "</annotation>"
)
OUTSIDE = (
    '<!DOCTYPE a [<!ENTITY f SYSTEM "file:///etc/passwd">]><annotation><object><name>&f;</name>'
    "</object></annotation>"
)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (ENTITY_BOMB, "declares a document type (lolz)"),
        (ENTITY_BOMB.encode("utf-16"), "declares a document type (lolz)"),
        (OUTSIDE, "declares a document type (a)"),
        ("<!DOCTYPE annotation><annotation/>", "declares a document type"),
        ("", "no element found"),
        ("<annotation><object>", "no element found"),
        ("<annotation></object>", "mismatched tag"),
        ('<?xml version="1.0" encoding="klingon"?><a/>', "unknown encoding"),
        (b"\xff\xfe\x00", "is no annotation of VOC"),
        ("<annotation/>", "describes no object"),
        (annotation(("horseradish", 1, 1, 2, 2)), "the class 'horseradish'"),
        ("<annotation><object/></annotation>", "the class ''"),
    ],
)
def test_an_annotation_that_is_none(text: str | bytes, word: str, tmp_path: Path) -> None:
    inside = write_voc(tmp_path)
    file = inside / "Annotations/2007_000001.xml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    refused(voc.parts(inside)["train"], (8, 8), str(file), word)


@pytest.mark.parametrize(
    "box", ["", "<bndbox><xmin>1</xmin></bndbox>", "1 1 nan 9", "9 1 3 9", "1 1 inf 9", "a 1 3 9"]
)
def test_an_object_without_a_box(box: str, tmp_path: Path) -> None:
    inside = write_voc(tmp_path)
    file = inside / "Annotations/2007_000001.xml"
    if box and box[0] != "<":
        names = ("xmin", "ymin", "xmax", "ymax")
        edges = zip(names, box.split(), strict=True)
        box = "<bndbox>" + "".join(f"<{name}>{edge}</{name}>" for name, edge in edges) + "</bndbox>"
    file.write_text(f"<annotation><object><name>cat</name>{box}</object></annotation>")
    assert voc.parts(inside)["train"].labels().tolist() == [0, voc.CLASSES.index("cat"), 2]
    refused(voc.parts(inside, "largest")["train"], (8, 8), str(file), "whose box is")


@pytest.mark.parametrize("text", ["", " \n", "../../etc/passwd\n", "2007_000000.jpg", "a/b"])
def test_a_list_that_is_none(text: str, tmp_path: Path) -> None:
    inside = write_voc(tmp_path)
    (inside / "ImageSets/Main/train.txt").write_text(text)
    with pytest.raises(GolowError, match=r"train\.txt .*expected names of pictures"):
        voc.parts(inside)
    (inside / "ImageSets/Main/train.txt").unlink()
    with pytest.raises(GolowError, match=r"train\.txt is missing"):
        voc.parts(inside)


# ---------------------------------------------------------------- pictures


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
        ({"a": 2, "b": 0}, "b/notes.txt", "b/notes.txt is no picture"),
        ({"a": 2, "b": 0}, "b/more/x.png", "b/more is no picture"),
        ({"a": 2, "b": 0}, "b/.nothing", "b has no pictures"),
        ({"train/a": 1, "train/b": 1, "test/c": 1}, None, "test has the class c"),
        ({"train/a": 1, "train/b": 1}, "test/.nothing", "no pictures"),
        ({"a": 1, "b": 1}, None, "no pictures"),
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
    """Two classes of one picture each: all of it is the training part."""
    picture(path / "a" / "zz.png")
    picture(path / "b" / "zz.png")
    from golow.data.part import PicturePart

    files = tuple(sorted(path.rglob("*.*")))
    return PicturePart(files, "", files, lambda: np.zeros(len(files), dtype=np.int64))


def test_sixteen_bits_are_refused_rather_than_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "x.png"
    Image.fromarray(np.full((4, 4), 30_000, dtype=np.uint16)).save(file)
    refused(folder_part(tmp_path), (4, 4), str(file), "more than 8 bits")


# ---------------------------------------------------------------- digits and resizing


def test_digits_are_all_there_once() -> None:
    found = digits.parts()
    train, test = read(found["train"], (8, 8)), read(found["test"], (8, 8))
    assert (len(train[0]), len(test[0])) == (1437, 360)
    pixels, labels = digits.load()
    label_of = {image.tobytes(): label for image, label in zip(pixels, labels, strict=True)}
    assert len(label_of) == 1797
    for part_labels, images in (train, test):
        assert (images.min(), images.max()) == (0, 255)
        small = np.rint(images[:, 0] / 255 * 16).astype(np.uint8)
        for image, label in zip(small, part_labels, strict=True):
            assert label_of.pop(image.tobytes()) == label
    assert np.bincount(test[0]).min() > 20


def triangle(size: int, target: int) -> np.ndarray:
    """The matrix [target, size] of a bilinear filter that averages when it makes smaller."""
    scale = max(1.0, size / target)
    centres = (np.arange(target) + 0.5) * (size / target)
    distance = np.abs(centres[:, None] - (np.arange(size) + 0.5)) / scale
    weights = np.maximum(0.0, 1.0 - distance)
    return np.asarray(weights / weights.sum(1, keepdims=True))


@settings(deadline=None, max_examples=30)
@given(
    channels=st.sampled_from([1, 3]),
    rows=st.integers(2, 20),
    columns=st.integers(2, 20),
    height=st.integers(1, 30),
    width=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_resizing_is_bilinear_with_averaging(
    channels: int, rows: int, columns: int, height: int, width: int, seed: int
) -> None:
    images = np.random.default_rng(seed).integers(0, 256, (3, channels, rows, columns))
    [made] = resized([images.astype(np.uint8)], (height, width))
    assert made.shape == (3, channels, height, width)
    expected = triangle(rows, height) @ images @ triangle(columns, width).T
    assert np.abs(made - expected).max() <= 1.51  # rounded once an axis


# ---------------------------------------------------------------- any bytes at all

Read = Callable[[Path], None]


def survives(file: Path, whole: bytes, reading: Read, data: st.DataObject, root: Path) -> None:
    """Change the file's bytes in one of the ways in which files change, and read it."""
    kind = data.draw(st.sampled_from(["cut", "flip", "insert", "replace", "random"]))
    place = data.draw(st.integers(0, max(0, len(whole) - 1)))
    some = data.draw(st.binary(min_size=1, max_size=40))
    changed = {
        "cut": whole[:place],
        "flip": whole[:place] + bytes([whole[place] ^ some[0]]) + whole[place + 1 :],
        "insert": whole[:place] + some + whole[place:],
        "replace": whole[:place] + some + whole[place + len(some) :],
        "random": some,
    }[kind]
    file.write_bytes(changed)
    try:
        reading(file)
    except GolowError as error:
        assert str(root) in error.message  # noqa: PT017


def read_part(of: Callable[[], Mapping[str, Part]], size: tuple[int, int], _: Path) -> None:
    labels, images = read(of()["train"], size)
    assert 0 <= labels.min() <= labels.max() < 20
    assert images.shape[2:] == size


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("small")
    write_mnist(root, drawn((1, 28, 28), train=2, test=1))
    write_mnist(root, drawn((1, 28, 28), train=2, test=1), gzipped=False, inside="plain")
    write_cifar10(root, drawn((3, 32, 32), train=5, test=1))
    write_stl10(root, drawn((3, 96, 96), train=2, test=1))
    write_voc(root)
    return root


VOC = "VOCdevkit/VOC2012"
FUZZED = [
    ("MNIST/raw/train-images-idx3-ubyte.gz", mnist.parts, "MNIST/raw"),
    ("MNIST/raw/train-labels-idx1-ubyte.gz", mnist.parts, "MNIST/raw"),
    ("plain/train-images-idx3-ubyte", mnist.parts, "plain"),
    ("plain/train-labels-idx1-ubyte", mnist.parts, "plain"),
    ("cifar-10-batches-bin/data_batch_2.bin", cifar10.parts, "cifar-10-batches-bin"),
    ("stl10_binary/train_X.bin", stl10.parts, "stl10_binary"),
    ("stl10_binary/train_y.bin", stl10.parts, "stl10_binary"),
    (f"{VOC}/ImageSets/Main/train.txt", voc.parts, VOC),
    (f"{VOC}/Annotations/2007_000001.xml", partial(voc.parts, label="largest"), VOC),
    (f"{VOC}/JPEGImages/2007_000001.jpg", voc.parts, VOC),
]


@pytest.mark.parametrize(("name", "parts", "inside"), FUZZED, ids=[name for name, *_ in FUZZED])
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_whatever_the_bytes_are_it_is_a_golow_error_or_a_part(
    name: str,
    parts: Callable[[Path], Mapping[str, Part]],
    inside: str,
    small: Path,
    data: st.DataObject,
) -> None:
    file = small / name
    whole = file.read_bytes()
    size = {"cifar10": (32, 32), "stl10": (96, 96)}.get(parts_name(parts), (28, 28))
    try:
        reading = partial(read_part, partial(parts, small / inside), size)
        survives(file, whole, reading, data, small / inside)
    finally:
        file.write_bytes(whole)


def parts_name(parts: Callable[[Path], Mapping[str, Part]]) -> str:
    return getattr(parts, "__module__", "").rpartition(".")[2]


@settings(deadline=None, max_examples=100)
@given(data=st.data())
@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "webp"])
def test_whatever_the_bytes_of_a_picture_are(suffix: str, data: st.DataObject) -> None:
    from golow.data.pictures import decoded

    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = picture(Path(place) / f"x.{suffix}")

        def reading(file: Path) -> None:
            assert next(decoded([file], (5, 7), 1)).shape == (1, 3, 5, 7)

        survives(file, file.read_bytes(), reading, data, file)
