"""From the publishers' files to prepared ones: made once, found again, made anew when needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from golow.data import catalog
from golow.data.image_file import PreparedImages, open_images
from golow.data.places import data_root, prepared_files
from golow.data.prepare import prepare_dataset
from golow.records.errors import GolowError
from golow.storage.cache import default_cache
from support.data.dataset_files import (
    drawn,
    picture,
    write_cifar10,
    write_mnist,
    write_stl10,
    write_voc,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_mnist(tmp_path / "root", drawn((1, 28, 28), train=20, test=7))
    return tmp_path / "root"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def prepared(
    name: str, root: Path | None, cache: Path, resolution: int | None = None
) -> tuple[PreparedImages, PreparedImages]:
    train, test = prepare_dataset(name, root, resolution, cache)
    return open_images(train, verify=True), open_images(test, verify=True)


# ---------------------------------------------------------------- what is prepared


def test_both_parts_carry_the_facts_of_the_training_part(root: Path, cache: Path) -> None:
    arrays = drawn((1, 28, 28), train=20, test=7)
    train, test = prepared("mnist", root, cache)
    for part, (images, labels) in zip((train, test), arrays.values(), strict=True):
        np.testing.assert_array_equal(part.images, images)
        np.testing.assert_array_equal(part.labels, labels)
    assert (train.facts.part, test.facts.part) == ("train", "test")
    assert test.facts.mean == train.facts.mean != ()
    assert test.facts.deviation == train.facts.deviation
    assert train.facts.mean[0] == pytest.approx(arrays["train"][0].mean() / 255)
    assert train.facts.classes == tuple("0123456789")
    assert train.facts.checksum != test.facts.checksum


def test_the_digits_need_nothing(cache: Path) -> None:
    train, test = prepared("digits", None, cache)
    assert train.images.shape == (1437, 1, 8, 8)
    assert test.images.shape == (360, 1, 8, 8)
    assert "permutation of seed 0" in train.facts.source
    assert prepared("digits", None, cache, 32)[0].images.shape == (1437, 1, 32, 32)


def test_the_source_says_what_was_done(root: Path, cache: Path) -> None:
    train, _ = prepared("mnist", root, cache, 32)
    assert train.images.shape == (20, 1, 32, 32)
    assert train.facts.source == (
        "IDX files; other bytes than the publisher's; 20 of the 60,000 published samples; "
        "28x28 -> 32x32, bilinear"
    )


def test_the_publishers_bytes_are_recognised(tmp_path: Path, cache: Path) -> None:
    """The catalogue's sums stand for other bytes, so a data set with these sums is entered."""
    inside = write_cifar10(tmp_path, drawn((3, 32, 32), train=10, test=2))
    import hashlib
    from dataclasses import replace

    from golow.data.catalog import PublishedFile
    from golow.data.verify import provenance

    files = sorted(inside.iterdir())
    known = tuple(
        PublishedFile(
            file.name,
            file.stat().st_size,
            hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest(),
        )
        for file in files
    )
    entered = replace(catalog.find("cifar10"), files=known)
    assert provenance(entered, files) == "the publisher's bytes"
    data = files[0].read_bytes()
    files[0].write_bytes(bytes([data[0] ^ 1]) + data[1:])
    assert provenance(entered, files) == "other bytes than the publisher's"
    assert provenance(entered, []) == ""


def test_pictures_need_a_resolution(tmp_path: Path, cache: Path) -> None:
    write_voc(tmp_path)
    with pytest.raises(GolowError, match="differ in size") as caught:
        prepare_dataset("voc2012", tmp_path, None, cache)
    assert "--resolution" in caught.value.hint
    train, test = prepared("voc2012", tmp_path, cache, 24)
    assert (train.images.shape, test.images.shape) == ((3, 3, 24, 24), (2, 3, 24, 24))
    assert train.labels.tolist() == [0, 1, 2]
    assert "label: class of the first object" in train.facts.source
    largest = prepare_dataset("voc2012", tmp_path, 24, cache, voc_label="largest")[0]
    assert open_images(largest).labels.tolist() == [1, 2, 3]


def test_a_folder_of_pictures(tmp_path: Path, cache: Path) -> None:
    for name in ("cat", "dog"):
        for number in range(5):
            picture(tmp_path / "my pets" / name / f"{number}.jpg", seed=number)
    train, test = prepared(f"folder:{tmp_path}/my pets", None, cache, 16)
    assert train.images.shape == (8, 3, 16, 16)
    assert test.labels.tolist() == [0, 1]
    assert train.facts.classes == ("cat", "dog")
    assert [file.name[:13] for file in prepared_files(cache)] == ["my-pets-test-", "my-pets-train"]


