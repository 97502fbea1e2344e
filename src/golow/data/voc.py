"""PASCAL VOC: JPEG images, an XML annotation for each, and lists of names.

VOC annotates objects; here an image has one label: the class of the first object in the annotation,
as in Levental & Orlova (2020), or that of the largest object.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from golow.data.image_file import Labels
from golow.data.part import AGAIN, PicturePart, reading
from golow.records.errors import GolowError

VocLabel = Literal["first", "largest"]

CLASSES = (
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike "
    "person pottedplant sheep sofa train tvmonitor"
).split()
LISTS = {"train": "ImageSets/Main/train.txt", "test": "ImageSets/Main/val.txt"}


def parts(folder: Path, label: VocLabel = "first") -> dict[str, PicturePart]:
    """The images of ``train.txt`` as training set and those of ``val.txt`` as test set."""
    return {part: _part(folder, LISTS[part], label) for part in LISTS}


def _part(folder: Path, list_name: str, label: VocLabel) -> PicturePart:
    names = _names(folder / list_name)
    pictures = tuple(folder / "JPEGImages" / f"{name}.jpg" for name in names)
    annotations = tuple(folder / "Annotations" / f"{name}.xml" for name in names)
    return PicturePart(
        files=(folder / list_name, *pictures, *annotations),
        source=f"{list_name}, label: class of the {label} object",
        pictures=pictures,
        labels=partial(_labels, annotations, label),
    )


def _names(file: Path) -> list[str]:
    with reading(file) as stream:
        text = stream.read().decode(errors="replace")
    names = text.split()
    wrong = [name for name in names if not name.replace("_", "").isalnum()]
    if wrong or not names:
        what = f"names {wrong[0]!r}" if wrong else "is empty"
        raise GolowError(f"{file} {what}; expected names of images such as 2007_000027", AGAIN)
    if len(set(names)) < len(names):
        raise GolowError(f"{file} names {Counter(names).most_common(1)[0][0]} twice", AGAIN)
    return names


def _labels(annotations: tuple[Path, ...], label: VocLabel) -> Labels:
    return np.array([_label(file, label) for file in annotations], dtype=np.int64)


def _label(file: Path, label: VocLabel) -> int:
    objects = _parse(file).findall("object")
    if not objects:
        raise GolowError(f"{file} annotates no object", AGAIN)
    chosen = objects[0] if label == "first" else max(objects, key=partial(_area, file=file))
    name = (chosen.findtext("name") or "").strip()
    if name not in CLASSES:
        raise GolowError(f"{file} names the class {name!r}, which VOC does not have", AGAIN)
    return CLASSES.index(name)


def _area(box: Element, file: Path) -> float:
    """The area of an object's box, in square pixels."""
    texts = [box.findtext(f"bndbox/{edge}") or "" for edge in ("xmin", "ymin", "xmax", "ymax")]
    try:
        left, top, right, bottom = map(float, texts)
    except ValueError:
        left = right = math.nan
    area = (right - left) * (bottom - top) if left < right and top < bottom else math.nan
    if not math.isfinite(area):
        raise GolowError(f"{file} has an object whose box is {texts}", AGAIN)
    return area


class _Builder(ElementTree.TreeBuilder):
    """Rejects a document type before reading it: annotations have none, entity bombs need one."""

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        raise ValueError(f"it declares a document type ({name}), which may define entities")


def _parse(file: Path) -> Element:
    with reading(file) as stream:
        data = stream.read()
    try:
        # _Builder rejects what makes this parser dangerous.
        parser = ElementTree.XMLParser(target=_Builder())  # noqa: S314
        parser.feed(data)
        root: Element = parser.close()
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise GolowError(f"{file} is not a VOC annotation: {error}", AGAIN) from error
    return root
