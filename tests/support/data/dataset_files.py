"""Small data sets in their publishers' formats, written here as the publishers describe them."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from PIL import Image

Arrays = dict[str, tuple[np.ndarray, np.ndarray]]  # part -> images [N, C, H, W], labels [N]


def drawn(shape: tuple[int, int, int], seed: int = 0, classes: int = 10, **counts: int) -> Arrays:
    """Random images and labels of each part; drawn(shape, train=9, test=4)."""
    random = np.random.default_rng(seed)
    return {
        part: (
            random.integers(0, 256, (count, *shape)).astype(np.uint8),
            random.integers(0, classes, count),
        )
        for part, count in counts.items()
    }


def write_mnist(
    root: Path, arrays: Arrays, gzipped: bool = True, inside: str = "MNIST/raw"
) -> Path:
    folder = root / inside
    folder.mkdir(parents=True, exist_ok=True)
    for part, name in (("train", "train"), ("test", "t10k")):
        images, labels = arrays[part]
        count = len(labels)
        pixels = struct.pack(">4I", 2051, count, 28, 28) + images.tobytes()
        numbers = struct.pack(">2I", 2049, count) + labels.astype(np.uint8).tobytes()
        for data, kind in ((pixels, "images-idx3-ubyte"), (numbers, "labels-idx1-ubyte")):
            if gzipped:
                (folder / f"{name}-{kind}.gz").write_bytes(gzip.compress(data, 1))
            else:
                (folder / f"{name}-{kind}").write_bytes(data)
    return folder


def write_cifar10(root: Path, arrays: Arrays, inside: str = "cifar-10-batches-bin") -> Path:
    """The training set in five files of equal length."""
    folder = root / inside
    folder.mkdir(parents=True, exist_ok=True)
    names = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
    for part, files in names.items():
        images, labels = arrays[part]
        rows = np.concatenate(
            [labels[:, None].astype(np.uint8), images.reshape(len(images), -1)], 1
        )
        for name, share in zip(files, np.split(rows, len(files)), strict=True):
            (folder / name).write_bytes(share.tobytes())
    return folder


def write_stl10(root: Path, arrays: Arrays) -> Path:
    """Pixels column by column, labels from 1; ``unlabeled`` has pixels only."""
    folder = root / "stl10_binary"
    folder.mkdir(parents=True, exist_ok=True)
    for part, (images, labels) in arrays.items():
        (folder / f"{part}_X.bin").write_bytes(images.transpose(0, 1, 3, 2).tobytes())
        if part != "unlabeled":
            (folder / f"{part}_y.bin").write_bytes((labels + 1).astype(np.uint8).tobytes())
    return folder


def write_voc(root: Path, year: str = "2012", train: int = 3, test: int = 2) -> Path:
    """Pictures of unlike sizes; picture i shows a small object of class i, then a large one of
    class i + 1."""
    from golow.data.voc import CLASSES

    folder = root / "VOCdevkit" / f"VOC{year}"
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    names = [f"2007_{i:06d}" for i in range(train + test)]
    (folder / "ImageSets/Main/train.txt").write_text("\n".join(names[:train]) + "\n")
    (folder / "ImageSets/Main/val.txt").write_text("\n".join(names[train:]) + "\n")
    for i, name in enumerate(names):
        picture(folder / "JPEGImages" / f"{name}.jpg", seed=i, size=(40 + i, 30))
        objects = ((CLASSES[i], 2.5, 4, 9, 9), (CLASSES[i + 1], 5, 6, 30, 28))
        (folder / "Annotations" / f"{name}.xml").write_text(annotation(*objects))
    return folder


def annotation(*objects: tuple[str, float, float, float, float]) -> str:
    boxes = "".join(
        f"<object><name>{name}</name><part><name>head</name></part><bndbox><xmin>{left}</xmin>"
        f"<ymin>{top}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object>"
        for name, left, top, right, bottom in objects
    )
    return f"<annotation><filename>x.jpg</filename>{boxes}</annotation>"


def picture(file: Path, seed: int = 0, size: tuple[int, int] = (12, 9), mode: str = "RGB") -> Path:
    """A picture of smooth random colours, width by height, in the format of its suffix."""
    file.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (3, 4, 3)).astype(np.uint8))
    coarse.resize(size, Image.Resampling.BICUBIC).convert(mode).save(file)
    return file
