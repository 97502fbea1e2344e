"""Writes a compiled module as an artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import msgspec
import torch
from safetensors.torch import save, save_file
from torch import Tensor

from golow.artifact.container import Entries, Writer, writer
from golow.artifact.manifest import (
    CHECK_INPUTS,
    CHECK_OUTPUTS,
    CONSTANTS,
    FORMAT,
    GRAPH,
    MANIFEST,
    STEPS,
    WEIGHTS,
    Input,
    Manifest,
    Origin,
    Output,
    Plan,
    StoredCheck,
    Weight,
)
from golow.artifact.nesting import nest_of
from golow.levels.called.called_module import CalledModule
from golow.levels.called.given_state import tied_names
from golow.levels.called.sizes import Size
from golow.levels.called.target import TargetPlan
from golow.levels.called.text_inputs import TextInputs
from golow.lower.ir.graph import GraphInput, encode_graph
from golow.lower.plan.listing import table_lines
from golow.records.errors import GolowError
from golow.storage.files import replacing, require_writable, writing
from golow.storage.scratch import scratch_folder

LEVELS = {"onednn": "golow.artifact.onednn_saving", "cudnn": "golow.artifact.cudnn_saving"}
"""Modules with a class ``Saved``."""


class Proof(NamedTuple):
    """An example at a size, the module's outputs on it in float64, and how far off the plan's may
    be, as root mean squares."""

    size: Size
    inputs: Sequence[Tensor]
    exact: Sequence[Tensor]
    limits: Sequence[float]


def require_place(path: Path) -> None:
    """Raise `GolowError` unless a file can be written there."""
    if path.is_dir():
        raise GolowError(f"{path} is a folder", f"name a file in it: {path / 'model.golow'}")
    if not path.parent.is_dir():
        raise GolowError(f"there is no folder {path.parent}", "create it first.")
    require_writable(path.parent, "name another file.", path)


def save_module(module: CalledModule, path: Path, weights: bool, proof: Proof) -> None:
    """Write plans, kernels, the proof and, if they are wanted, the weights that were loaded last.
    Raises `GolowError` where the file cannot be written."""
    saving = _Saving(module, proof)
    with writing(path, "name another file."), replacing(path) as file:
        saving.write(file, weights, list(saving.level.compiled(saving.write_draft)))


class Level(Protocol):
    """Parts of an artifact that depend on the level: `Saved` of `onednn_saving` and
    `cudnn_saving`."""

    library: str
    processor: str
    instruction_sets: tuple[str, ...]
    tuned: bool

    def of_plan(self, plan: TargetPlan) -> Entries:
        """Content of the folder of a plan."""

    def chosen(self) -> Entries:
        """Choices made by measuring, for the same folder."""

    def compiled(self, draft: Callable[[Path], None]) -> Entries:
        """The kernels. draft: writes the artifact without them."""


class _Saving:
    """A module that is written. level: what its level adds."""

    def __init__(self, module: CalledModule, proof: Proof) -> None:
        self._module, self._proof = module, proof
        self.level: Level = import_module(LEVELS[module.target.level]).Saved(module)
        self._weights = _weights(module)

    def write_draft(self, file: Path) -> None:
        """Write all but the kernels."""
        with file.open("wb") as target:
            self.write(target, True, ())

    def write(self, file: BinaryIO, weights: bool, compiled: Iterable[tuple[str, bytes]]) -> None:
        """Write the archive."""
        with writer(file) as archive, scratch_folder() as folder:
            manifest = _manifest(self._module, self._weights, self._proof, self.level)
            archive.add(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
            for size in self._module.plans:
                self._write_plan(size, archive)
            for name, data in (*self.level.chosen(), *compiled):
                archive.add(name, data)
            archive.add(CHECK_INPUTS, save(_numbered(self._proof.inputs)))
            archive.add(CHECK_OUTPUTS, save(_numbered(self._proof.exact)))
            if weights:
                save_file(self._weights, folder / WEIGHTS)
                archive.add_file(WEIGHTS, folder / WEIGHTS)

    def _write_plan(self, size: Size, archive: Writer) -> None:
        one, plan, folder = self._module.sizes[size], self._module.plans[size], _folder(size)
        graph = msgspec.structs.replace(one.graph, history=())
        archive.add(f"{folder}/{GRAPH}", encode_graph(graph))
        archive.add(f"{folder}/{STEPS}", "\n".join(table_lines(plan.plan)).encode())
        read = {item.target for item in _of_kinds(graph.inputs, "constant")}
        tensors = {name: _host(one.constants[name]) for name in sorted(read)}
        archive.add(f"{folder}/{CONSTANTS}", save(tensors))
        for name, data in self.level.of_plan(plan):
            archive.add(f"{folder}/{name}", data)


def _numbered(tensors: Iterable[Tensor]) -> dict[str, Tensor]:
    return {str(place): _host(tensor) for place, tensor in enumerate(tensors)}


def _weights(module: CalledModule) -> dict[str, Tensor]:
    """Weights of the state dict that the plans read, as graphs take it."""
    names = {
        item.target: None
        for one in module.sizes.values()
        for item in _of_kinds(one.graph.inputs, "parameter", "buffer")
    }
    return {name: _host(module.state[name]) for name in names}


def _host(tensor: Tensor) -> Tensor:
    """A copy in the host's memory as graphs take it, complex numbers as pairs."""
    found = tensor.detach().cpu()
    found = torch.view_as_real(found) if found.is_complex() else found
    return found.contiguous().clone()


