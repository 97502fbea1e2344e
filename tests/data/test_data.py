"""The digits and the batches made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golow.data import digits
from golow.data.images import batches, resize
from golow.records.errors import GolowError
from support.examples import examples

# ---------------------------------------------------------------- digits


def test_digits_are_all_there() -> None:
    pixels, labels = digits.load()
    assert pixels.shape == (1797, 8, 8) == (digits.COUNT, digits.SIDE, digits.SIDE)
    assert labels.shape == (1797,)
    assert pixels.dtype == labels.dtype == np.uint8
    assert (pixels.min(), pixels.max()) == (0, 16)
    # As published with the data set.
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_digits_are_all_different() -> None:
    pixels, _ = digits.load()
    assert len(np.unique(pixels.reshape(1797, -1), axis=0)) == 1797


def test_mean_and_deviation_are_those_of_the_data() -> None:
    pixels, _ = digits.load()
    assert pixels.mean() == pytest.approx(digits.MEAN, rel=1e-12)
    assert pixels.std() == pytest.approx(digits.STANDARD_DEVIATION, rel=1e-12)


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that `digits.load` reads in this test, to be written by it."""
    path = tmp_path / "digits.npz"
    monkeypatch.setattr(digits, "FILE", path)
    return path


def test_the_copy_of_an_undamaged_file_loads(damaged: Path) -> None:
    damaged.write_bytes(Path(digits.__file__).with_name("digits.npz").read_bytes())
    digits.load()


@pytest.mark.parametrize("array", ["images", "labels"])
def test_one_changed_value_is_caught(array: str, damaged: Path) -> None:
    whole = Path(digits.__file__).with_name("digits.npz")
    with np.load(whole) as file:
        arrays = dict(file)
    arrays[array].reshape(-1)[100] ^= 1
    np.savez(damaged, **arrays)
    with pytest.raises(GolowError, match="damaged: the sha256 of its arrays is") as caught:
        digits.load()
    assert "reinstall" in caught.value.hint


def test_one_flipped_byte_of_the_file_is_caught(damaged: Path) -> None:
    content = bytearray(Path(digits.__file__).with_name("digits.npz").read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    with pytest.raises(GolowError, match="are damaged"):
        digits.load()


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 cut off", b"\x80\x04not an archive"])
def test_a_file_that_is_none_is_caught(content: bytes | None, damaged: Path) -> None:
    if content is not None:
        damaged.write_bytes(content)
    with pytest.raises(GolowError, match="are damaged"):
        digits.load()


def test_pickled_arrays_are_not_opened(damaged: Path) -> None:
    pickled = np.array([object()], dtype=object)
    np.savez(damaged, images=pickled, labels=pickled, allow_pickle=True)
    with pytest.raises(GolowError, match="allow_pickle=False"):
        digits.load()


# ---------------------------------------------------------------- resize

SIDES = st.integers(min_value=1, max_value=40)


@examples(100)
@given(rows=SIDES, columns=SIDES, height=SIDES, width=SIDES, seed=st.integers(0, 2**32 - 1))
def test_resize_is_bilinear_interpolation(
    rows: int, columns: int, height: int, width: int, seed: int
) -> None:
    values = np.random.default_rng(seed).standard_normal((2, rows, columns))
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(values)[None], (height, width), mode="bilinear", align_corners=False
    )
    np.testing.assert_allclose(resize(values, height, width), expected[0].numpy(), atol=1e-12)


# ---------------------------------------------------------------- batches

