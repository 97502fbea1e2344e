"""A folder of images by class: ``train/CLASS/*`` and ``test/CLASS/*`` (or ``val``), or only
``CLASS/*``, in which case a fifth of every class is the test set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from golow.data.image_file import Labels
from golow.data.order import epoch_order
from golow.data.part import PicturePart
from golow.data.pictures import SUFFIXES
from golow.records.errors import GolowError
from golow.storage.files import is_folder

TESTS = ("test", "val")
_NO_SAMPLES = ("thumbs.db", "desktop.ini")  # what file managers leave behind

Pictures = dict[str, list[Path]]  # files of each class, sorted by name


def classes(folder: Path) -> tuple[str, ...]:
    """The names of the classes, sorted; a label is the index in this list."""
    test = _test_folder(folder)
    found = tuple(sorted(entry.name for entry in _subfolders(folder / "train" if test else folder)))
    if len(found) < 2:
        raise GolowError(
            f"{folder} has {len(found)} folders of images; expected one for each of two or more "
            "classes",
            "arrange the images as PATH/CLASS/*.jpg, or PATH/train/CLASS/* and PATH/test/CLASS/*",
        )
    return found


def parts(folder: Path) -> dict[str, PicturePart]:
    """Training and test set; labels are indices into `classes`."""
    names, test = classes(folder), _test_folder(folder)
    if test is None:
        every = _pictures(folder, names)
        how = "a fifth of each class is the test set, by a permutation of seed 0"
        return {
            "train": _part({name: _split(every[name])[0] for name in names}, how),
            "test": _part({name: _split(every[name])[1] for name in names}, how),
        }
    unknown = {entry.name for entry in _subfolders(test)} - set(names)
    if unknown:
        raise GolowError(
            f"{test} has the class {min(unknown)}, which {folder / 'train'} does not have",
            "rename or move it.",
        )
    present = tuple(name for name in names if (test / name).is_dir())
    return {
        "train": _part(_pictures(folder / "train", names), "train/"),
        "test": _part({name: [] for name in names} | _pictures(test, present), f"{test.name}/"),
    }


def _test_folder(folder: Path) -> Path | None:
    if not is_folder(folder):
        raise GolowError(f"{folder} is not a folder", "give one as folder:PATH")
    tests = [folder / name for name in TESTS if is_folder(folder / name)]
    return tests[0] if tests and is_folder(folder / "train") else None


def _part(pictures: Pictures, how: str) -> PicturePart:
    files = tuple(file for found in pictures.values() for file in found)
    counts = [len(found) for found in pictures.values()]
    if not files:
        raise GolowError("the test set of the folder has no images", "add some to each class.")

    def labels() -> Labels:
        return np.repeat(np.arange(len(counts), dtype=np.int64), counts)

    return PicturePart(files=files, source=f"images by class, {how}", pictures=files, labels=labels)


def _split(files: list[Path]) -> tuple[list[Path], list[Path]]:
    """Four fifths and one fifth; in a class of fewer than five images, one is for the test."""
    last = max(1, len(files) // 5) if len(files) > 1 else 0
    chosen = set(epoch_order(len(files), seed=0, epoch=0)[:last].tolist())
    train = [file for index, file in enumerate(files) if index not in chosen]
    return train, [files[index] for index in sorted(chosen)]


def _pictures(folder: Path, names: tuple[str, ...]) -> Pictures:
    return {name: _of_class(folder / name) for name in names}


def _of_class(folder: Path) -> list[Path]:
    files = sorted(entry for entry in _entries(folder) if entry.name.lower() not in _NO_SAMPLES)
    for file in files:
        if file.is_dir() or file.suffix.lower() not in SUFFIXES:
            raise GolowError(
                f"{file} is not an image that golow reads ({', '.join(SUFFIXES)})",
                "convert it, or move it out of its class folder.",
            )
    if not files:
        raise GolowError(f"{folder} has no images", "add some, or remove the folder.")
    return files


def _subfolders(folder: Path) -> list[Path]:
    return [entry for entry in _entries(folder) if entry.is_dir()]


def _entries(folder: Path) -> list[Path]:
    """The folder's entries that are not hidden. Names must be text, since records quote them."""
    try:
        found = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise GolowError(f"{folder} cannot be read: {error.strerror}") from error
    for entry in found:
        if not str(entry).isprintable():
            raise GolowError(f"the name of {str(entry)!r} is not plain text", "rename it.")
    return found
