"""A digest of all that a module's graph depends on, so that a graph can be kept from one process to
the next: the module's structure and settings, and the code that they lead to."""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

PACKAGE = Path(__file__).parents[2]
# Packages whose code is known by a version, or, for golow, by all its files.
KNOWN = frozenset({"torch", "numpy", "golow", *sys.stdlib_module_names}) - {"__main__"}


def module_digest(module: nn.Module, *further: object) -> str | None:
    """Return the digest; None for a module that cannot be pickled.

    It covers classes and settings of all layers, forms of parameters and of buffers in the state
    dict, contents of all other tensors, every Python file that the layers' code refers to by its
    globals, and the versions of Python, PyTorch and golow. further: what else the graph depends on,
    with a `repr` that says it.
    """
    structure = _structure(module)
    if structure is None:
        return None
    found = hashlib.sha256(structure)
    for file in sorted(_files_of(module)):
        found.update(_state_of(file).encode())
    settings = (sys.version, torch.__version__, torch.get_default_dtype(), _own_code(), further)
    found.update(repr(settings).encode())
    return found.hexdigest()


def _structure(module: nn.Module) -> bytes | None:
    """The module as pickled, with forms instead of weights."""
    import cloudpickle

    saved = {id(item) for item in module.state_dict(keep_vars=True).values()}
    order: dict[int, int] = {}  # two layers that share a weight are told from two with one each

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, item: object) -> object:
            if not isinstance(item, Tensor):
                return None
            form = order.setdefault(id(item), len(order)), tuple(item.shape), str(item.dtype)
            return form if id(item) in saved else (*form, _content(item))

    written = io.BytesIO()
    try:
        Pickler(written).dump(module)
    except Exception:  # of the module's own code, or of what Python cannot pickle
        return None
    return written.getvalue()


def _content(tensor: Tensor) -> str:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest()


def _files_of(module: nn.Module) -> set[str]:
    """The files of the modules that define its layers, and of those that these refer to."""
    waiting = {kind.__module__ for layer in module.modules() for kind in type(layer).__mro__}
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name.partition(".")[0] in KNOWN:
            continue
        seen.add(name)
        if (found := sys.modules.get(name)) is not None:
            waiting |= set(_referred(found))
    files = (getattr(sys.modules.get(name), "__file__", None) for name in seen - {"__main__"})
    return {file for file in files if file is not None}


def _referred(module: ModuleType) -> Iterator[str]:
    """The names of the Python modules in which its globals are defined."""
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else _defined_in(value)
        if isinstance(name, str):
            yield name


def _defined_in(value: Any) -> object:
    return getattr(value, "__module__", None) if callable(value) else None


def _state_of(file: str) -> str:
    """Name, size and time of the last change; what the interpreter itself looks at."""
    try:
        found = Path(file).stat()
    except OSError:
        return f"{file} is not there\n"
    return f"{file} {found.st_size} {found.st_mtime_ns}\n"


@cache
def _own_code() -> str:
    """golow's files, which decide what is made of a captured graph."""
    found = hashlib.sha256()
    for folder, folders, files in os.walk(PACKAGE):
        folders.sort()
        for name in sorted(file for file in files if not file.endswith(".pyc")):
            found.update(_state_of(f"{folder}/{name}").encode())
    return found.hexdigest()
