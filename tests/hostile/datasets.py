"""Hostile data sets: files of the publishers' formats, folders of pictures, prepared files."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

from hostile.case import Case
from hostile.damage import ESCAPES, PLACES, damaged_bytes
from support.data.dataset_files import (
    annotation,
    drawn,
    picture,
    write_cifar10,
    write_mnist,
    write_stl10,
    write_voc,
)

# More samples than any data set here has: the training is refused once its data are read.
TOO_MANY = "1000000000"


def published(random: Random, folder: Path) -> Case:
    """A publisher's files, one of them damaged."""
    name, file = random.choice(PUBLISHED)
    write_published(name, folder)
    damaged = folder / file
    change = random.choice((*HEADERS.get(name, (_damaged,)), _damaged, _damaged))
    powerless = False
    if random.random() < 0.15:
        place = random.choice(PLACES)
        place(damaged)
        title, powerless = place.__name__, "permission" in place.__name__
    else:
        title = change.__name__
        change(damaged, random)
    command = _training(name, "--data-root", ".")
    if random.random() < 0.15:
        command = random.choice((("data", "status"), ("data", "verify"), ("data", "verify", name)))
        command = (*command, "--data-root", ".")
    return Case(
        title=f"{name}, {file}: {title}",
        folder=str(folder),
        arguments=command,
        statuses=(0, 1, 2) if command[0] == "data" else (2,),
        without_power=powerless,
    )


def pictures(random: Random, folder: Path) -> Case:
    """The user's own pictures by class."""
    top = folder / random.choice(
        ("mine", "mine", "mine", ESCAPES.replace("/", ""), "a\nb", "\udcff")
    )
    for number, name in enumerate(("cats", "dogs", "mice")):
        for index in range(3):
            picture(top / name / f"{index}.png", seed=3 * number + index)
    change = random.choice(FOLDERS)
    change(top, random)
    return Case(
        title=f"pictures in {top.name!r}: {change.__name__}",
        folder=str(folder),
        arguments=_training(f"folder:{top.name}".encode(errors="replace").decode()),
        without_power="permission" in change.__name__,
    )


def prepared(random: Random, folder: Path) -> Case:
    """A file that golow prepared, damaged in its cache."""
    code = (
        "import os, golow; from pathlib import Path\n"
        "from golow.data.prepare import prepare_dataset\n"
        "from golow.data.image_file import open_images\n"
        "file, _ = prepare_dataset('digits', None, None, Path('cache'))\n"
        f"from random import Random; from hostile.damage import damaged_bytes\n"
        f"_, data = damaged_bytes(file.read_bytes(), Random({random.random()}))\n"
        "file.write_bytes(data)\n"
        "open_images(file, verify=True)\n"
    )
    return Case(title="prepared file", folder=str(folder), code=code, statuses=(0, 2))


def archive(random: Random, folder: Path) -> Case:
    """What a publisher's archive would unpack to."""
    make = random.choice(ARCHIVES)
    (folder / "it.tar.gz").write_bytes(make(random))
    code = (
        "from pathlib import Path\nfrom golow.data.fetch import _unpack\n"
        "_unpack(Path('it.tar.gz').absolute(), 'inside', Path('place').absolute())\n"
        "from golow.records.errors import GolowError\n"
        "raise GolowError('unpacked: ' + str(sorted(p.name for p in Path('place').rglob('*'))))"
    )
    return Case(title=f"archive: {make.__name__}", folder=str(folder), code=code)


def _training(dataset: str, *more: str) -> tuple[str, ...]:
    return (
        *("train", "mlp", "--dataset", dataset, "--resolution", "8", "--batch", TOO_MANY),
        *("--levels", "eager", *more),
    )


# ---------------------------------------------------------------- published formats

VOC = "VOCdevkit/VOC2012"
PUBLISHED = (
    ("mnist", "MNIST/raw/train-images-idx3-ubyte.gz"),
    ("mnist", "MNIST/raw/train-labels-idx1-ubyte.gz"),
    ("cifar10", "cifar-10-batches-bin/data_batch_2.bin"),
    ("cifar10", "cifar-10-batches-bin/test_batch.bin"),
    ("stl10", "stl10_binary/train_X.bin"),
    ("stl10", "stl10_binary/train_y.bin"),
    ("voc2012", f"{VOC}/ImageSets/Main/train.txt"),
    ("voc2012", f"{VOC}/Annotations/2007_000001.xml"),
    ("voc2012", f"{VOC}/JPEGImages/2007_000001.jpg"),
)


