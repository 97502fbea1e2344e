"""Causes that keep a model from running at any level, reported before a worker starts."""

from __future__ import annotations

import copy
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy

from golow.records.errors import GolowError
from golow.records.workload import Device, Mode, Precision

WRAPPERS = {
    "torch.nn.parallel.data_parallel.DataParallel": "module",
    "torch.nn.parallel.distributed.DistributedDataParallel": "module",
    "torch._dynamo.eval_frame.OptimizedModule": "_orig_mod",
}
"""Modules around a model, and the attribute that holds it."""

SCRIPTED = torch.jit.ScriptModule
HERE = Path(__file__).parent  # also has the forward pass that takes inputs by name
FORWARD = re.compile(r"[\w.<>]*\bforward\(\) (?:missing|takes|got) ")
IDS = re.compile(
    r"\bindices\b.*\b(?:long|int)\b|\bint(?:32|64)\b.* for index|\bindex tensor\b", re.IGNORECASE
)


def require_plain_module(module: nn.Module, name: str) -> None:
    """Raise `GolowError` for a module without Python code or values, or around another one."""
    require_code_and_values(module, name)
    inside = (path for path, part in module.named_modules() if isinstance(part, SCRIPTED))
    if (path := next(inside, None)) is not None:
        raise GolowError(
            f"{path} of {name} is a TorchScript module, which has no Python code for other levels",
            "give the layer that was scripted or traced; golow traces the model for torchscript.",
        )
    kind = type(module)
    attribute = WRAPPERS.get(f"{kind.__module__}.{kind.__qualname__}")
    if attribute is not None:
        raise GolowError(
            f"the model is wrapped in {kind.__name__}, and golow runs the model itself",
            f"give the wrapped one: model.{attribute}.",
        )


def require_code_and_values(module: nn.Module, name: str) -> None:
    """Raise `GolowError` for a module without Python code, or with a weight without values."""
    if isinstance(module, SCRIPTED):
        raise GolowError(
            f"{name} is a TorchScript module, which has no Python code for the other levels",
            "give the nn.Module that was scripted or traced; golow traces it for torchscript.",
        )
    empty = next((n for n, tensor in _tensors(module) if tensor.is_meta), None)
    if empty is not None:
        raise GolowError(
            f"{name} is on the meta device: {empty} has a shape but no values",
            'build it without torch.device("meta"), or call .to_empty(device="cpu") and load '
            "weights.",
        )


def require_shapes(module: nn.Module, name: str) -> None:
    """Raise `GolowError` for a module with lazy layers that have not run yet."""
    lazy = next((n for n, tensor in _all_tensors(module) if is_lazy(tensor)), None)
    if lazy is not None:
        raise GolowError(
            f"{name} has lazy layers: {lazy} gets its shape in the first pass",
            "call the module on a batch once before.",
        )


def is_of_program(module: nn.Module) -> bool:
    """True for what `ExportedProgram.module` returns: its .train() and .eval() raise an error."""
    return isinstance(module, fx.GraphModule) and "eval" in vars(module)


def require_numbers(module: nn.Module, name: str) -> None:
    """Raise `GolowError` if a weight is NaN. Infinite ones may be meant, as in masks."""
    for path, tensor in _tensors(module):
        if (tensor.is_floating_point() or tensor.is_complex()) and bool(tensor.isnan().any()):
            share = f"{int(tensor.isnan().sum())} of {tensor.numel()}"
            raise GolowError(
                f"the weights of {name} have NaN in {path} ({share} elements), so that no result "
                "can be compared",
                "load or initialise them again.",
            )


def require_tensors(module: nn.Module, name: str) -> None:
    """Raise `GolowError` if the state dict holds something else than tensors."""
    for path, item in module.state_dict().items():
        if not isinstance(item, Tensor):
            raise GolowError(
                f"{path} in the state dict of {name} is of type {type(item).__name__}, and golow "
                "sends tensors to its workers",
                "leave it out of the state dict; for layers that torch.ao quantised give the "
                'original ones, and precision="int8".',
            )


def require_trainable(module: nn.Module, name: str, mode: Mode) -> None:
    """Raise `GolowError` if there is nothing to train."""
    parameters = list(module.parameters())
    if mode != "train" or any(parameter.requires_grad for parameter in parameters):
        return
    if not parameters:
        raise GolowError(
            f"{name} has no parameters, so that there is nothing to train",
            "compare it in inference, the default mode.",
        )
    raise GolowError(
        f"all {len(parameters)} parameters of {name} are frozen (requires_grad is False), so that "
        "there is nothing to train",
        "call requires_grad_(True) on the parameters to train, or compare it in inference, the "
        "default mode.",
    )


def require_dense_gradients(module: nn.Module, name: str) -> None:
    """Raise `GolowError` for an embedding whose gradient is a sparse tensor."""
    for path, layer in module.named_modules():
        embeds = isinstance(layer, nn.Embedding | nn.EmbeddingBag)
        if embeds and layer.sparse and layer.weight.requires_grad:
            raise GolowError(
                f"the gradient of {path or name} is a sparse tensor, and golow trains with dense "
                "ones",
                "leave sparse=True out of the embedding.",
            )


def require_own_statistics(module: nn.Module, name: str, ranks: int) -> None:
    """Raise `GolowError` for a norm that takes its statistics over several ranks."""
    for path, layer in module.named_modules():
        if ranks > 1 and isinstance(layer, nn.SyncBatchNorm):
            raise GolowError(
                f"{path or name} is a SyncBatchNorm, whose statistics are those of all ranks; in "
                "golow each rank has its own",
                "use BatchNorm layers.",
            )


