"""The names of models in a user's module, for the message about a name that it lacks."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from golow.records.errors import GolowError
from golow.records.workload import ModelSource
from golow.storage.files import read_whole

SHOWN = 8
LIKE = 0.6  # share of equal letters from which on a name may be meant


def no_such_name(module: ModuleType, source: ModelSource) -> GolowError:
    """The error for a name that the module lacks, with those that it has, the closest first."""
    wanted = source.attribute

    def likeness(name: str) -> float:
        return SequenceMatcher(None, wanted.lower(), name.lower()).ratio()

    names = sorted(_names(module), key=likeness, reverse=True)
    message = f"{source.name} has no {wanted!r}"
    if "(" in wanted:
        build = f"def build(): return {wanted}"
        hint = f"golow calls a name without arguments: define a function, {build}, and give "
        return GolowError(message, f"{hint}{_typed(source)}:build.")
    if not names:
        return GolowError(message, "it defines no torch.nn.Module, and no function to build one.")
    meant = f"did you mean {_typed(source)}:{names[0]}? " if likeness(names[0]) >= LIKE else ""
    return GolowError(message, f"{meant}it has {_listed(names)}.")


def no_name(file: str) -> GolowError:
    """The error for a file without the name of a model in it, with the classes that it defines."""
    names = _classes_in(Path(file))
    example = f"{file}:{names[0]}" if names else f"{file}:ClassName or {file}:build"
    has = f"; it has {_listed(names)}" if len(names) > 1 else ""
    return GolowError(f"{file} names a file but no model in it", f"write {example}{has}.")


def files_meant(model: str) -> list[str]:
    """Files that a name without one may mean: a file without its ending, a folder of torch.hub."""
    path, name = model.rpartition(":")[::2] if ":" in model else (model, "NAME")
    with suppress(OSError):
        files = [file for file in (Path(f"{path}.py"), Path(path, "hubconf.py")) if file.is_file()]
        return [f"{file}:{name}" for file in files]
    return []


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def _classes_in(file: Path) -> list[str]:
    """Names of the classes at the top of a file, which is not run."""
    with suppress(GolowError, SyntaxError, ValueError, RecursionError, MemoryError):
        top = ast.parse(read_whole(file)).body
        return [item.name for item in top if isinstance(item, ast.ClassDef)]
    return []


def _names(module: ModuleType) -> list[str]:
    """Modules, their classes, and functions that may build one; imported ones only if it defines
    none itself, as a package that collects others."""
    found = list(_candidates(module))
    own = [name for name, value in found if _is_own(value, module)]
    return own or [name for name, _ in found]


def _candidates(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        is_model = isinstance(value, nn.Module) or _is_class(value)
        if not name.startswith("_") and (is_model or _is_builder(value)):
            yield name, value


def _is_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module)


def _is_builder(value: Any) -> bool:
    """True for a function that can be called without arguments."""
    if not inspect.isfunction(value):
        return False
    parameters = inspect.signature(value).parameters.values()
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.kind in free or p.default is not inspect.Parameter.empty for p in parameters)


def _is_own(value: Any, module: ModuleType) -> bool:
    return isinstance(value, nn.Module) or value.__module__ == module.__name__


def _typed(source: ModelSource) -> str:
    """The file or module as a user would type it here."""
    path = Path(source.name)
    here = source.kind == "file" and path.is_relative_to(Path.cwd())
    return str(path.relative_to(Path.cwd())) if here else source.name
