"""Where Python looks for modules: here, for a user's model, and in the processes that golow starts.

A user's folder may hold a ``random.py`` or a ``profile.py``. Python's own modules come first until
the model is imported; then its folder does, as when its file is run directly.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_added: list[str] = []  # folders of models


def search_first(folder: Path) -> None:
    """Look for modules in the folder of a model before all others."""
    name = str(folder)
    if sys.path[:1] == [name] or (name in _added and name in sys.path):
        return
    sys.path.insert(0, name)
    if name not in _added:
        _added.append(name)


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module of golow in a new process. With -P, Python does not look for
    modules in the current folder."""
    return (sys.executable, "-P", "-m", module, *arguments)


def python_environment() -> dict[str, str]:
    """Environment of such a process: it finds what this one finds. Folders of models come last: a
    process that imports a model puts its folder first."""
    own = list(sys.path)
    last = [name for name in _added if name in own]
    for name in last:
        own.remove(name)
    paths = (path or str(Path.cwd()) for path in (*own, *last))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
