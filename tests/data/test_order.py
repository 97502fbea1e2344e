"""The order of an epoch: a function of seed and epoch alone, and the same forever."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from golow.data.order import augmentation, epoch_order, write_order

SEEDS = st.integers(0, 2**64 - 1)
EPOCHS = st.integers(0, 2**32 - 1)
GOLDEN_ROWS = [4, 7, 8, 6, 1, 2, 9, 0, 5, 3]
GOLDEN_SHIFTS = [[0, -2], [-3, -4], [4, 0], [-2, -1]]
GOLDEN_FLIPS = [0, 1, 0, 0]


@given(samples=st.integers(1, 300), seed=SEEDS, epoch=EPOCHS)
def test_an_order_is_a_permutation_and_the_same_each_time(
    samples: int, seed: int, epoch: int
) -> None:
    rows = epoch_order(samples, seed, epoch)
    assert rows.dtype == np.int64
    assert sorted(rows.tolist()) == list(range(samples))
    np.testing.assert_array_equal(rows, epoch_order(samples, seed, epoch))


@given(one=st.tuples(SEEDS, EPOCHS), other=st.tuples(SEEDS, EPOCHS))
def test_other_seeds_and_epochs_give_other_orders(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    same = (epoch_order(64, *one) == epoch_order(64, *other)).all()
    assert same == (one == other)


def test_seeds_and_epochs_do_not_run_into_one_another() -> None:
    """The pairs that are easily mistaken for one another: swapped, carried over, shifted."""
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1), (2**32, 0), (2**32, 1), (2**32 + 1, 0), (1, 2**31)]
    assert len({epoch_order(64, *pair).tobytes() for pair in pairs}) == len(pairs)


def test_frozen_values() -> None:
    """A NumPy that gives others must not be used: what was trained could not be repeated."""
    assert epoch_order(10, 0, 1).tolist() == GOLDEN_ROWS
    shifts, flips = augmentation(4, 7, 2, padding=4, flip=True)
    assert shifts is not None
    assert flips is not None
    assert shifts.tolist() == GOLDEN_SHIFTS
    assert flips.tolist() == GOLDEN_FLIPS


def test_every_position_is_as_likely() -> None:
    """Where row 0 stands in 2000 epochs, eight places: 250 each, by chi-squared far in the tail."""
    places = np.bincount([int(np.flatnonzero(epoch_order(8, 5, e) == 0)[0]) for e in range(2000)])
    assert ((places - 250) ** 2 / 250).sum() < 35  # 7 degrees of freedom: p = 1e-5


@given(seed=SEEDS, epoch=EPOCHS, padding=st.integers(1, 127))
def test_shifts_stay_within_the_padding(seed: int, epoch: int, padding: int) -> None:
    shifts, flips = augmentation(50, seed, epoch, padding, flip=False)
    assert flips is None
    assert shifts is not None
    assert shifts.dtype == np.int8
    assert shifts.shape == (50, 2)
    assert np.abs(shifts.astype(int)).max() <= padding


def test_shifts_reach_every_place_and_flips_are_half() -> None:
    shifts, flips = augmentation(20_000, 1, 1, padding=2, flip=True)
    assert shifts is not None
    assert flips is not None
    counts = np.histogram2d(*shifts.T, bins=5)[0]
    assert np.abs(counts - 800).max() < 140  # five standard deviations
    assert set(flips.tolist()) == {0, 1}
    assert abs(flips.mean() - 0.5) < 0.018
    assert abs(np.corrcoef(shifts[:, 0], flips)[0, 1]) < 0.035


def test_the_parts_of_an_augmentation_do_not_depend_on_one_another() -> None:
    both = augmentation(30, 3, 4, padding=2, flip=True)
    np.testing.assert_array_equal(both[0], augmentation(30, 3, 4, padding=2, flip=False)[0])
    np.testing.assert_array_equal(both[1], augmentation(30, 3, 4, padding=0, flip=True)[1])
    assert augmentation(30, 3, 4, padding=0, flip=False) == (None, None)


@pytest.mark.parametrize(("seed", "epoch"), [(-1, 0), (2**64, 0), (0, -1), (0, 2**32)])
def test_what_would_be_cut_off_is_refused(seed: int, epoch: int) -> None:
    with pytest.raises(ValueError, match="negative or too large"):
        epoch_order(4, seed, epoch)


def test_a_padding_that_int8_does_not_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="0 to 127"):
        augmentation(4, 0, 0, padding=128, flip=False)


def test_the_file_of_an_order(tmp_path: Path) -> None:
    rows = epoch_order(9, 0, 0)
    shifts, flips = augmentation(9, 0, 0, padding=3, flip=True)
    write_order(tmp_path / "order", rows, shifts, flips)
    read = load_file(tmp_path / "order")
    assert {name: (t.dtype.name, t.shape) for name, t in read.items()} == {
        "rows": ("int64", (9,)),
        "shifts": ("int8", (9, 2)),
        "flips": ("uint8", (9,)),
    }
    np.testing.assert_array_equal(read["rows"], rows)
    np.testing.assert_array_equal(read["shifts"], shifts)
    write_order(tmp_path / "order", rows[:4])
    assert list(load_file(tmp_path / "order")) == ["rows"]
    assert [file.name for file in tmp_path.iterdir()] == ["order"]


def test_an_order_whose_parts_are_not_aligned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one entry per row"):
        write_order(tmp_path / "order", epoch_order(9, 0, 0), flips=np.zeros(8, dtype=np.uint8))
    assert not list(tmp_path.iterdir())
