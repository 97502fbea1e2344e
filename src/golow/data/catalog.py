"""The data sets that golow knows: what they are, where golow looks for them, and their publishers.

Checksums of the archives are torchvision's (MNIST, STL-10, VOC) or the publisher's (CIFAR-10).
Those of MNIST's unpacked files were computed from the files with the published checksums; those of
single files of STL-10 are torchvision's; those of CIFAR-10 appear in several public projects that
unpack the same archive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

from golow.data import cifar10, digits, folder, mnist, stl10, text, voc
from golow.data.part import Part
from golow.data.pictures import Size
from golow.data.places import expanded
from golow.data.voc import VocLabel
from golow.records.errors import GolowError
from golow.records.near_names import meant
from golow.storage.files import is_folder

FOLDER = "folder:"


@dataclass(frozen=True)
class PublishedFile:
    """A publisher's file; name is relative to the data set's folder."""

    name: str
    size: int
    md5: str


@dataclass(frozen=True)
class Download:
    """A file that `golow data fetch` downloads: of the folder itself, or a tar archive of it.

    urls are tried in turn. name is relative to the data root.
    """

    urls: tuple[str, ...]
    name: str
    size: int
    md5: str

    @property
    def archive(self) -> bool:
        """True if it is an archive to unpack."""
        return self.name.endswith((".tar", ".tar.gz"))


@dataclass(frozen=True)
class Dataset:
    """A data set. folders are its possible folders under the data root, the usual one first; the
    root itself counts if it contains one of markers. size is None if images differ in size.
    sequence: tokens of a sample by default; 0 for images. A text has no channels, no size and no
    parts: `golow.data.prepare_text` makes its samples."""

    name: str
    summary: str
    classes: tuple[str, ...]
    channels: int
    size: Size | None
    parts: Callable[[Path], Mapping[str, Part]]
    samples: Mapping[str, int]  # published number of samples in each part
    folders: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()
    files: tuple[PublishedFile, ...] = ()
    downloads: tuple[Download, ...] = ()
    sequence: int = 0


def find(name: str, voc_label: VocLabel = "first") -> Dataset:
    """The data set of that name, or the folder of images of ``folder:PATH``.

    voc_label selects the object that gives a VOC image its label; other data sets ignore it.
    """
    if voc_label not in get_args(VocLabel):
        raise GolowError(
            f"{voc_label!r} is not a rule for VOC labels",
            "use --voc-label first or --voc-label largest.",
        )
    if name.startswith(FOLDER):
        return _pictures(name, expanded(Path(name.removeprefix(FOLDER))))
    if name not in CATALOG:
        raise GolowError(
            f"there is no data set {name!r}",
            f"{meant(name, CATALOG)}use one of {', '.join(CATALOG)}, or folder:PATH for your own "
            "images.",
        )
    dataset = CATALOG[name]
    if name.startswith("voc"):
        return replace(dataset, parts=partial(voc.parts, label=voc_label))
    return dataset


def located(dataset: Dataset, root: Path) -> Path:
    """The folder that holds the data set's files. Raises `GolowError` where there is none."""
    if not dataset.markers:  # embedded, or a folder given by its path
        return root
    for name in dataset.folders:
        if is_folder(root / name):
            return root / name
    if any(is_folder(root / name) or (root / name).exists() for name in dataset.markers):
        return root
    raise GolowError(
        f"{dataset.name} is not in {root}: there is no {dataset.folders[0]} and no "
        f"{dataset.markers[0]}",
        how_to_get(dataset, root),
    )


def how_to_get(dataset: Dataset, root: Path) -> str:
    """How a user can provide missing files of the data set."""
    return (
        f"`golow data fetch {dataset.name}` downloads it; or put the publisher's files into "
        f"{root / dataset.folders[0]}; or give their folder with --data-root."
    )


def _pictures(name: str, path: Path) -> Dataset:
    return Dataset(
        name=name,
        summary="images by class",
        classes=folder.classes(path),
        channels=3,
        size=None,
        parts=lambda _: folder.parts(path),
        samples={},
    )


# ---------------------------------------------------------------- the catalogue

