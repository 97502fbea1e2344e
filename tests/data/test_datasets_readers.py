"""The readers of the publishers' formats: what is in a file is read, what is wrong is named."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from golow.data import cifar10, digits, mnist, stl10, voc
from golow.data.pictures import resized
from golow.records.errors import GolowError
from support.data.dataset_files import (
    annotation,
    drawn,
    write_cifar10,
    write_mnist,
    write_stl10,
    write_voc,
)
from support.data.dataset_parts import read, refused
from support.examples import examples

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
        (b"", "is truncated"),
        (IDX[:15], "is truncated"),
        (IDX[:-1], "is truncated"),
        (IDX + b"\0", "longer than its header states"),
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
    refused(mnist.parts(inside)["train"], (28, 28), "train-labels", "truncated")


def test_a_gzip_file_with_a_wrong_checksum(tmp_path: Path) -> None:
    inside = write_mnist(tmp_path, drawn((1, 28, 28), train=2, test=2))
    file = inside / "train-images-idx3-ubyte.gz"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    refused(mnist.parts(inside)["train"], (28, 28), "does not unpack", "CRC")


def test_zeros_behind_a_gzip_file_are_not_read(tmp_path: Path) -> None:
    """gzip would skip these 16 GiB one byte at a time."""
    inside = write_mnist(tmp_path, drawn((1, 28, 28), train=2, test=2))
    with (inside / "train-images-idx3-ubyte.gz").open("r+b") as file:
        file.truncate(16 << 30)
    refused(mnist.parts(inside)["train"], (28, 28), "longer than its header states")


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    inside = write_mnist(tmp_path, drawn((1, 28, 28), train=2, test=2))
    (inside / "train-images-idx3-ubyte.gz").unlink()
    os.mkfifo(inside / "train-images-idx3-ubyte.gz")
    refused(mnist.parts(inside)["train"], (28, 28), "is a pipe or a device")


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
    assert f"only {only} exists" in found["train"].source
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


def test_labels_of_stl10_are_counted_before_they_are_read(tmp_path: Path) -> None:
    inside = write_stl10(tmp_path, drawn((3, 96, 96), train=2, test=1))
    with (inside / "train_y.bin").open("r+b") as file:
        file.truncate(1 << 40)
    refused(stl10.parts(inside)["train"], (96, 96), "has 1,099,511,627,776 labels for 2 images")


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
        (b"\xff\xfe\x00", "is not a VOC annotation"),
        ("<annotation/>", "annotates no object"),
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
    with pytest.raises(GolowError, match=r"train\.txt .*expected names of images"):
        voc.parts(inside)
    (inside / "ImageSets/Main/train.txt").unlink()
    with pytest.raises(GolowError, match=r"train\.txt is missing"):
        voc.parts(inside)


def test_a_list_that_names_an_image_twice(tmp_path: Path) -> None:
    inside = write_voc(tmp_path)
    (inside / "ImageSets/Main/train.txt").write_text("2007_000001 2007_000002 2007_000001")
    with pytest.raises(GolowError, match="names 2007_000001 twice"):
        voc.parts(inside)


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


@examples(30)
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