def require_input_types(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Raise `GolowError` for an input whose floating point type is neither float32 nor that of the
    module."""
    own = {p.dtype for p in module.parameters() if p.is_floating_point()} | {torch.float32}
    for position, tensor in enumerate(inputs):
        if tensor.is_floating_point() and tensor.dtype not in own:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise GolowError(
                f"example_inputs[{position}] is {kind}; every level is given float32",
                "convert it with .float(); precision= chooses the arithmetic.",
            )


def explained_cause(error: BaseException) -> GolowError | None:
    """Explain an error of a forward pass that PyTorch words in its internal terms."""
    if "Expected more than 1 value per channel when training" in str(error):
        return GolowError(
            "batch norm cannot be trained on a batch with one value per channel: the variance of "
            "one value is zero",
            "use a batch of 2 or more, or leave its batch norms in eval().",
        )
    if "does not require grad and does not have a grad_fn" in str(error):
        return GolowError(
            "the model takes gradients in its forward pass, which inference calls under "
            "torch.no_grad()",
            "wrap what it differentiates in torch.enable_grad().",
        )
    return _misfit(error.__cause__)


def copied(module: nn.Module) -> nn.Module:
    """A copy with separate tensors. Raises `GolowError` for a module that cannot be copied."""
    try:
        return copy.deepcopy(module)
    except Exception as error:  # of the module's own code
        hint = "build it without objects that Python cannot copy, such as hooks that hold a lock."
        raise uncopied(error, hint) from error


def uncopied(error: Exception, otherwise: str) -> GolowError:
    """The error for a module that Python cannot copy. otherwise: the hint, unless the cause is
    known."""
    if "deepcopy protocol" in str(error):
        otherwise = (
            "a layer keeps a tensor that autograd computed, as torch.nn.utils.weight_norm and "
            "prune do: use torch.nn.utils.parametrizations.weight_norm, or call "
            "remove_weight_norm(layer) or prune.remove(layer, NAME)."
        )
    first = str(error).partition("\n")[0]
    return GolowError(f"the module cannot be copied: {type(error).__name__}: {first}", otherwise)


def unfit_types(
    error: BaseException | None, module: nn.Module, inputs: Iterable[Tensor]
) -> GolowError | None:
    """Explain an error of a forward pass on inputs of float32 alone, for a model that takes ids, or
    whose weights have another type."""
    if any(tensor.dtype is not torch.float32 for tensor in inputs):
        return None
    said = str(error).partition("\n")[0]
    if IDS.search(said):
        return GolowError(
            f"the model takes whole numbers, such as tokens, and its inputs are real: {said}",
            "give its inputs in Python: golow.compare(module, tokens).",
            python_hint="give example_inputs= of whole numbers, such as torch.int64.",
        )
    own = {p.dtype for p in module.parameters() if p.is_floating_point()}
    if own and torch.float32 not in own and "type" in said:
        kind = str(own.pop()).removeprefix("torch.")
        return GolowError(
            f"the weights of the model are {kind}, and its inputs float32: {said}",
            "build it in float32; on a GPU, --precision bf16 or fp16 computes in half.",
            python_hint=f"give example_inputs= in {kind}, or a module in float32.",
        )
    return None


def _misfit(error: BaseException | None) -> GolowError | None:
    """For a model that was called with other arguments than its forward pass takes. If a module
    calls another one wrongly, the user's own line is more informative."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    forward = (frame.filename for frame in frames if frame.name == "forward")
    inside = any(Path(file).parent != HERE for file in forward)
    if inside or not isinstance(error, TypeError) or not FORWARD.match(str(error)):
        return None
    return GolowError(
        f"the inputs do not fit the forward pass: {error}",
        "write a module around it that takes one input, or give its inputs in Python: "
        'golow.compare(module, (x, y)), or by name, golow.compare(module, {"x": x}).',
        python_hint="give example_inputs= as the forward pass takes them: a tuple, or by name a "
        "dictionary.",
    )


def require_no_autocast() -> None:
    """Raise `GolowError` within a block of autocast: its casts would be in what a module returns
    there, but in no plan."""
    if any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
        raise GolowError(
            "torch.autocast is on, and golow compiles a module as it is without",
            'compile outside of the block; on a GPU, precision="bf16" computes as autocast does.',
        )


@contextmanager
def autocast_refused(name: str, device: Device, precision: Precision) -> Iterator[None]:
    """Raise `GolowError` if the model turns on autocast of this device within the block, unless the
    workload's precision is half, too: the other levels would compute in float32 what it computes in
    half."""
    found: list[torch.dtype] = []
    enter = torch.autocast.__enter__

    def entered(self: Any) -> Any:
        is_half = self.device == device and self.fast_dtype is not torch.float32
        if self._enabled and is_half:
            found.append(self.fast_dtype)
        return enter(self)  # type: ignore[no-untyped-call]

    torch.autocast.__enter__ = entered  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autocast.__enter__ = enter  # type: ignore[method-assign]
    if found and precision not in ("bf16", "fp16"):
        kind = str(found[0]).removeprefix("torch.")
        raise GolowError(
            f"{name} turns on autocast to {kind} in its forward pass, and the levels take their "
            "precision from golow",
            "leave the autocast out of the model; on a GPU choose a precision of bf16 or fp16.",
        )


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers, without those that get a shape in the first pass."""
    return ((name, tensor) for name, tensor in _all_tensors(module) if not is_lazy(tensor))


def _all_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())
