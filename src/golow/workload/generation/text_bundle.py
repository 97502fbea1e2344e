"""The folder that carries a text workload to a worker: description, weights, a live module."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import msgspec
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from golow.records.record import encode
from golow.records.text import TextWorkload
from golow.workload.generation.sources import PreparedText, with_digest
from golow.workload.generation.step_modules import in_precision
from golow.workload.registered_parameters import parameters_in
from golow.workload.source import build_module
from golow.workload.undrawn import Undrawn
from golow.workload.weights import load_weights

WORKLOAD, WEIGHTS, MODULE = "text.json", "weights.safetensors", "module.pkl"
READ_NO_WEIGHTS = ("zoo", "huggingface")
"""Kinds of models whose constructors do not read their weights. Those of users may."""


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
        source = self.workload.source
        empty = source.kind in READ_NO_WEIGHTS and not source.quantized
        with parameters_in("meta") if empty else Undrawn():
            module = build_module(source, self.folder).eval()
        module = in_precision(module, self.workload.precision)
        if empty:
            load_weights(module, self._weights_of(module), assign=True)
        module = module.to(self.workload.device)
        if not empty:
            load_weights(module, load_file(self.folder / WEIGHTS))
        for weight in module.parameters():
            weight.requires_grad_(False)
        return module

    def _weights_of(self, module: nn.Module) -> dict[str, Tensor]:
        """The tensors of its state dict on the device of the workload, each read once: names of one
        parameter share it. They are copies, because a mapped file is read in small pages."""
        made: dict[int, Tensor] = {}
        found = {}
        with safe_open(self.folder / WEIGHTS, "pt") as file:
            for name, own in module.state_dict(keep_vars=True).items():
                if id(own) not in made:
                    value = file.get_tensor(name).to(self.workload.device, copy=True)
                    is_parameter = isinstance(own, nn.Parameter)
                    made[id(own)] = nn.Parameter(value, False) if is_parameter else value
                found[name] = made[id(own)]
        return found


def write_text_bundles(prepared: PreparedText, folder: Path) -> tuple[TextBundle, ...]:
    """A bundle for each workload; they share the file of weights."""
    shared = folder / WEIGHTS
    save_file(_apart(prepared.module.state_dict()), shared)
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


def _apart(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, those that share memory with one before copied: the format refuses them."""
    found, seen = {}, set()
    for name, value in state.items():
        place = value.untyped_storage().data_ptr()
        found[name] = value.clone() if place in seen else value
        seen.add(place)
    return {name: value.contiguous() for name, value in found.items()}
