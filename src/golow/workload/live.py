"""A module from Python: pickled for the workers before it runs, without caches of attention."""

from __future__ import annotations

from torch import nn

from golow.record import GolowError


def pickled(live: object, what: str) -> bytes | GolowError:
    """The object by cloudpickle, which also carries notebook definitions; the error if it cannot be
    sent to another process, which is raised only where it must be. A module that has run may hold
    what cannot be pickled, so this is called first."""
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(live)
    except Exception as error:
        return GolowError(
            f"{what} cannot be sent to another process: {type(error).__name__}: {error}",
            "put it into a file and name it as file.py:Name.",
        )
    return data


def without_caches(module: nn.Module) -> tuple[str, ...]:
    """Let models of transformers return no cache of keys and values, which is no tensor. Returns
    notes for the record."""
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
