"""A digest of all that a module's graph depends on, so that a graph can be kept from one process to
the next: the structure and settings of its layers, and the code that they run."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules import module as torch_modules

from golow.levels.called.object_digest import Unknown, written

PACKAGE = Path(__file__).parents[2]
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")


def module_digest(module: nn.Module, *further: object) -> str | None:
    """Return the digest; None for a module with something that it cannot see through.

    It covers classes and settings of all layers, forms of parameters and of buffers in the state
    dict, contents of all other tensors, the code that is in this process of every function that the
    layers' classes have or refer to, with the values of its globals, and the versions of Python,
    PyTorch, transformers and golow. further: what else the graph depends on, with a `repr` that
    states it.
    """
    if any(getattr(torch_modules, name, None) for name in GLOBAL_HOOKS):
        return None
    weights = {id(item) for item in module.state_dict(keep_vars=True).values()}
    found = hashlib.sha256()
    try:
        for text in written(module, weights):
            found.update(text.encode())
    except (Unknown, RecursionError):
        return None
    versions = sys.version, torch.__version__, _transformers()
    settings = (*versions, torch.get_default_dtype(), _own_code(), further)
    found.update(repr(settings).encode())
    return found.hexdigest()


def _transformers() -> str:
    """Its version; empty if no module can be its."""
    return str(getattr(sys.modules.get("transformers"), "__version__", ""))


@cache
def _own_code() -> str:
    """golow's files, which decide what is made of a captured graph."""
    found = hashlib.sha256()
    for folder, folders, files in os.walk(PACKAGE):
        folders.sort()
        for name in sorted(file for file in files if not file.endswith(".pyc")):
            state = Path(folder, name).stat()
            found.update(f"{folder}/{name} {state.st_size} {state.st_mtime_ns}\n".encode())
    return found.hexdigest()