def write_published(name: str, root: Path) -> None:
    if name == "mnist":
        write_mnist(root, drawn((1, 28, 28), train=2, test=1))
    elif name == "cifar10":
        write_cifar10(root, drawn((3, 32, 32), train=5, test=1))
    elif name == "stl10":
        write_stl10(root, drawn((3, 96, 96), train=2, test=1))
    else:
        write_voc(root)


def _damaged(file: Path, random: Random) -> None:
    file.write_bytes(damaged_bytes(file.read_bytes(), random)[1])


def claims_four_billion(file: Path, _: Random) -> None:
    magic = 2051 if "images" in file.name else 2049
    sides = (28, 28) if "images" in file.name else ()
    header = struct.pack(f">{2 + len(sides)}I", magic, 2**32 - 1, *sides)
    file.write_bytes(gzip.compress(header))


def gzip_bomb(file: Path, _: Random) -> None:
    """Some GiB of zeros behind a header that claims as many samples as there can be."""
    magic = 2051 if "images" in file.name else 2049
    sides = (28, 28) if "images" in file.name else ()
    header = struct.pack(f">{2 + len(sides)}I", magic, 2**32 - 1, *sides)
    with gzip.open(file, "wb", 1) as stream:
        stream.write(header)
        for _number in range(16):
            stream.write(bytes(1 << 24))


def entity_bomb(file: Path, _: Random) -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "lol"}">' for n in range(10))
    file.write_text(f"<!DOCTYPE a [{entities}]><annotation><object>&e9;</object></annotation>")


def external_entity(file: Path, _: Random) -> None:
    file.write_text(
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
        "<annotation><object><name>&x;</name></object></annotation>"
    )


def deep_xml(file: Path, _: Random) -> None:
    file.write_text("<object>" * 200_000 + "</object>" * 200_000)


def hostile_names(file: Path, random: Random) -> None:
    if file.suffix == ".txt":
        names = ("../../../etc/passwd", "/etc/passwd", "a\x1b[31m", "a\0b", "\udcff", "x" * 5000)
        file.write_bytes(random.choice(names).encode(errors="surrogateescape") + b"\n")
    elif file.suffix == ".xml":
        name = random.choice(("\u202ecat", "&#27;[31m", "&lt;script&gt;", "x" * 100_000, ""))
        file.write_text(annotation((name, 1, 1, 5, 5)))
    else:
        file.write_bytes(png_bomb(60_000))


def long_list(file: Path, _: Random) -> None:
    file.write_text("2007_000001\n" * 200_000)


HEADERS: dict[str, tuple[Callable[[Path, Random], None], ...]] = {
    "mnist": (claims_four_billion, gzip_bomb),
    "voc2012": (entity_bomb, external_entity, deep_xml, hostile_names, long_list),
}


# ---------------------------------------------------------------- folders of pictures


