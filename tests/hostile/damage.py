"""What becomes of a file's bytes, of a record's fields and of a file's place on the disk."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

ESCAPES = "\x1b[31mred\x1b[0m<script>alert(1)</script>\nline\r\x07"
NASTY_TEXTS = (
    "",
    " ",
    "-",
    "--help",
    "\0",
    "\ufeff",
    "x" * 100_000,
    ESCAPES,
    "[red]markup[/red]",
    "[/]",
    "{}%s%n${HOME}$(id)",
    "../../../../etc/passwd",
    "/dev/zero",
    "~root",
    "nan",
    "\u202etxt.exe",
    "\U0001d518\u0301" * 10,
)
NASTY_NUMBERS = (0, -1, 1, 2**31, 2**63, 2**64, 10**30, -(10**30), 1e-320, 1e308, -1e308, 0.5)
DEEP = 100_000


def nasty_value(random: Random) -> Any:
    """A value that a field does not expect."""
    return random.choice(
        (
            None,
            True,
            random.choice(NASTY_NUMBERS),
            random.choice(NASTY_NUMBERS),
            random.choice(NASTY_TEXTS),
            random.choice(NASTY_TEXTS),
            [],
            {},
            [None],
            [[]],
            {"": None},
            [random.choice(NASTY_NUMBERS)] * 3,
        )
    )


# ---------------------------------------------------------------- bytes


def cut(whole: bytes, random: Random) -> bytes:
    return whole[: random.randrange(len(whole) + 1)]


def flipped(whole: bytes, random: Random) -> bytes:
    changed = bytearray(whole)
    for _ in range(random.choice((1, 1, 3, 30)) if changed else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def inserted(whole: bytes, random: Random) -> bytes:
    place = random.randrange(len(whole) + 1)
    some = random.choice((b"\0", b"\xff\xfe", b"\xed\xa0\x80", b'"', b"}", b"[" * 500, b"9" * 5000))
    return whole[:place] + some + whole[place:]


def replaced(whole: bytes, random: Random) -> bytes:
    """The whole file is something else."""
    return random.choice(
        (
            b"",
            b"\0" * 100,
            b"\xff" * 100,
            random.randbytes(200),
            whole.decode(errors="replace").encode("utf-16"),
            b"\xef\xbb\xbf" + whole,
            b"[" * DEEP,
            b'{"a":' * DEEP,
            b'{"format_version": ' + b"1" * 10_000 + b"}",
            b'{"format_version": 1}',
            b"null",
            b"[]",
            b"a = " + b"[" * DEEP,
            b"PK\x03\x04" + random.randbytes(50),
            b"\x1f\x8b\x08\x00" + random.randbytes(50),
        )
    )


BYTES: tuple[Callable[[bytes, Random], bytes], ...] = (cut, flipped, inserted, replaced)


def damaged_bytes(whole: bytes, random: Random) -> tuple[str, bytes]:
    """In one of the ways in which files are damaged, and its name."""
    change = random.choice(BYTES)
    return change.__name__, change(whole, random)


# ---------------------------------------------------------------- fields


def damaged_fields(whole: bytes, random: Random) -> tuple[str, bytes]:
    """A record with fields missing, of other types or with values that make no sense."""
    data, titles = json.loads(whole), []
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        if not data:
            break  # its few top fields are all dropped
        holder, place, path = _somewhere(data, random)
        kind = random.choice(
            ("dropped", "nasty", "nasty", "emptied", "many", "not finite", "deep", "escapes")
        )
        if kind == "dropped":
            del holder[place]
        elif kind == "emptied":
            holder[place] = type(holder[place])() if holder[place] is not None else []
        elif kind == "many" and isinstance(holder[place], list):
            holder[place] = holder[place] * random.choice((2, 1000))
        elif kind == "not finite":
            holder[place] = random.choice((float("nan"), float("inf"), float("-inf")))
        elif kind == "escapes":
            _escape_texts(holder, place)
        elif kind == "deep":
            holder[place] = "@DEEP@"
        else:
            holder[place] = nasty_value(random)
        titles.append(f"{kind} {path}")
    text = json.dumps(data).replace('"@DEEP@"', "[" * DEEP + "]" * DEEP)
    return ", ".join(titles), text.encode()


def _escape_texts(holder: Any, place: Any) -> None:
    """All texts there, and below, get what terminals and pages act on."""
    found = holder[place]
    if isinstance(found, str):
        holder[place] = found + ESCAPES
    elif isinstance(found, (dict, list)):
        for name in list(found) if isinstance(found, dict) else range(len(found)):
            _escape_texts(found, name)


def _somewhere(data: Any, random: Random) -> tuple[Any, Any, str]:
    """A field anywhere in the tree, top fields more often: what holds it, its name, its path."""
    holder, place, path = data, random.choice(list(data)), ""
    while True:
        path += f".{place}"
        below = holder[place]
        if not below or not isinstance(below, (dict, list)) or random.random() < 0.3:
            return holder, place, path
        holder = below
        place = (
            random.choice(list(below)) if isinstance(below, dict) else random.randrange(len(below))
        )


# ---------------------------------------------------------------- places


def as_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def as_link_to_itself(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def as_dangling_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def as_pipe(file: Path) -> None:
    """Reading it would wait forever."""
    file.unlink()
    os.mkfifo(file)


def as_device(file: Path) -> None:
    """Reading it would never end."""
    file.unlink()
    file.symlink_to("/dev/zero")


def as_huge_file(file: Path) -> None:
    """16 GiB of zeros, which take no room on the disk."""
    with file.open("r+b") as stream:
        stream.truncate(16 << 30)


def without_permission(file: Path) -> None:
    file.chmod(0)


def away(file: Path) -> None:
    file.unlink()


def folder_as_file(file: Path) -> None:
    """The folder that holds it is a file."""
    folder = file.parent
    shutil.rmtree(folder)
    folder.write_bytes(b"no folder")


def folder_without_permission(file: Path) -> None:
    file.parent.chmod(0)


PLACES: tuple[Callable[[Path], None], ...] = (
    as_folder,
    as_link_to_itself,
    as_dangling_link,
    as_pipe,
    as_device,
    as_huge_file,
    without_permission,
    away,
    folder_as_file,
    folder_without_permission,
)
