"""Shared libraries in this process, and where others are installed. Declares no choice."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from golow.levels.probe import Probe

# Where Debian, Fedora and a Python package put shared libraries (ld.so(8)).
FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
LOCAL = ("/usr/local/lib", f"{sys.prefix}/lib")


class _Place(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def provider(symbol: str) -> str:
    """The file of the library whose function of this name the process uses; empty if none."""
    process = ctypes.CDLL(None)
    function = getattr(process, symbol, None)
    place = _Place()
    if function is None or not process.dladdr(function, ctypes.byref(place)):
        return ""
    return os.fsdecode(place.file or b"")


def mapped(*beginnings: str) -> str:
    """The first file in this process's memory whose name begins like that; empty if none."""
    for row in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        path = row.partition("/")[2]
        if path and Path(path).name.startswith(beginnings):
            return f"/{path}"
    return ""


def installed(*names: str) -> Path | None:
    """The first library with one of these names among those installed here."""
    own = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for folder in (*own, *FOLDERS, *LOCAL):
        for name in names:
            if (Path(folder) / name).is_file():
                return Path(folder) / name
    return None


def preloading(library: Path | None) -> dict[str, str]:
    """The environment that puts the library before all others; empty if it is not installed."""
    return {} if library is None else {"LD_PRELOAD": str(library)}


def present(library: Path | None, name: str, fix: str) -> Probe:
    """Probe for the library."""
    return Probe(True) if library is not None else Probe(False, f"{name} is not installed", fix)
