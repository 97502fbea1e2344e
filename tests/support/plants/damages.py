"""What may happen to a file of the cache by accident."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def truncate(file: Path) -> None:
    """The second half is missing."""
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def empty(file: Path) -> None:
    """The disk was full."""
    file.write_bytes(b"")


def garble(file: Path) -> None:
    """One byte is another one."""
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    file.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "truncated": truncate,
    "empty": empty,
    "garbled": garble,
}


def damage_note(folder: Path, name: str) -> str:
    """What is said of it."""
    return f"{name} in the cache was corrupt or from an earlier golow; it is built again ({folder})"