_MNIST = (
    ("train-images-idx3-ubyte", 47_040_016, "6bbc9ace898e44ae57da46a324031adb"),
    ("train-labels-idx1-ubyte", 60_008, "a25bea736e30d166cdddb491f175f624"),
    ("t10k-images-idx3-ubyte", 7_840_016, "2646ac647ad5339dbf082846283269ea"),
    ("t10k-labels-idx1-ubyte", 10_008, "27ae3e4e09519cfbb04c329615203637"),
)
_MNIST_GZIPPED = (
    ("train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    ("train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
    ("t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
    ("t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
)
_MNIST_URLS = (  # the publisher's own page no longer serves the files
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_CIFAR10 = (
    ("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
    ("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
    ("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
    ("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
    ("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
    ("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),
)
_STL10 = (
    ("train_X.bin", 138_240_000, "918c2871b30a85fa023e0c44e0bee87f"),
    ("train_y.bin", 5_000, "5a34089d4802c674881badbb80307741"),
    ("test_X.bin", 221_184_000, "7f263ba9f9e0b06b93213547f721ac82"),
    ("test_y.bin", 8_000, "36f9794fa4beb8a2c72628de14fa638e"),
    ("unlabeled_X.bin", 2_764_800_000, "5242ba1fed5e4be9e1e742405eb56ca4"),
)
_VOC = "http://host.robots.ox.ac.uk/pascal/VOC/"


def _voc(year: str, train: int, test: int, archive: str, size: int, md5: str) -> Dataset:
    return Dataset(
        name=f"voc{year}",
        summary=f"PASCAL VOC {year}: photographs, labelled by one object",
        classes=tuple(voc.CLASSES),
        channels=3,
        size=None,
        parts=voc.parts,
        samples={"train": train, "test": test},
        folders=(f"VOCdevkit/VOC{year}", f"VOC{year}"),
        markers=("ImageSets/Main", "Annotations", "JPEGImages"),
        downloads=(Download((f"{_VOC}voc{year}/{archive}",), archive, size, md5),),
    )


CATALOG: Mapping[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            name="digits",
            summary="handwritten digits, embedded in golow",
            classes=tuple("0123456789"),
            channels=1,
            size=(digits.SIDE, digits.SIDE),
            parts=lambda _: digits.parts(),
            samples={"train": digits.TRAINING, "test": digits.COUNT - digits.TRAINING},
        ),
        Dataset(
            name="text",
            summary="Shakespeare, embedded in golow: the next byte of a text",
            classes=text.CLASSES,
            channels=0,
            size=None,
            parts=lambda _: {},
            samples={part: text.count(part, text.SEQUENCE) for part in ("train", "test")},
            sequence=text.SEQUENCE,
        ),
        Dataset(
            name="mnist",
            summary="handwritten digits",
            classes=tuple("0123456789"),
            channels=1,
            size=(mnist.SIDE, mnist.SIDE),
            parts=mnist.parts,
            samples={"train": 60_000, "test": 10_000},
            folders=("MNIST/raw", "MNIST", "mnist"),
            markers=tuple(name for name, _, _ in _MNIST_GZIPPED + _MNIST),
            files=tuple(PublishedFile(*file) for file in _MNIST_GZIPPED + _MNIST),
            downloads=tuple(
                Download(tuple(url + name for url in _MNIST_URLS), f"MNIST/raw/{name}", size, md5)
                for name, size, md5 in _MNIST_GZIPPED
            ),
        ),
        Dataset(
            name="cifar10",
            summary="small photographs",
            classes=tuple(cifar10.CLASSES),
            channels=3,
            size=(32, 32),
            parts=cifar10.parts,
            samples={"train": 50_000, "test": 10_000},
            folders=("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"),
            markers=tuple(name for name, _ in _CIFAR10),
            files=tuple(PublishedFile(name, 30_730_000, md5) for name, md5 in _CIFAR10),
            downloads=(
                Download(
                    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
                    "cifar-10-binary.tar.gz",
                    170_052_171,
                    "c32a1d4ab5d03f1284b67883e8d87530",
                ),
            ),
        ),
        Dataset(
            name="stl10",
            summary="photographs",
            classes=tuple(stl10.CLASSES),
            channels=3,
            size=(96, 96),
            parts=stl10.parts,
            samples={"train": 5_000, "test": 8_000, "unlabeled": 100_000},
            folders=("stl10_binary", "stl10/stl10_binary"),
            markers=tuple(name for name, _, _ in _STL10),
            files=tuple(PublishedFile(*file) for file in _STL10),
            downloads=(
                Download(
                    (
                        "https://cs.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
                        "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
                    ),
                    "stl10_binary.tar.gz",
                    2_640_397_119,
                    "91f7769df0f17e558f3565bffb0c7dfb",
                ),
            ),
        ),
        _voc(
            "2007",
            2_501,
            2_510,
            "VOCtrainval_06-Nov-2007.tar",
            460_032_000,
            "c52e279531787c972589f7e41ab4ae64",
        ),
        _voc(
            "2012",
            5_717,
            5_823,
            "VOCtrainval_11-May-2012.tar",
            1_999_639_040,
            "6cd6e144f989b92b3379bac3b3de84fd",
        ),
    )
}
