"""Where Python looks for modules: here, for a user's model, and in the processes that golow starts.

A user's folder may hold a ``random.py``, a ``profile.py`` or an ``onnx.py``. Its modules come first
while the model is imported and constructed, as when its file is run directly. At any other time
they come last: golow and PyTorch import many modules only when they need them.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STANDARD = sysconfig.get_path("stdlib")
FOLDERS_OF_STANDARD = (STANDARD, str(Path(STANDARD, "lib-dynload")))


@contextmanager
def searched_first(folder: Path) -> Iterator[None]:
    """Look for modules in the folder of a model before all others; after the block, last, unless
    the path had it before."""
    name = str(folder)
    sys.path.insert(0, name)
    try:
        yield
    finally:
        if name in sys.path:  # else the model's code removed it
            sys.path.remove(name)
        if name not in sys.path:
            sys.path.append(name)


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module of golow in a new process. With -P, Python does not look for
    modules in the current folder."""
    return (sys.executable, "-P", "-m", module, *arguments)


def python_environment() -> dict[str, str]:
    """Environment of such a process: it finds what this one finds. Python's own modules come first:
    this process may have loaded them before its path had a folder with the same names."""
    paths = [path or str(Path.cwd()) for path in sys.path if isinstance(path, str)]
    paths.sort(key=lambda path: path not in FOLDERS_OF_STANDARD)  # keeps the order otherwise
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
