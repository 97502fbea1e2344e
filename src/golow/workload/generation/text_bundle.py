"""The folder that carries a text workload to a worker: description, weights, a live module."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

import msgspec
from safetensors.torch import load_file, save_file
from torch import nn

from golow.records.record import encode
from golow.records.text import TextWorkload
from golow.workload.generation.sources import PreparedText, with_digest
from golow.workload.generation.step_modules import in_precision
from golow.workload.source import build_module
from golow.workload.undrawn import Undrawn
from golow.workload.weights import load_weights

WORKLOAD, WEIGHTS, MODULE = "text.json", "weights.safetensors", "module.pkl"


class TextBundle:
    """A text workload on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def workload(self) -> TextWorkload:
        """The workload that the bundle carries."""
        return msgspec.json.decode((self.folder / WORKLOAD).read_bytes(), type=TextWorkload)

    def module(self) -> nn.Module:
        """The model with its weights, in the precision of the workload and on its device."""
        with Undrawn():
            module = build_module(self.workload.source, self.folder).eval()
        module = in_precision(module, self.workload.precision)
        load_weights(module, load_file(self.folder / WEIGHTS))
        module = module.to(self.workload.device)
        for weight in module.parameters():
            weight.requires_grad_(False)
        return module


def write_text_bundles(prepared: PreparedText, folder: Path) -> tuple[TextBundle, ...]:
    """A bundle for each workload; they share the file of weights."""
    shared = folder / WEIGHTS
    state = prepared.module.state_dict()
    # Copies, because two names of a state dict may share memory, which the format refuses.
    save_file({name: value.contiguous().clone() for name, value in state.items()}, shared)
    bundles = []
    for workload in prepared.workloads:
        own = folder / f"batch-{workload.batch}"
        own.mkdir()
        (own / WEIGHTS).hardlink_to(shared)
        if prepared.pickled:
            (own / MODULE).write_bytes(prepared.pickled)
            workload = with_digest(workload, hashlib.sha256(prepared.pickled).hexdigest())
        (own / WORKLOAD).write_bytes(encode(workload))
        bundles.append(TextBundle(own))
    return tuple(bundles)
