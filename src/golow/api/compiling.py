"""`golow.compile`: a module at a level in the user's own program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from golow.api.progress import shown_progress
from golow.observer import Observer
from golow.records.workload import Precision
from golow.workload.request import Inputs

if TYPE_CHECKING:
    from torch import nn

    from golow.api.explained_module import ExplainedModule
    from golow.compiled.handed_over import HandedOver


def compile(
    model: nn.Module,
    inputs: Inputs,
    *,
    level: str = "direct",
    batch: int | Sequence[int] | None = None,
    sequence: int | Sequence[int] | None = None,
    precision: Precision = "default",
    threads: int | None = None,
    tune: bool = False,
    share: bool = False,
    cache: str | Path | None = None,
    observer: Observer | None = None,
    quiet: bool = False,
) -> ExplainedModule | HandedOver:
    """Return the module as a callable that runs a level in this process.

    model: in ``eval()``, on a CPU or an NVIDIA GPU. inputs: an example on the same device, batch
    dimension first: a tensor, a sequence of tensors, or tensors by the names of the forward pass.
    level: ``direct``, or ``onednn`` or ``cudnn`` by its name; or ``eager``, ``torchscript``,
    ``compile``, ``cudagraph``, ``onnxruntime``, ``openvino``, ``aotinductor`` or ``libtorch``, with
    its variants (``compile:freezing``), called as golow's worker calls it. batch, of a direct
    level: the size, or sizes, to build plans for; a batch between two runs in the larger one,
    padded. Without it the only size is that of the example. sequence, of a direct level: the
    length, or lengths, of text to build plans for, in the same way; the length is the second axis
    of the inputs. precision: as of `compare`; on a CPU ``default`` or ``ieee``, which are float32
    there. threads: of every call on a CPU; PyTorch's number by default. tune, of a direct level:
    whether to choose layouts or engines by measuring, for some seconds to minutes a size; they are
    kept in the cache. share, of ``onednn``: read the module's own weights, so that what changes
    them in place changes the result; refused if a weight must be folded or be in another layout.
    cache: folder for what is built; golow's own by default. quiet: shows no progress.

    Raises `GolowError`, before anything is built, for a module that cannot be captured or has an
    operation that the level lacks, for one that mixes the samples of a batch if ``batch`` is given,
    and for one that mixes padding into tokens if ``sequence`` is given.
    """
    from golow.api.explained_module import ExplainedModule
    from golow.compiled.at_level import compile_at_level
    from golow.levels.called.wanted import Wanted

    folder = None if cache is None else Path(cache)
    wanted = Wanted(level, batch, sequence, precision, threads, tune, share, folder)
    with shown_progress("comparison", observer, quiet) as display:
        return compile_at_level(ExplainedModule, model, inputs, wanted, display)
