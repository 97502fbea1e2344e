"""`golow.compile`: a module at a level in the user's own program; and its training step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from golow.api.progress import shown_progress
from golow.api.quantizing import RULES, quantized_module
from golow.observer import Observer
from golow.records.quantization import QuantizationRule
from golow.records.workload import Optimizer, Precision
from golow.workload.request import Inputs

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from golow.api.explained_module import ExplainedModule
    from golow.compiled.handed_over import HandedOver
    from golow.levels.called.generation.generation import Generation
    from golow.levels.called.generation.generator import Generator
    from golow.levels.called.training.training_step import TrainingStep


@overload
def compile(
    model: nn.Module,
    inputs: Inputs,
    *,
    level: str = ...,
    batch: int | Sequence[int] | None = ...,
    sequence: int | Sequence[int] | None = ...,
    precision: Precision | QuantizationRule = ...,
    threads: int | None = ...,
    tune: bool = ...,
    share: bool = ...,
    cache: str | Path | None = ...,
    observer: Observer | None = ...,
    quiet: bool = ...,
) -> ExplainedModule | HandedOver: ...


@overload
def compile(
    model: nn.Module,
    inputs: Inputs | None = ...,
    *,
    generation: Generation,
    level: str = ...,
    precision: Precision | QuantizationRule = ...,
    threads: int | None = ...,
    cache: str | Path | None = ...,
    observer: Observer | None = ...,
    quiet: bool = ...,
) -> Generator: ...


def compile(
    model: nn.Module,
    inputs: Inputs | None = None,
    *,
    generation: Generation | None = None,
    level: str = "direct",
    batch: int | Sequence[int] | None = None,
    sequence: int | Sequence[int] | None = None,
    precision: Precision | QuantizationRule = "default",
    threads: int | None = None,
    tune: bool = False,
    share: bool = False,
    cache: str | Path | None = None,
    observer: Observer | None = None,
    quiet: bool = False,
) -> ExplainedModule | HandedOver | Generator:
    """Return the module as a callable that runs a level in this process.

    model: in ``eval()``, on a CPU or an NVIDIA GPU. inputs: an example on the same device, batch
    dimension first: a tensor, a sequence of tensors, or tensors by the names of the forward pass.
    level: ``direct``, or ``onednn`` or ``cudnn`` by name; or ``eager``, ``torchscript``,
    ``compile``, ``cudagraph``, ``onnxruntime``, ``openvino``, ``aotinductor`` or ``libtorch``, with
    its variants (``compile:freezing``), called as golow's worker calls it. batch (direct levels
    only): batch size, or sizes, to build plans for; a batch between two sizes is padded to the
    larger one. By default the only size is that of the example. sequence (direct levels only):
    length, or lengths, of text to build plans for, in the same way; the length is the second axis
    of the inputs. precision: as in `compare`; on a CPU ``default`` or ``ieee``, which are float32
    there. ``int8-weights``, ``int4-weights``, ``fp8-weights``, ``int8`` and ``fp8`` quantise a copy
    of the module first; all but the first learn from the example, which should be real samples;
    with generation= it is texts, int64 [texts, tokens] or a list of int64 [tokens].
    threads: of every call on a CPU; PyTorch's number by default. tune (direct levels
    only): choose layouts or engines by measuring, which takes seconds to minutes per size; the
    choice is kept in the cache. share (``onednn`` only): read the module's own weights, so that
    in-place changes of them change the result; refused if a weight must be folded or reordered.
    cache: folder for builds; golow's cache by default. quiet: show no progress. generation: for a
    language model, instead of inputs: the longest text, and the number of texts in a batch; the
    result is a `Generator`, which writes text with a cache. The model is golow's GPT-2, a causal or
    encoder-decoder model from transformers, or a step module: ``forward(tokens [batch, count],
    position) -> logits [batch, vocabulary]``, whose caches are buffers that it writes in place.

    Raises `GolowError`, before anything is built, for a module that cannot be captured or has an
    operation that the level lacks, for one that mixes the samples of a batch if ``batch`` is given,
    and for one that mixes padding into tokens if ``sequence`` is given.
    """
    from golow.api.explained_module import ExplainedModule
    from golow.compiled.at_level import compile_at_level
    from golow.levels.called.wanted import Wanted
    from golow.workload.known_causes import require_no_autocast

    require_no_autocast()
    folder = None if cache is None else Path(cache)
    # With generation= only a rule of quantisation reads inputs.
    example = None if precision in RULES and generation is not None else inputs
    model, precision = quantized_module(model, inputs, precision, of_text=generation is not None)
    wanted = Wanted(level, batch, sequence, precision, threads, tune, share, folder)
    with shown_progress("comparison", observer, quiet) as display:
        if generation is not None:
            from golow.levels.called.generation.building import built_generator

            return built_generator(model, example, generation, wanted, display)
        return compile_at_level(ExplainedModule, model, inputs, wanted, display)


def compile_step(
    model: nn.Module,
    loss: Callable[..., Tensor] | None,
    *,
    optimizer: Optimizer | torch.optim.Optimizer,
    example: Sequence[Inputs],
    batch: int | Sequence[int] | None = None,
    every: int = 1,
    clip: float | None = None,
    seed: int = 0,
    precision: Precision = "default",
    loss_scale: float | None = None,
    threads: int | None = None,
    tune: bool = False,
    cache: str | Path | None = None,
    ranks: int | None = None,
    observer: Observer | None = None,
    quiet: bool = False,
) -> TrainingStep:
    """Return a training step of the module as a callable that runs a plan of ``onednn`` or, on an
    NVIDIA GPU, of ``cudnn``.

    model: in ``train()`` mode, in float32. It stays unchanged: the step has separate weights. loss:
    a function or module that takes the model's output and the targets and returns one number; None
    if the model returns its loss first. optimizer: a `golow.Optimizer` for all parameters; or SGD,
    Adam, AdamW or RMSprop of torch.optim over the model's parameters, from which the step takes
    settings, groups (which may differ in weight decay and learning rate) and state. example: a
    batch as the step will receive it: the inputs (a tensor, a tuple, or tensors by the names of the
    forward pass), then each target. batch: further sizes to build now; others are built when they
    first occur. every: number of calls per update, which uses the mean of their gradients. clip:
    largest total norm of the gradients; the optimizer's by default. seed: of the masks of random
    layers. precision: as in `compare`; on a GPU ``bf16`` and ``fp16`` update float32 weights.
    loss_scale: a constant scale in ``fp16``; by default the scale starts at 65536 and adapts, as in
    `torch.amp.GradScaler`. threads: of every call on a CPU; PyTorch's number by default. tune:
    choose layouts or engines by measuring, which takes seconds to minutes per size; the choice is
    kept in the cache. cache: folder for builds; golow's cache by default. quiet: show no progress.
    ranks: 1 trains in this process alone. By default, in a torch.distributed program, such as one
    started by torchrun, all ranks train together, as with DistributedDataParallel: each rank calls
    this function and then its step equally often, on its own batches; all start with rank 0's
    weights, and each update uses the mean of all ranks' gradients.

    Raises `GolowError`, before anything is built, for a module or a loss that cannot be captured or
    has an operation that the level lacks, and for a module in ``eval()``.
    """
    from golow.levels.called.training.step_building import built_step
    from golow.levels.called.training.wanted_step import WantedStep
    from golow.workload.known_causes import require_no_autocast

    require_no_autocast()
    folder = None if cache is None else Path(cache)
    wanted = WantedStep(
        optimizer, batch, every, clip, seed, precision, loss_scale, threads, tune, folder, ranks
    )
    with shown_progress("comparison", observer, quiet) as display:
        return built_step(model, loss, example, wanted, display)
