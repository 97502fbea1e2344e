"""Lowered graphs that are kept in the cache, so that a module that was compiled before is neither
captured nor lowered again."""

from __future__ import annotations

from pathlib import Path

import msgspec
from safetensors.torch import load, save
from torch import nn

from golow.levels.called.module_digest import module_digest
from golow.levels.called.one_size import OneSize
from golow.levels.called.sizes import Size
from golow.lower.ir.graph import Graph
from golow.storage.cache import read_sealed, write_sealed


class Kept(msgspec.Struct, frozen=True):
    """A graph, and the tensors that it reads besides weights, as safetensors."""

    graph: Graph
    constants: bytes


class KeptGraphs:
    """The graphs of one module at one level, by size. further: what they depend on besides the
    module and the size."""

    def __init__(self, cache: Path, module: nn.Module, *further: object) -> None:
        self._folder = cache / "called" / "graphs"
        self._digest = module_digest(module, *further)

    def read(self, size: Size) -> OneSize | None:
        """Return the graph of a size; None if it is not there."""
        file = self._file(size)
        if file is None or (data := read_sealed(file, [])) is None:
            return None
        kept = msgspec.msgpack.decode(data, type=Kept)
        return OneSize(kept.graph, load(kept.constants))

    def write(self, size: Size, one: OneSize) -> None:
        """Keep the graph of a size."""
        if (file := self._file(size)) is not None:
            tensors = {
                name: item.detach().cpu().contiguous().clone()
                for name, item in one.constants.items()
            }
            self._folder.mkdir(parents=True, exist_ok=True)
            graph = msgspec.structs.replace(one.graph, history=())
            write_sealed(file, msgspec.msgpack.encode(Kept(graph, save(tensors))))

    def forget(self, size: Size) -> None:
        """Remove the graph of a size."""
        if (file := self._file(size)) is not None:
            file.unlink(missing_ok=True)

    def _file(self, size: Size) -> Path | None:
        if self._digest is None:
            return None
        batch, length = size
        return self._folder / f"{self._digest[:32]}-{batch}{f'x{length}' if length else ''}.graph"
