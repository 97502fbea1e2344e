"""A called module as a C++ project."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from golow.levels.called.called_module import CalledModule
from golow.levels.called.emitted_project import Project, project_of
from golow.levels.called.given_state import tied_names
from golow.levels.called.sizes import Size
from golow.levels.called.wanted import Wanted
from golow.lower.capture.module_outputs import leaves_of
from golow.observer import Silent
from golow.records.errors import GolowError
from golow.storage.files import writing
from golow.workload.prepare import Prepared

if TYPE_CHECKING:
    from golow.levels.direct.emit.network import End, Network

HALVES = (torch.bfloat16, torch.float16)


def emit(prepared: Prepared, level: str, sizes: Sequence[int], folder: Path) -> list[Path]:
    """Write the plans of a workload in inference with its weights, an example and what the plan
    makes of it; return the files. level: onednn, or cudnn for the first GPU. sizes: batches; empty
    for that of the workload alone. Raises `GolowError`, before anything is written, for what cannot
    be run or written, and for a folder that holds something else."""
    from golow.levels.called.building import built

    workload = prepared.workload
    if level == "onednn" and workload.device != "cpu":
        raise GolowError("onednn runs on a CPU", "leave out --device, or use --level cudnn.")
    wanted = Wanted(
        level=level,
        batch=list(sizes) or None,
        precision=workload.precision,
        threads=workload.threads if level == "onednn" else None,
    )
    module, example = prepared.module, prepared.batches[0].inputs
    if level == "cudnn":
        require_gpu()
        module, example = module.cuda(), tuple(item.cuda() for item in example)
    with (
        built(CalledModule, module, example, wanted, Silent()) as called,
        writing(folder, "free some space, or name another folder with --out."),
    ):
        return write_called(called, workload.model, folder, workload.source.keywords)


def write_called(
    called: CalledModule, title: str, folder: Path, names: Sequence[str] = ()
) -> list[Path]:
    """Write the plans of a module with its weights and the example; return the files. names: of the
    inputs, by default those of the forward pass. Raises `GolowError`, before anything is written,
    for a step that has no form in C++ and for a folder that holds something else."""
    return project(called, title, names).write(folder)


def project(called: CalledModule, title: str, names: Sequence[str] = ()) -> Project:
    """The project of a module, before it is written."""
    return project_of(called, network_of(called, title, names))


def require_gpu() -> None:
    """Raise `GolowError` unless `cudnn` can run here."""
    from golow.levels.direct.cudnn.level import probe

    found = probe()
    if not found.available:
        raise GolowError(f"cudnn: {found.missing}", found.fix)


def network_of(called: CalledModule, title: str, names: Sequence[str]) -> Network[Any]:
    """Describe a module for what writes it. names: of the inputs, by default those of the forward
    pass."""
    from golow.levels.direct.emit.network import Network, Sized

    inputs = called.inputs
    example = inputs.sample((inputs.batches[-1], inputs.length))
    names = input_names(names or inputs.names, len(example))
    copies = [item.clone() for item in example]  # the module may change them
    given = dict(zip(inputs.keywords, copies, strict=True)) if inputs.keywords else None
    found = leaves_of(called(given) if given is not None else called(*copies))
    outputs = _outputs(called, inputs.sizes[-1])
    return Network(
        title=title,
        plans={size[0]: Sized(plan, called.reading(size)) for size, plan in called.plans.items()},
        inputs=_inputs(called, names),
        outputs=outputs,
        changed=tuple(inputs.changed),
        threads=called.target.threads,
        pads=inputs.pads,
        weights={name: array_of(item) for name, item in called.state.items()},
        tied=tied_names(called.state),
        example={name: array_of(item) for name, item in zip(names, example, strict=True)},
        expected={end.name: array_of(item) for end, item in zip(outputs, found, strict=True)},
    )


def _inputs(called: CalledModule, names: Sequence[str]) -> tuple[End, ...]:
    forms = called.inputs.forms
    shapes = called.inputs.shapes(called.inputs.sizes[-1])
    return tuple(
        end_of(name, form.dtype, (-1, *shape[1:]) if form.batched and called.inputs.pads else shape)
        for name, form, shape in zip(names, forms, shapes, strict=True)
    )


def _outputs(called: CalledModule, size: Size) -> tuple[End, ...]:
    """The outputs; where batches are padded, the first axis of each is this many times the
    batch."""
    forms = called.outputs.forms[size]
    return tuple(
        end_of(
            "output" if len(forms) == 1 else f"output_{place}",
            dtype,
            (-shape[0] // size[0], *shape[1:]) if called.inputs.pads else shape,
        )
        for place, (shape, dtype) in enumerate(forms)
    )


def end_of(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> End:
    """An input, output or weight as projects name it."""
    from golow.levels.direct.emit.network import FORMAT, End

    return End(name, FORMAT[str(dtype).removeprefix("torch.")], tuple(shape))


def input_names(parameters: Sequence[str], count: int) -> Sequence[str]:
    """A name for each input: that of the forward pass's parameter, if it has as many."""
    return parameters if len(parameters) == count else tuple(f"input_{k}" for k in range(count))


def array_of(tensor: Tensor) -> np.ndarray:
    """A tensor as files of projects have it."""
    plain = tensor.detach().cpu().contiguous()
    if plain.dtype in HALVES:
        import ml_dtypes  # of those who have halves

        name = str(plain.dtype).removeprefix("torch.")
        halves: np.ndarray = plain.view(torch.int16).numpy()
        return halves.view(getattr(ml_dtypes, name, np.float16))
    array: np.ndarray = plain.numpy()
    return array
