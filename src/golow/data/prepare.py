"""From a publisher's files to prepared ones: read, resize, write once, and find again.

A prepared file's key covers the data set, the size of the images, how its parts are made, and name,
size and time of every source file; changed files give another key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from golow.data.catalog import FOLDER, Dataset, find, how_to_get, located
from golow.data.image_file import ImageFacts, Images, open_images, write_images
from golow.data.part import Part
from golow.data.pictures import Size
from golow.data.places import data_root, prepared_folder
from golow.data.prepare_text import prepare_text
from golow.data.verify import provenance
from golow.data.voc import VocLabel
from golow.records.errors import GolowError
from golow.storage.files import require_file
from golow.storage.names import LONGEST_PART, shortened

Progress = Callable[[str, int, int], None]  # what is prepared, samples done, samples in total

_ARITHMETIC = 1  # raise it when preparation gives other pixels for the same files
_LARGEST_SIDE = 4096


def prepare_dataset(
    name: str,
    root: Path | None,
    resolution: int | None,
    cache: Path,
    *,
    sequence: int | None = None,
    parts: tuple[str, ...] = ("train", "test"),
    voc_label: VocLabel = "first",
    progress: Progress = lambda what, done, total: None,
) -> tuple[Path, ...]:
    """The prepared files of the parts (training and test), made if they do not exist yet.

    Args:
        name: a name of the catalogue, or ``folder:PATH``.
        root: where the publishers' files are; None is `golow.data.places.data_root`'s default.
        resolution: height and width of the images; None is the data set's own.
        cache: golow's cache folder.
        sequence: tokens of a sample of a text; None is the data set's own.
        parts: STL-10 also has ``unlabeled``, whose labels are all -1.
        voc_label: the object that gives a VOC image its label.
        progress: called with the number of finished samples of a part.

    Raises:
        GolowError: files are missing or damaged, the data set has no resolution of its own, Pillow
            is missing but images must be decoded or resized, or the cache cannot be written.
    """
    dataset = find(name, voc_label)
    if dataset.sequence:
        if resolution is not None:
            raise GolowError(f"{name} is a text and has no resolution", "use --sequence.")
        length = dataset.sequence if sequence is None else sequence
        return prepare_text(length, cache, parts)
    if sequence is not None:
        raise GolowError(f"{name} has images, not sequences", "use --resolution.")
    root = data_root(root, cache)
    folder = located(dataset, root)
    preparation = _Preparation(
        dataset, dataset.parts(folder), _size(dataset, resolution), root, cache, progress
    )
    for part in parts:
        if part not in preparation.parts:
            raise GolowError(
                f"{name} has no part {part!r}", f"parts: {', '.join(preparation.parts)}"
            )
    return tuple(preparation.prepared(part) for part in parts)


def title(name: str) -> str:
    """The beginning of the names of a data set's prepared files."""
    return shortened(re.sub(r"[^\w-]+", "-", Path(name.removeprefix(FOLDER)).name), LONGEST_PART)


def _size(dataset: Dataset, resolution: int | None) -> Size:
    if resolution is None and dataset.size is None:
        raise GolowError(
            f"the images of {dataset.name} may differ in size",
            "choose one for all, e.g. --resolution 224",
        )
    if resolution is not None and not 1 <= resolution <= _LARGEST_SIDE:
        raise GolowError(f"{resolution} is not a valid resolution", f"use 1 to {_LARGEST_SIDE}.")
    return (resolution, resolution) if resolution else dataset.size or (0, 0)


@dataclass(frozen=True)
class _Preparation:
    """Prepares the parts of one data set at one size."""

    dataset: Dataset
    parts: Mapping[str, Part]
    size: Size
    root: Path
    cache: Path
    progress: Progress

    def prepared(self, part: str) -> Path:
        """The file of a part, written unless a valid one exists."""
        file = self._file(part)
        try:
            open_images(file)
        except GolowError:
            self._write(part, file)
        return file

    def _write(self, part: str, file: Path) -> None:
        mean: tuple[float, ...] = ()
        deviation: tuple[float, ...] = ()
        if part != "train":  # every part is normalised like the training set
            training = open_images(self.prepared("train")).facts
            mean, deviation = training.mean, training.deviation
        labels = self.parts[part].labels()
        facts = ImageFacts(
            dataset=self.dataset.name,
            part=part,
            classes=self.dataset.classes,
            mean=mean,
            deviation=deviation,
            source=self._source(part, len(labels)),
        )
        shape = (self.dataset.channels, *self.size)
        write_images(file, labels, self._batches_with_progress(part, len(labels)), shape, facts)

    def _batches_with_progress(self, part: str, total: int) -> Iterator[Images]:
        """The images in batches; progress is called when each has been written."""
        what, done = f"{self.dataset.name} {part}", 0
        self.progress(what, done, total)
        for batch in self.parts[part].images(self.size):
            yield batch
            done += len(batch)
            self.progress(what, done, total)

    def _source(self, part: str, count: int) -> str:
        """One line: the origin, whether it is as published, and what was done."""
        dataset, size = self.dataset, self.size
        words = [self.parts[part].source, provenance(dataset, self.parts[part].files)]
        published = dataset.samples.get(part, count)
        if count != published:
            words.append(f"{count:,} of the {published:,} published samples")
        if size != dataset.size:
            before = "x".join(map(str, dataset.size)) if dataset.size else "resized"
            words.append(f"{before} -> {size[0]}x{size[1]}, bilinear")
        return "; ".join(word for word in words if word)

    def _file(self, part: str) -> Path:
        """The name of the part's prepared file; its key covers all that its bytes depend on."""
        dataset, height_by_width = self.dataset, "x".join(map(str, self.size))
        depends_on = [_ARITHMETIC, dataset.name, dataset.classes, part, self.size]
        for name in dict.fromkeys(("train", part)):
            depends_on += [self.parts[name].source, self._stamps(self.parts[name])]
        key = hashlib.sha256(json.dumps(depends_on).encode()).hexdigest()[:16]
        name = f"{title(dataset.name)}-{part}-{height_by_width}-{key}.safetensors"
        return prepared_folder(self.cache) / name

    def _stamps(self, part: Part) -> list[tuple[str, int, int]]:
        """Name, bytes and time of each file; raises `GolowError` for the first that is missing."""
        stamps = []
        for file in part.files:
            try:
                found = file.stat()
            except (FileNotFoundError, NotADirectoryError) as error:
                hint = how_to_get(self.dataset, self.root) if self.dataset.downloads else ""
                raise GolowError(f"{file} is missing", hint) from error
            except OSError as error:
                raise GolowError(f"{file} cannot be read: {error.strerror}") from error
            require_file(file)
            stamps.append((str(file), found.st_size, found.st_mtime_ns))
        return stamps
