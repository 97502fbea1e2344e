"""A feed brings what the order names, and an input is the same bits by NumPy and by PyTorch."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from golow.levels.torch import device_feed as torch_feed
from golow.records.errors import GolowError
from golow.worker.feed import Fed, Feed, augmented, normalised, padded
from support.examples import examples

CPU = torch.device("cpu")


def pictures(rows: int, shape: tuple[int, ...] = (3, 4, 5), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(rows, *shape), dtype=np.uint8)


def data_file(folder: Path, rows: int = 7, **other: np.ndarray) -> Path:
    tensors = {"images": pictures(rows), "labels": np.arange(rows) % 3, **other}
    save_file(tensors, folder / "data")
    return folder / "data"


def order_file(folder: Path, rows: list[int], **augmentation: np.ndarray) -> Path:
    save_file({"rows": np.array(rows, np.int64), **augmentation}, folder / "order")
    return folder / "order"


def feed(data: Path, order: Path | None = None, **given: Any) -> Feed:
    settings = {"batch": 3, "batches": 1, "scale": [1, 1, 1], "shift": [0, 0, 0], "first": 0}
    return Feed(data, order=order, **{**settings, **given})


# ---------------------------------------------------------------- batches


@examples(40)
@given(data=st.data(), rows=st.integers(1, 12), batch=st.integers(1, 5))
def test_a_feed_brings_the_rows_of_its_batches(data: st.DataObject, rows: int, batch: int) -> None:
    order = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=15))
    there = -(-len(order) // batch)
    first = data.draw(st.integers(0, there))
    count = data.draw(st.integers(0, there - first))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flips = np.arange(len(order), dtype=np.uint8) % 2
        given_feed = feed(
            data_file(folder, rows),
            order_file(folder, order, flips=flips),
            batch=batch,
            first=first,
            batches=count,
            checksum=5,
        )
        sizes, found = given_feed.sizes, list(given_feed)
    whole, checksum = pictures(rows), 5
    assert sizes == tuple(len(fed.labels) for fed in found)
    assert len(found) == count
    for index, fed in enumerate(found, first):
        part = order[index * batch : (index + 1) * batch]
        assert np.array_equal(fed.pixels, whole[part])
        assert np.array_equal(fed.labels, np.array(part) % 3)
        assert fed.shifts is None
        assert np.array_equal(fed.flips, flips[index * batch : (index + 1) * batch])
        consumed = whole[part].tobytes() + (np.array(part) % 3).astype("<i8").tobytes()
        checksum = zlib.crc32(consumed, checksum)
    assert given_feed.checksum == checksum


def test_without_an_order_the_rows_are_the_files_own(tmp_path: Path) -> None:
    found = list(feed(data_file(tmp_path), first=1, batches=2))
    assert np.array_equal(np.concatenate([fed.pixels for fed in found]), pictures(7)[3:])
    assert [len(fed.labels) for fed in found] == [3, 1]


def test_what_a_feed_brings_is_ones_own(tmp_path: Path) -> None:
    """It is in one piece, and whoever writes into it does not change the file."""
    file = data_file(tmp_path)
    fed = next(feed(file))
    assert fed.pixels.flags.c_contiguous
    fed.pixels[...] = 0
    fed.labels[...] = 0
    assert np.array_equal(load_file(file)["images"], pictures(7))


def test_a_feed_needs_no_framework() -> None:
    code = "import sys, golow.worker.feed; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------- what is refused


def refused(*words: str, data: Path, order: Path | None = None, **given: Any) -> None:
    with pytest.raises(GolowError) as raised:
        feed(data, order, **given)
    assert all(word in raised.value.message for word in words), raised.value.message


def test_data_that_is_not_what_it_should_be(tmp_path: Path) -> None:
    refused("cannot be read", "nowhere", data=tmp_path / "nowhere")
    (tmp_path / "short").write_bytes(data_file(tmp_path).read_bytes()[:200])
    refused("cannot be read", "short", data=tmp_path / "short")
    save_file({"labels": np.arange(7)}, tmp_path / "data")
    refused("images", data=tmp_path / "data")
    for images in (pictures(7).astype(np.float32), pictures(7, (4, 5))):
        refused("images", data=data_file(tmp_path, images=images))
    refused("labels", "int32", data=data_file(tmp_path, labels=np.arange(7, dtype=np.int32)))
    refused("labels", "[7]", data=data_file(tmp_path, labels=np.arange(6)))
    refused("per channel", data=data_file(tmp_path), scale=[1.0])


def test_orders_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    data = data_file(tmp_path)
    refused("rows beyond", data=data, order=order_file(tmp_path, [0, 1, 7]))
    refused("rows beyond", data=data, order=order_file(tmp_path, [0, 1, -1]))
    shifts, flips = np.zeros((3, 2), np.int8), np.zeros(3, np.uint8)
    for wrong in (
        {"shifts": shifts[:2]},
        {"shifts": shifts.astype(np.int16)},
        {"flips": flips[:1]},
    ):
        refused(*wrong, data=data, order=order_file(tmp_path, [0, 1, 2], **wrong))
    order = order_file(tmp_path, [0, 1, 2, 3])
    for first, batches in ((2, 1), (1, 2), (-1, 1)):
        refused("the order has 2", data=data, order=order, first=first, batches=batches)
    refused("'rows'", data=data, order=data)


# ---------------------------------------------------------------- the arithmetic of an input


@st.composite
def batches(draw: st.DrawFn) -> Fed:
    """With shifts beyond the picture too."""
    count, height, width = (draw(st.integers(1, 5)) for _ in range(3))
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    reach = draw(st.sampled_from([1, 3, 128]))
    shifts = generator.integers(-reach, reach, size=(count, 2)).astype(np.int8)
    flips = generator.integers(2, size=count).astype(np.uint8)
    return Fed(
        generator.integers(256, size=(count, 3, height, width), dtype=np.uint8),
        np.zeros(count, np.int64),
        draw(st.sampled_from([None, shifts])),
        draw(st.sampled_from([None, flips])),
    )


@examples(100)
@given(fed=batches())
def test_augmentation_is_what_is_defined(fed: Fed) -> None:
    """Pixel by pixel: moved first, then turned; by NumPy and by PyTorch."""
    found = augmented(fed)
    _, _, height, width = fed.pixels.shape
    for (n, c, y, x), pixel in np.ndenumerate(found):
        column = width - 1 - x if fed.flips is not None and fed.flips[n] else x
        dy, dx = (0, 0) if fed.shifts is None else fed.shifts[n].tolist()
        inside = 0 <= y + dy < height and 0 <= column + dx < width
        assert pixel == (fed.pixels[n, c, y + dy, column + dx] if inside else 0)
    by_torch = torch_feed._augment(torch.from_numpy(fed.pixels), fed)
    assert by_torch.dtype == torch.uint8
    assert np.array_equal(by_torch.numpy(), found)


@examples(50)
@given(numbers=st.lists(st.floats(-100, 100, width=32), min_size=6, max_size=6))
def test_normalisation_rounds_twice(numbers: list[float]) -> None:
    """After the product and after the sum, which no fused operation does; every pixel there is."""
    scale, shift = np.array(numbers[:3], np.float32), np.array(numbers[3:], np.float32)
    pixels = np.arange(256, dtype=np.uint8).repeat(3).reshape(1, 16, 16, 3).transpose(0, 3, 1, 2)
    found = normalised(pixels, scale, shift)
    assert found.dtype == np.float32
    for channel in range(3):
        product = (pixels[:, channel].astype(np.float64) * scale[channel]).astype(np.float32)
        wanted = (product.astype(np.float64) + shift[channel]).astype(np.float32)
        assert np.array_equal(found[:, channel], wanted)


def test_pytorch_gets_the_bits_that_numpy_computes(tmp_path: Path) -> None:
    shifts = np.array([[0, 1], [-2, 0], [3, 3], [1, -1], [0, 0]], np.int8)
    order = order_file(
        tmp_path, [6, 0, 3, 3, 1], shifts=shifts, flips=np.array([1, 0, 1, 1, 0], "u1")
    )
    given_settings = {"batches": 2, "scale": [0.013, 1.7, -3.1], "shift": [0.3, -0.001, 11.0]}
    data = data_file(tmp_path)
    by_numpy = feed(data, order, **given_settings)
    by_torch = torch_feed.batches(feed(data, order, **given_settings), CPU)
    for fed, (inputs, labels) in zip(by_numpy, by_torch, strict=True):
        wanted = normalised(augmented(fed), by_numpy.scale, by_numpy.shift)
        assert inputs.numpy().tobytes() == wanted.tobytes()
        assert np.array_equal(labels.numpy(), fed.labels)


def test_a_smaller_batch_is_filled_up_with_its_last_row() -> None:
    whole = padded(pictures(2), 5)
    assert np.array_equal(whole[:2], pictures(2))
    assert all(np.array_equal(row, pictures(2)[1]) for row in whole[2:])
    assert padded(pictures(5), 5).shape == pictures(5).shape