def test_the_unlabeled_part_of_stl10(tmp_path: Path, cache: Path) -> None:
    write_stl10(tmp_path, drawn((3, 96, 96), train=3, test=2, unlabeled=4))
    (file,) = prepare_dataset("stl10", tmp_path, 12, cache, parts=("unlabeled",))
    unlabeled = open_images(file, verify=True)
    assert unlabeled.labels.tolist() == [-1] * 4
    assert unlabeled.images.shape == (4, 3, 12, 12)
    train = open_images(prepare_dataset("stl10", tmp_path, 12, cache)[0])
    assert unlabeled.facts.mean == train.facts.mean


def test_a_part_that_does_not_exist(root: Path, cache: Path) -> None:
    with pytest.raises(GolowError, match="no part 'unlabeled'") as caught:
        prepare_dataset("mnist", root, None, cache, parts=("unlabeled",))
    assert "train, test" in caught.value.hint


def test_progress_is_told(root: Path, cache: Path) -> None:
    told: list[tuple[str, int, int]] = []
    prepare_dataset("mnist", root, None, cache, progress=lambda *news: told.append(news))
    assert told[0] == ("mnist train", 0, 20)
    assert ("mnist train", 20, 20) in told
    assert told[-1] == ("mnist test", 7, 7)
    told.clear()
    prepare_dataset("mnist", root, None, cache, progress=lambda *news: told.append(news))
    assert told == []  # nothing is done twice


@pytest.mark.slow
def test_memory_stays_bounded(tmp_path: Path, cache: Path) -> None:
    """A part of 55 MB goes through a few of its batches."""
    inside = write_stl10(tmp_path, drawn((3, 96, 96), train=2, test=2))
    batch = np.random.default_rng(0).integers(0, 256, (500, 27_648)).astype(np.uint8)
    with (inside / "train_X.bin").open("wb") as file:
        for _ in range(4):
            file.write(batch.data)
    (inside / "train_y.bin").write_bytes(b"\1\2" * 1000)
    tracemalloc.start()
    train, _ = prepare_dataset("stl10", tmp_path, None, cache)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert train.stat().st_size > 55e6
    assert peak < 30e6


# ---------------------------------------------------------------- found again


def test_a_prepared_file_is_found_again(root: Path, cache: Path) -> None:
    files = prepare_dataset("mnist", root, None, cache)
    times = [file.stat().st_mtime_ns for file in files]
    assert prepare_dataset("mnist", root, None, cache) == files
    assert [file.stat().st_mtime_ns for file in files] == times
    other = prepare_dataset("mnist", root, 14, cache)
    assert not set(other) & set(files)
    assert prepared_files(cache) == sorted({*files, *other})


def test_changed_sources_are_noticed(root: Path, cache: Path) -> None:
    files = prepare_dataset("mnist", root, None, cache)
    write_mnist(root, drawn((1, 28, 28), seed=1, train=20, test=7))
    again = prepare_dataset("mnist", root, None, cache)
    assert not set(again) & set(files)
    images = drawn((1, 28, 28), seed=1, train=20, test=7)["train"][0]
    np.testing.assert_array_equal(open_images(again[0]).images, images)


def test_a_changed_test_part_does_not_touch_the_training_part(root: Path, cache: Path) -> None:
    files = prepare_dataset("mnist", root, None, cache)
    os.utime(root / "MNIST/raw/t10k-images-idx3-ubyte.gz", (1, 1))
    again = prepare_dataset("mnist", root, None, cache)
    assert again[0] == files[0]
    assert again[1] != files[1]


def test_a_damaged_prepared_file_is_made_again(root: Path, cache: Path) -> None:
    train, _ = prepare_dataset("mnist", root, None, cache)
    whole = train.read_bytes()
    train.write_bytes(whole[:-1])
    assert prepare_dataset("mnist", root, None, cache)[0] == train
    assert train.read_bytes() == whole


def test_damaged_sources_leave_nothing(root: Path, cache: Path) -> None:
    file = root / "MNIST/raw/train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(GolowError, match="does not unpack"):
        prepare_dataset("mnist", root, None, cache)
    assert not list((cache / "data").glob("**/*"))


# ---------------------------------------------------------------- where it is looked for


