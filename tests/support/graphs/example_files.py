"""Files of examples: those of ``src/golow/lower/FOLDER/NAME.py`` are in
``tests/lower/FOLDER/examples/NAME.py``. Looking into that folder finds them."""

from __future__ import annotations

import importlib
from types import ModuleType

from support.places import TESTS


def examples_in(folder: str, under: str = "") -> dict[str, ModuleType]:
    """The modules of ``tests/lower/FOLDER/examples``, or of a folder under it, by their paths from
    there: ``activations/relu``."""
    base = TESTS / "lower" / folder / "examples"
    files = sorted((base / under).rglob("*.py"))
    names = [str(file.relative_to(base).with_suffix("")) for file in files]
    return {name: _imported(f"lower/{folder}/examples/{name}") for name in names}


def _imported(path: str) -> ModuleType:
    return importlib.import_module(path.replace("/", "."))