def png_bomb(side: int, data: bytes = b"\0" * 100) -> bytes:
    """A header that claims so many pixels a side, and hardly any pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(data)), chunk(b"IEND", b""))
    )


def webp_claim(side: int) -> bytes:
    """An animation whose canvas has so many pixels a side."""
    canvas = struct.pack("<I", side - 1)[:3] * 2
    chunks = b"VP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + canvas
    chunks += b"ANIM" + struct.pack("<I", 6) + bytes(6)
    return b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WEBP" + chunks


def big_pictures(top: Path, random: Random) -> None:
    """All that claim as much as golow lets pass, or more."""
    side = random.choice((60_000, 8192, 8100, 2**31 - 1))
    for file in top.rglob("*.png"):
        file.write_bytes(png_bomb(side, bytes(1 << 20)))


def webp_bombs(top: Path, _: Random) -> None:
    for file in top.rglob("*.png"):
        file.write_bytes(webp_claim(16_383))
        file.rename(file.with_suffix(".webp"))


def bmp_bombs(top: Path, _: Random) -> None:
    for file in top.rglob("*.png"):
        header = struct.pack("<IIIHHIIIIII", 40, 8000, 8000, 1, 24, 0, 0, 0, 0, 0, 0)
        file.write_bytes(b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + header)
        file.rename(file.with_suffix(".bmp"))


def text_bomb(top: Path, _: Random) -> None:
    """Compressed text in a picture, which unpacks to a GiB."""
    content = b"key\0\0" + zlib.compress(bytes(1 << 28), 9)
    chunk = struct.pack(">I", len(content)) + b"zTXt" + content
    chunk += struct.pack(">I", zlib.crc32(b"zTXt" + content))
    for file in top.rglob("0.png"):
        data = file.read_bytes()
        file.write_bytes(data[:33] + chunk + data[33:])


def damaged_picture(top: Path, random: Random) -> None:
    file = random.choice(sorted(top.rglob("*.png")))
    file.write_bytes(damaged_bytes(file.read_bytes(), random)[1])


def links_out(top: Path, _: Random) -> None:
    for number, target in enumerate(("/etc/passwd", "/dev/zero", "/proc/self/mem", "..", "/")):
        (top / "cats" / f"link{number}.png").symlink_to(target)


def link_to_itself(top: Path, _: Random) -> None:
    (top / "cats" / "self.png").symlink_to("self.png")


def class_link_loop(top: Path, _: Random) -> None:
    (top / "loop").symlink_to(top)


def pipe(top: Path, _: Random) -> None:
    os.mkfifo(top / "cats" / "pipe.png")


def device(top: Path, _: Random) -> None:
    (top / "cats" / "zero.png").symlink_to("/dev/zero")


def hostile_class(top: Path, random: Random) -> None:
    name = random.choice(
        (ESCAPES.replace("/", ""), "a\nb", "\udcff", "<b>", "=1+1", "[red]", "x" * 255)
    )
    (top / "cats").rename(top / name)


def hostile_picture_name(top: Path, random: Random) -> None:
    name = random.choice(("a\nb.png", "\x1b[31m.png", "\udcff.png", "<b>.png", "[b].png"))
    (top / "cats" / "0.png").rename(top / "cats" / name)


def unreadable_without_permission(top: Path, random: Random) -> None:
    random.choice((top, top / "cats", top / "cats" / "0.png")).chmod(0)


def empty_class(top: Path, _: Random) -> None:
    for file in (top / "cats").iterdir():
        file.unlink()


def one_class(top: Path, _: Random) -> None:
    for name in ("cats", "dogs"):
        (top / name).rename(top.parent / name)


def a_file(top: Path, _: Random) -> None:
    top.rename(top.parent / "away")
    top.write_bytes(b"PK\x03\x04")


def away(top: Path, _: Random) -> None:
    top.rename(top.parent / "away")


def blank(top: Path, _: Random) -> None:
    from PIL import Image

    for file in top.rglob("*.png"):
        Image.new("RGB", (9, 9)).save(file)


FOLDERS: tuple[Callable[[Path, Random], None], ...] = (
    big_pictures,
    webp_bombs,
    bmp_bombs,
    text_bomb,
    damaged_picture,
    damaged_picture,
    damaged_picture,
    links_out,
    link_to_itself,
    class_link_loop,
    pipe,
    device,
    hostile_class,
    hostile_picture_name,
    unreadable_without_permission,
    empty_class,
    one_class,
    a_file,
    away,
    blank,
)


# ---------------------------------------------------------------- archives


def _tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def _entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, 0o755
    return info


def out_of_the_folder(random: Random) -> bytes:
    name = random.choice(("../../evil", "/tmp/golow-evil", "inside/../../../evil"))
    return _tar((_entry(name), b"evil"))


def link_out(random: Random) -> bytes:
    kind = random.choice((tarfile.SYMTYPE, tarfile.LNKTYPE))
    return _tar(
        (_entry("inside/link", kind, "../../../../etc/passwd"), b""),
        (_entry("inside/link/evil"), b"evil"),
    )


def special_files(random: Random) -> bytes:
    kind = random.choice((tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE))
    return _tar((_entry("inside/special", kind), b""))


def damaged_archive(random: Random) -> bytes:
    return damaged_bytes(_tar((_entry("inside/a"), bytes(5000))), random)[1]


def something_else(random: Random) -> bytes:
    return _tar((_entry(random.choice(("other/a", ESCAPES.replace("/", ""), "inside"))), b"a"))


ARCHIVES = (out_of_the_folder, link_out, special_files, damaged_archive, something_else)