def test_the_order_in_which_a_root_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOLOW_DATA", raising=False)
    assert data_root(None, tmp_path) == tmp_path / "data" / "raw"
    monkeypatch.setenv("GOLOW_DATA", "/from/environment")
    assert data_root(None, tmp_path) == Path("/from/environment")
    assert data_root(Path("/given"), tmp_path) == Path("/given")
    monkeypatch.setenv("GOLOW_CACHE", str(tmp_path))
    assert default_cache() == tmp_path


@pytest.mark.parametrize("inside", ["MNIST/raw", "MNIST", "mnist", "."])
def test_usual_folders_and_the_folder_itself(inside: str, tmp_path: Path, cache: Path) -> None:
    arrays = drawn((1, 28, 28), train=20, test=7)
    write_mnist(tmp_path / "root", arrays, inside=inside)
    assert len(prepared("mnist", tmp_path / "root", cache)[0].labels) == 20


def test_cifar10_inside_a_folder_of_its_name(tmp_path: Path, cache: Path) -> None:
    arrays = drawn((3, 32, 32), train=10, test=2)
    write_cifar10(tmp_path, arrays, inside="cifar10/cifar-10-batches-bin")
    train, _ = prepared("cifar10", tmp_path, cache)
    np.testing.assert_array_equal(train.images, arrays["train"][0])


@pytest.mark.parametrize("name", [name for name, found in catalog.CATALOG.items() if found.markers])
def test_what_is_not_there_at_all(name: str, tmp_path: Path, cache: Path) -> None:
    with pytest.raises(GolowError, match=f"{name} is not in {re.escape(str(tmp_path))}") as caught:
        prepare_dataset(name, tmp_path, 32, cache)
    assert f"golow data fetch {name}" in caught.value.hint
    assert str(tmp_path) in caught.value.hint
    assert "--data-root" in caught.value.hint


def test_a_file_that_is_missing_is_named(root: Path, cache: Path) -> None:
    file = root / "MNIST/raw/t10k-labels-idx1-ubyte.gz"
    file.unlink()
    with pytest.raises(GolowError, match=f"{re.escape(str(file))} is missing") as caught:
        prepare_dataset("mnist", root, None, cache)
    assert "golow data fetch mnist" in caught.value.hint


def test_a_picture_that_is_missing_is_named(tmp_path: Path, cache: Path) -> None:
    file = write_voc(tmp_path) / "JPEGImages/2007_000002.jpg"
    file.unlink()
    with pytest.raises(GolowError, match=f"{re.escape(str(file))} is missing"):
        prepare_dataset("voc2012", tmp_path, 32, cache)


@pytest.mark.parametrize("resolution", [0, -1, 5000])
def test_a_resolution_that_is_none(resolution: int, root: Path, cache: Path) -> None:
    with pytest.raises(GolowError, match="is not a valid resolution"):
        prepare_dataset("mnist", root, resolution, cache)


def test_names_that_mean_nothing(cache: Path) -> None:
    with pytest.raises(GolowError, match="no data set 'mnits'") as caught:
        prepare_dataset("mnits", None, None, cache)
    assert "mnist, cifar10" in caught.value.hint
    with pytest.raises(GolowError, match="is not a rule for VOC labels"):
        prepare_dataset("voc2012", None, 32, cache, voc_label="smallest")  # type: ignore[arg-type]


# ---------------------------------------------------------------- what it needs

WITHOUT = """
import sys
from pathlib import Path
from golow.data.prepare import prepare_dataset
import golow.data.fetch, golow.data.order, golow.commands.data
prepare_dataset("mnist", Path(sys.argv[1]), None, Path(sys.argv[2]))
print([name for name in ("torch", "scipy", "pooch", "requests", "PIL") if name in sys.modules])
"""


@pytest.mark.slow
def test_no_framework_and_nothing_that_is_not_needed(root: Path, cache: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(root), str(cache)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[]\n", done.stderr
    assert len(prepared_files(cache)) == 2


def test_a_cache_that_cannot_be_written(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GolowError, match="cannot be written"):
        prepare_dataset("mnist", root, None, tmp_path / "file")


def test_two_roots_with_the_same_files_are_two_data_sets(root: Path, cache: Path) -> None:
    """Equal sizes and times do not make files equal."""
    files = prepare_dataset("mnist", root, None, cache)
    shutil.copytree(root, root.with_name("copy"), copy_function=shutil.copy2)
    assert prepare_dataset("mnist", root.with_name("copy"), None, cache) != files
