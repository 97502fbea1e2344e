"""Writes a compiled module as an artifact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
import numpy as np
import torch
from safetensors.numpy import save, save_file
from torch import Tensor

from golow.artifact.container import Writer, writer
from golow.artifact.manifest import (
    CHECK_INPUTS,
    CHECK_OUTPUTS,
    CONSTANTS,
    FORMAT,
    GRAPH,
    LAYOUTS,
    MANIFEST,
    WEIGHTS,
    Input,
    Manifest,
    Origin,
    Output,
    Plan,
    StoredCheck,
    Weight,
    library_entry,
    source_entry,
)
from golow.artifact.nesting import nest_of
from golow.levels.called.called_module import CalledModule
from golow.levels.called.sizes import Size
from golow.levels.called.text_inputs import TextInputs
from golow.levels.direct.onednn.bindings import library
from golow.levels.direct.onednn.bindings.processor import instruction_sets, model_name
from golow.levels.direct.onednn.run.called_plan import CalledPlan
from golow.lower.ir.graph import GraphInput, encode_graph
from golow.lower.plan.listing import table_lines
from golow.records.errors import GolowError
from golow.storage.files import replacing, writing
from golow.storage.scratch import scratch_folder


class Proof(NamedTuple):
    """An example at a size, the module's outputs on it in float64, and how far off the plan's may
    be, as root mean squares."""

    size: Size
    inputs: Sequence[Tensor]
    exact: Sequence[Tensor]
    limits: Sequence[float]


def require_savable(module: CalledModule, path: Path) -> None:
    """Raise `GolowError` for a level that has no artifacts, and for a path that is no file's."""
    if module.target.level != "onednn":
        raise GolowError(
            f"there are no artifacts of {module.target.level} yet",
            "golow.compile builds the plan again on the other machine.",
        )
    if module.target.shares:
        raise GolowError(
            "share=True reads the module's own weights, which a file cannot", "leave share= out."
        )
    require_place(path)


def require_place(path: Path) -> None:
    """Raise `GolowError` for a path that can be no file's."""
    if path.is_dir():
        raise GolowError(f"{path} is a folder", f"name a file in it: {path / 'model.golow'}")
    if not path.parent.is_dir():
        raise GolowError(f"there is no folder {path.parent}", "make it first.")


def save_module(module: CalledModule, path: Path, weights: bool, proof: Proof) -> None:
    """Write plans, kernels, the proof and, if they are wanted, the weights that were loaded last.
    Raises `GolowError` where the file cannot be written."""
    arrays = _weights(module)
    with writing(path, "name another file."), replacing(path) as file, writer(file) as archive:
        manifest = msgspec.json.encode(_manifest(module, arrays, proof))
        archive.add(MANIFEST, msgspec.json.format(manifest))
        for size in module.plans:
            _write_plan(module, size, archive)
        _write_kernels(module, archive)
        archive.add(CHECK_INPUTS, save(_numbered(map(module.target.array, proof.inputs))))
        archive.add(CHECK_OUTPUTS, save(_numbered(map(module.target.array, proof.exact))))
        if weights:
            with scratch_folder() as folder:
                save_file(arrays, folder / WEIGHTS)
                archive.add_file(WEIGHTS, folder / WEIGHTS)


def _numbered(arrays: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
    return {str(place): array for place, array in enumerate(arrays)}


def _weights(module: CalledModule) -> dict[str, np.ndarray]:
    """What the plans read of the state dict, as graphs take it."""
    names = {
        item.target: None
        for one in module.sizes.values()
        for item in _of_kinds(one.graph.inputs, "parameter", "buffer")
    }
    return {name: module.target.array(module.state[name].detach()) for name in names}


def _of_kinds(inputs: Iterable[GraphInput], *kinds: str) -> Iterator[GraphInput]:
    return (item for item in inputs if item.kind in kinds)


def _manifest(module: CalledModule, arrays: dict[str, np.ndarray], proof: Proof) -> Manifest:
    inputs, outputs = module.inputs, module.outputs
    first = next(iter(outputs.forms.values()))
    lengths = outputs.lengths or [()] * len(first)
    return Manifest(
        format=FORMAT,
        level=module.target.level,
        model=module.name,
        origin=Origin(
            golow=version("golow"),
            torch=str(torch.__version__),
            library=f"oneDNN {library.version()}",
            processor=model_name(),
        ),
        precision=module.target.precision,
        threads=module.target.threads,
        inputs=tuple(_inputs(module)),
        by_name=bool(inputs.keywords),
        batch=inputs.batch,
        length=inputs.length,
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
            name: Weight(shape=item.shape, dtype=item.dtype.name) for name, item in arrays.items()
        },
        instruction_sets=instruction_sets(),
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


def _write_plan(module: CalledModule, size: Size, archive: Writer) -> None:
    one, plan = module.sizes[size], cast(CalledPlan, module.plans[size])
    graph = msgspec.structs.replace(one.graph, history=())
    archive.add(f"{_folder(size)}/{GRAPH}", encode_graph(graph))
    archive.add(f"{_folder(size)}/{LAYOUTS}", msgspec.json.encode(plan.layouts))
    archive.add(f"{_folder(size)}/steps.txt", "\n".join(table_lines(plan.plan)).encode())
    read = {item.target for item in _of_kinds(graph.inputs, "constant")}
    arrays = {name: module.target.array(one.constants[name].detach()) for name in sorted(read)}
    archive.add(f"{_folder(size)}/{CONSTANTS}", save(arrays))


def _write_kernels(module: CalledModule, archive: Writer) -> None:
    written: set[str] = set()
    for plan in module.plans.values():
        for digest, (source, compiled) in cast(CalledPlan, plan).kernels().items():
            if digest not in written:
                written.add(digest)
                archive.add(source_entry(digest), source.encode())
                archive.add(library_entry(digest), compiled.read_bytes())


def _folder(size: Size) -> str:
    batch, length = size
    return f"plans/{batch}x{length}" if length else f"plans/{batch}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
