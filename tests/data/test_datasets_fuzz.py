"""Whatever the bytes of a data set are, reading them ends with a part or with a golow error."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.data import cifar10, mnist, stl10, voc
from golow.data.part import Part
from golow.records.errors import GolowError
from support.data.dataset_files import (
    drawn,
    picture,
    write_cifar10,
    write_mnist,
    write_stl10,
    write_voc,
)
from support.data.dataset_parts import read
from support.examples import examples

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
@examples(50)
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


@examples(100)
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