def _of_kinds(inputs: Iterable[GraphInput], *kinds: str) -> Iterator[GraphInput]:
    return (item for item in inputs if item.kind in kinds)


def _manifest(
    module: CalledModule, weights: Mapping[str, Tensor], proof: Proof, level: Level
) -> Manifest:
    inputs, outputs = module.inputs, module.outputs
    first = next(iter(outputs.forms.values()))
    lengths = outputs.lengths or [()] * len(first)
    tied = tied_names(module.state)
    return Manifest(
        format=FORMAT,
        level=module.target.level,
        model=module.name,
        origin=Origin(
            golow=version("golow"),
            torch=str(torch.__version__),
            library=level.library,
            processor=level.processor,
        ),
        precision=module.target.precision,
        threads=module.target.threads,
        inputs=tuple(_inputs(module)),
        batch=inputs.batch,
        pads=inputs.pads,
        outputs=tuple(
            Output(dtype=_name(dtype), lengths=tuple(axes))
            for (_, dtype), axes in zip(first, lengths, strict=False)
        ),
        nest=nest_of(outputs.structure.filled(range(len(first)))),
        plans=tuple(
            Plan(
                batch=size[0],
                length=size[1],
                folder=_folder(size),
                outputs=tuple(shape for shape, _ in outputs.forms[size]),
            )
            for size in module.plans
        ),
        weights={
            name: Weight(shape=tuple(item.shape), dtype=_name(item.dtype), tied=tied.get(name, ()))
            for name, item in weights.items()
        },
        instruction_sets=level.instruction_sets,
        tuned=level.tuned,
        check=StoredCheck(batch=proof.size[0], length=proof.size[1], limits=tuple(proof.limits)),
    )


def _inputs(module: CalledModule) -> Iterator[Input]:
    inputs = module.inputs
    for place, form in enumerate(inputs.forms):
        yield Input(
            name=inputs.names[place] if place < len(inputs.names) else "",
            label=form.label,
            shape=form.shape,
            dtype=_name(form.dtype),
            batched=form.batched,
            long=isinstance(inputs, TextInputs) and inputs.is_long[place],
            changed=place in inputs.changed,
        )


def _folder(size: Size) -> str:
    batch, length = size
    return f"plans/{batch}x{length}" if length else f"plans/{batch}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
