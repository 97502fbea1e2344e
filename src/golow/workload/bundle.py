"""The folder that carries a workload to a worker; ``docs/extend/protocol.md`` lists its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from golow.lower.ir.graph import Graph, decode_graph, encode_graph
from golow.records.errors import GolowError
from golow.records.record import encode
from golow.records.workload import Workload

if TYPE_CHECKING:
    from torch import Tensor

    from golow.workload.batch import Batch
    from golow.workload.prepare import Prepared


class Bundle:
    """A bundle on disk; those of further ranks are in it. Reading the description and the graph
    needs no framework.

    Each file is read once, when it is first needed. Code that writes into the folder without this
    class must open the bundle again.
    """

    capture_log = ""  # what torch said while it captured the graph; not for workers

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def workload(self) -> Workload:
        """The workload that the bundle carries."""
        return msgspec.json.decode(self.file("workload.json").read_bytes(), type=Workload)

    @cached_property
    def graph(self) -> Graph | None:
        """The captured graph; None if capture failed."""
        path = self.file("graph.json")
        return decode_graph(path.read_bytes()) if path.exists() else None

    @cached_property
    def last(self) -> Bundle | None:
        """The bundle for the last, smaller batch of an epoch; None if every batch is full."""
        last = Bundle(self.file("last"))
        return last if last.file("workload.json").exists() else None

    def of_rank(self, rank: int) -> Bundle:
        """The bundle of one rank: its own samples, everything else linked. Rank 0's is this one."""
        return self if rank == 0 else Bundle(self.file("ranks") / str(rank))

    def file(self, name: str) -> Path:
        """Path of one of the bundle's files."""
        return self.folder / name

    def write_graph(self, graph: Graph, constants: dict[str, Tensor]) -> None:
        """Add the captured graph and the constants that it reads."""
        data = encode_graph(graph)
        self.file("graph.json").write_bytes(data)
        _save(constants, self.file("constants.safetensors"))
        self.link_ranks()
        self.graph = decode_graph(data)  # as a worker reads it

    def link_ranks(self) -> None:
        """Link the files that all ranks share into the bundles of the others."""
        for rank in range(1, self.workload.ranks):
            other = self.of_rank(rank)
            for file in self.folder.iterdir():
                if file.is_file() and not other.file(file.name).exists():
                    os.link(file, other.file(file.name))


def write_bundle(prepared: Prepared, folder: Path) -> tuple[Bundle, Prepared]:
    """Write everything except the graph; returns the workload with its digest filled in.

    The digest covers everything on which the numbers depend: the model's source, the weights, the
    batches and the workload's own description.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _save(prepared.module.state_dict(), folder / "weights.safetensors")
    return _write_around_weights(prepared, folder)


def write_last(prepared: Prepared, bundle: Bundle) -> Bundle:
    """Add ``last/`` to the bundle: a bundle with the same weights for an epoch's smaller last
    batch. prepared: the same workload with that batch; its graph is added later."""
    folder = bundle.file("last")
    folder.mkdir()
    os.link(bundle.file("weights.safetensors"), folder / "weights.safetensors")
    bundle.last = _write_around_weights(prepared, folder)[0]
    for rank in range(1, bundle.workload.ranks):
        bundle.of_rank(rank).file("last").symlink_to(bundle.last.of_rank(rank).folder.absolute())
    return bundle.last


def _write_around_weights(prepared: Prepared, folder: Path) -> tuple[Bundle, Prepared]:
    described = _write_live_objects(prepared, folder)
    bundle, ranks = Bundle(folder), prepared.workload.ranks
    written = [bundle.file("weights.safetensors")]
    for rank in range(ranks):
        written.append(bundle.of_rank(rank).file("batches.safetensors"))
        written[-1].parent.mkdir(parents=True, exist_ok=True)
        _save(_named(prepared.batches[rank::ranks]), written[-1])
    workload = msgspec.structs.replace(described, digest="")
    digest = hashlib.sha256(msgspec.json.encode(workload))
    for name in written:
        with name.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    workload = msgspec.structs.replace(workload, digest=digest.hexdigest()[:16])
    bundle.file("workload.json").write_bytes(encode(workload))
    bundle.link_ranks()
    return bundle, prepared._replace(workload=workload)


def _named(batches: Sequence[Batch]) -> dict[str, Tensor]:
    """The tensors of batches by their names in a bundle's file."""
    return {
        f"{index}/{kind}/{position}": tensor
        for index, batch in enumerate(batches)
        for kind, tensors in (("input", batch.inputs), ("target", batch.targets))
        for position, tensor in enumerate(tensors)
    }


def _write_live_objects(prepared: Prepared, folder: Path) -> Workload:
    """Write a live module, as it was before it ran, and a loss of the user's own; returns the
    workload with their digests, by which a worker knows them."""
    workload = prepared.workload
    if workload.source.kind == "pickle":
        digest = _write_digested(folder / "module.pkl", _sent(prepared.pickled))
        source = msgspec.structs.replace(workload.source, sha256=digest)
        workload = msgspec.structs.replace(workload, source=source)
    if prepared.loss is not None and not _is_named(prepared.loss, prepared.workload.loss):
        from golow.workload.pickled_module import (
            pickled,  # imports torch, which a vendor worker lacks
        )

        data = _sent(pickled(prepared.loss, "the loss function"))
        digest = _write_digested(folder / "loss.pkl", data)
        workload = msgspec.structs.replace(workload, loss_sha256=digest)
    return workload


def _write_digested(file: Path, data: bytes) -> str:
    file.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def _sent(pickled: bytes | GolowError) -> bytes:
    """Return the pickled bytes, or raise the error that pickling met."""
    if isinstance(pickled, GolowError):
        raise pickled
    return pickled


def _is_named(loss: object, name: str) -> bool:
    """True if a worker can find the loss by its name."""
    from golow.workload.losses import named_loss

    return named_loss(name) is loss


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    # Copies, because two names of a state dict may share memory, which the format refuses.
    save_file({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}, path)