SHAPES = [
    (3, 32, 32), (1, 5, 9), (4, 3, 6, 7), (28, 28), (784,), (10,), (2, 1, 1), (1,), (100, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_batches_have_the_shape_and_differ(shape: tuple[int, ...]) -> None:
    made = list(batches(4, 6, shape, seed=0))
    assert len(made) == 4
    for samples, labels in made:
        assert samples.shape == (6, *shape)
        assert samples.dtype == np.float32
        assert samples.flags.c_contiguous
        assert samples.flags.writeable
        assert labels.shape == (6,)
        assert labels.dtype == np.int64
        assert 0 <= labels.min() <= labels.max() <= 9
        assert samples.min() < samples.max()
    assert len({samples.tobytes() for samples, _ in made}) == 4


def test_batches_are_reproducible_and_follow_the_seed() -> None:
    first, again, other = (list(batches(3, 5, (1, 8, 8), seed)) for seed in (7, 7, 8))
    for (samples, labels), (same, same_labels) in zip(first, again, strict=True):
        np.testing.assert_array_equal(samples, same)
        np.testing.assert_array_equal(labels, same_labels)
    assert all((x[0] != y[0]).any() for x, y in zip(first, other, strict=True))


def test_more_batches_begin_with_the_same_ones() -> None:
    few, many = (list(batches(count, 5, (8, 8), seed=1)) for count in (2, 4))
    for (samples, _), (same, _) in zip(few, many, strict=False):
        np.testing.assert_array_equal(samples, same)


def test_digits_repeat_only_when_all_were_drawn() -> None:
    made = list(batches(6, 599, (64,), seed=0))  # 3 * 599 = 1797
    samples = np.concatenate([samples for samples, _ in made])
    first, second = samples[:1797], samples[1797:]
    assert len(np.unique(first, axis=0)) == len(np.unique(second, axis=0)) == 1797
    assert (first != second).any(axis=1).mean() > 0.9  # in another order


def test_a_batch_may_be_larger_than_the_data_set() -> None:
    ((samples, _),) = batches(1, 2000, (64,), seed=0)
    assert len(np.unique(samples, axis=0)) == 1797


def test_samples_are_normalised_digits_with_their_labels() -> None:
    ((samples, labels),) = batches(1, 1797, (1, 8, 8), seed=3)
    assert samples.mean() == pytest.approx(0, abs=1e-5)
    assert samples.var() == pytest.approx(1, rel=1e-5)
    pixels, known = digits.load()
    label_of = {image.tobytes(): label for image, label in zip(pixels, known, strict=True)}
    restored = np.rint(samples * digits.STANDARD_DEVIATION + digits.MEAN).astype(np.uint8)
    assert [label_of[image.tobytes()] for image in restored] == labels.tolist()


def test_the_shapes_show_the_same_digit() -> None:
    ((plane, _),) = batches(1, 4, (12, 12), seed=2)
    ((image, _),) = batches(1, 4, (3, 12, 12), seed=2)
    ((volume, _),) = batches(1, 4, (2, 5, 12, 12), seed=2)
    ((flat, _),) = batches(1, 4, (140,), seed=2)
    for channel in range(3):
        np.testing.assert_array_equal(image[:, channel], plane)
    for channel, depth in np.ndindex(2, 5):
        np.testing.assert_array_equal(volume[:, channel, depth], plane)
    np.testing.assert_array_equal(flat, plane.reshape(4, 144)[:, :140])  # 12 * 12 >= 140 > 11 * 11
    for ones in ((1, 1), (1, 1, 1)):
        ((noise, _),) = batches(1, 4, (140, *ones), seed=2)
        np.testing.assert_array_equal(noise, flat.reshape(4, 140, *ones))


def test_one_image_of_a_pixel_a_channel_varies() -> None:
    assert len(list(batches(4, 1, (100, 1, 1), seed=0))) == 4


def test_batches_own_their_memory() -> None:
    """A level that writes into its input must not change the next channel or batch."""
    (first, _), (second, _) = batches(2, 2, (2, 4, 4), seed=0)
    kept, channel = second.copy(), first[:, 1].copy()
    first[:, 0] = 99.0
    np.testing.assert_array_equal(first[:, 1], channel)
    np.testing.assert_array_equal(second, kept)


@pytest.mark.parametrize(
    ("count", "batch", "shape"),
    [
        (0, 1, (8, 8)),
        (1, 0, (8, 8)),
        (1, 1, ()),
        (1, 1, (1, 1, 1, 8, 8)),
        (1, 1, (3, 0, 8)),
        (1, 1, (-4,)),
    ],
)
def test_sizes_that_mean_nothing_are_refused(
    count: int, batch: int, shape: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="cannot make"):
        batches(count, batch, shape, seed=0)


def plant(monkeypatch: pytest.MonkeyPatch, pixels: np.ndarray) -> None:
    labels = np.zeros(digits.COUNT, dtype=np.uint8)
    monkeypatch.setattr(digits, "load", lambda: (pixels, labels))


def test_equal_batches_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = digits.load()
    plant(monkeypatch, np.repeat(one[:1], digits.COUNT, axis=0))
    assert len(list(batches(1, 2, (8, 8), seed=0))) == 1
    with pytest.raises(ValueError, match=r"give 1 different batches of 2 .* not 3"):
        list(batches(3, 2, (8, 8), seed=0))


def test_constant_batches_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, np.full((digits.COUNT, 8, 8), 5, dtype=np.uint8))
    with pytest.raises(ValueError, match="the digits give 0 different batches"):
        list(batches(1, 2, (8, 8), seed=0))


def test_a_batch_that_comes_again_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the digits are one and the same; batches of one digit still differ."""
    pixels, _ = digits.load()
    pixels = pixels.copy()
    pixels[: digits.COUNT // 2] = pixels[0]
    plant(monkeypatch, pixels)
    made = list(batches(100, 1, (8, 8), seed=0))
    assert len({samples.tobytes() for samples, _ in made}) == 100
