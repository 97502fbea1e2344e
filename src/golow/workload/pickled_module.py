"""A module from Python: pickled for the workers before it runs, without caches of attention."""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrize import is_parametrized

from golow.records.errors import GolowError

RECORDERS = "transformers.utils.output_capturing"
OF_FILES = "golow_user_"
"""Beginning of the names of modules that golow imports from a file: no other process has them."""


def pickled(live: object, what: str) -> bytes | GolowError:
    """The object by cloudpickle, which also carries notebook definitions; the error if it cannot be
    sent to another process, which is raised only where it must be. A module that has run may hold
    what cannot be pickled, so this is called first."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, item: Any) -> Any:
            # PyTorch would write the storage's address, so that equal modules had other digests.
            if isinstance(item, torch.TypedStorage):
                return _storage, (_bytes(item._untyped_storage), item.dtype)
            if isinstance(item, nn.Module) and is_parametrized(item):
                # Its class is one that PyTorch makes for it, and refuses to pickle.
                own = type(item).__bases__[0]
                return own.__new__, (own,), vars(item), None, None, _parametrize
            return super().reducer_override(item)

    unknown = _modules_unknown_elsewhere(live)
    for name, module in list(sys.modules.items()):
        if name.startswith(OF_FILES) or name in unknown:
            cloudpickle.register_pickle_by_value(module)
    written = io.BytesIO()
    try:
        Pickler(written).dump(live)
    except Exception as error:
        return GolowError(
            f"{what} cannot be sent to another process: {type(error).__name__}: {error}",
            "put it into a file and name it as file.py:Name.",
        )
    return written.getvalue()


def _modules_unknown_elsewhere(live: object) -> set[str]:
    """Names of the modules of its classes that another process cannot import by name, because what
    imported them here looks elsewhere, as pytest does for tests."""
    parts = live.modules() if isinstance(live, nn.Module) else (live,)
    names = {kind.__module__ for part in parts for kind in type(part).__mro__}
    names.add(str(getattr(live, "__module__", "builtins")))
    packages = {name.partition(".")[0] for name in names} - {"__main__"}
    found = {name for name in packages if _is_found(name)}
    return {name for name in names if name.partition(".")[0] in packages - found}


def _is_found(package: str) -> bool:
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)  # old ones lack it
    return any(find is not None and find(package, None) is not None for find in finders)


def _parametrize(layer: nn.Module, state: dict[str, Any]) -> None:
    """Give a layer its attributes, and the class that computes its parametrised tensors."""
    vars(layer).update(state)
    parametrize._inject_new_class(layer)
    for name in layer.parametrizations:  # type: ignore[union-attr]
        parametrize._inject_property(layer, name)


def _bytes(storage: torch.UntypedStorage) -> bytes:
    flat = torch.empty(0, dtype=torch.uint8).set_(storage.cpu())  # type: ignore[no-untyped-call]
    data: bytes = flat.numpy().tobytes()
    return data


def _storage(data: bytes, dtype: torch.dtype) -> torch.TypedStorage:
    """The storage of `_bytes`, on the CPU."""
    copied = torch.from_numpy(np.frombuffer(data, np.uint8).copy())
    untyped = copied.untyped_storage()
    return torch.TypedStorage(  # type: ignore[no-untyped-call]
        wrap_storage=untyped, dtype=dtype, _internal=True
    )


def read_pickled(file: Path, sha256: str, what: str) -> Any:
    """The object that golow wrote into the file, which has this digest. Raises `GolowError` for
    another one: unpickling runs code, so only the exact bytes that golow wrote are read."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise GolowError(f"{what} cannot be read: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise GolowError(f"{what} was changed after golow wrote it")
    return unpickled(data)


def unpickled(data: bytes) -> Any:
    """Restore the object from the bytes that `pickled` returned.

    Functions of a script or a notebook come with their scope, which still has the name
    ``__main__``. That is another module in this process, where torch.compile would look for what
    they read; without the name it looks in the scope itself.
    """
    import cloudpickle

    live = cloudpickle.loads(data)
    for scope in _scopes(live):
        if scope.get("__name__") == "__main__":
            del scope["__name__"]
    _name_recorders(live)
    return live


def _name_recorders(live: object) -> None:
    """Let models from transformers (5 and later) find which outputs of their layers they record.
    They look that up in a table that only their constructors fill, so that a model from another
    process has no hidden states."""
    table = getattr(sys.modules.get(RECORDERS), "_CAN_RECORD_REGISTRY", None)
    if not isinstance(table, dict):
        return
    for layer in live.modules() if isinstance(live, nn.Module) else ():
        if isinstance(recorders := getattr(layer, "_can_record_outputs", None), dict):
            table[layer if type(table) is not dict else str(type(layer))] = recorders


def _scopes(live: object) -> Iterator[dict[str, Any]]:
    """The scopes of all functions that came along: the object's, and those of its layers and of
    their classes."""
    for layer in live.modules() if isinstance(live, nn.Module) else (live,):
        for holder in (layer, *type(layer).__mro__):
            for item in (holder, *getattr(holder, "__dict__", {}).values()):
                scope = getattr(item, "__globals__", None)
                if isinstance(scope, dict) and not _is_imported(scope):
                    yield scope


def _is_imported(scope: dict[str, Any]) -> bool:
    """True if it is the scope of a module of this process."""
    return scope is getattr(sys.modules.get(str(scope.get("__name__"))), "__dict__", None)


def without_caches(module: nn.Module) -> tuple[str, ...]:
    """Let models from transformers return no cache of keys and values, which is not a tensor.
    Returns notes for the record."""
    found = {
        id(config): config
        for layer in module.modules()
        if (config := getattr(layer, "config", None)) is not None
        and getattr(config, "use_cache", None) is True
    }
    for config in found.values():
        config.use_cache = False
    if not found:
        return ()
    return ("use_cache=False is set in the copy of the model: levels are compared without caches",)
