"""`golow.load_compiled`: an artifact in the user's own program, with or without PyTorch."""

from __future__ import annotations

from pathlib import Path

from golow.artifact.loaded_module import LoadedModule
from golow.storage.cache import cache_errors


def load_compiled(
    file: str | Path,
    *,
    weights: str | Path | None = None,
    threads: int | None = None,
    cache: str | Path | None = None,
) -> LoadedModule:
    """Load a module that `CompiledModule.save` or ``golow build`` wrote, as a callable. weights: a
    safetensors file with other weights of the same shapes. threads: of every call; by default the
    number that it was compiled for, or all that the machine has. cache: folder for kernels; golow's
    cache by default. An artifact contains native code: load only files from people you trust.
    Raises `GolowError` for a file that is corrupt or not an artifact, for weights that do not fit,
    and if this machine lacks a requirement.
    """
    with cache_errors(cache):
        return LoadedModule(
            Path(file),
            None if weights is None else Path(weights),
            threads,
            None if cache is None else Path(cache),
        )
