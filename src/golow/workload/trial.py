"""Tries a module on the workload's device: it must accept its batch and repeat its result.

The module stays on the CPU and keeps its state; copies run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from golow.lower.capture.module_outputs import leaves_of, mapped
from golow.lower.capture.shared_tensors import own_tensors_kept
from golow.records.errors import GolowError
from golow.records.workload import Device, Precision
from golow.workload.batch import Batch
from golow.workload.dropout_calls import dropout_calls_found
from golow.workload.forward_changes import watched
from golow.workload.known_causes import explained_cause, unfit_types
from golow.workload.request import require_precision
from golow.workload.source import random_layers_off, users_code
from golow.workload.unrepeatable import require_repeatable


class MisfitError(GolowError):
    """A model does not accept its batch."""


def require_device(device: Device, precision: Precision, count: int = 1) -> None:
    """Raise `GolowError` unless PyTorch can use this many devices of the kind here, in this
    precision."""
    require_precision(device, precision)
    if device == "cpu":
        return
    if torch.version.cuda is None:
        raise GolowError(
            f"torch {torch.__version__} is built without CUDA and cannot use a GPU",
            "on a machine with an NVIDIA GPU, install a CUDA build of torch; `golow doctor` shows "
            "what is missing.",
        )
    if not torch.cuda.is_available():
        raise GolowError(
            "PyTorch finds no GPU that it can use here",
            "check the driver and CUDA_VISIBLE_DEVICES; `golow doctor` shows the devices.",
        )
    if (found := torch.cuda.device_count()) < count:
        raise GolowError(
            f"{count} ranks need a GPU each, and PyTorch can use {found} here",
            f"use --gpus {found}; `golow doctor` shows the devices.",
            python_hint=f"use ranks={found}.",
        )


def give_back_memory(device: Device) -> None:
    """Return PyTorch's cached memory to the device.

    A cuBLAS workspace may be in a large cached block and keep it from being returned, hence the
    first call, which PyTorch's notes on CUDA name. Do not call this in a process that has captured
    a CUDA graph: the graph still uses the workspaces of its capture.
    """
    if device == "cuda":
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


def try_forward(module: nn.Module, batch: Batch, name: str, device: Device) -> Any:
    """Run a forward pass without gradients; returns the output, on the CPU."""
    output = _forward(module, batch, name, device)
    return mapped(Tensor.cpu, output)


def try_inference(module: nn.Module, batch: Batch, first: Any, name: str, device: Device) -> bool:
    """Run a second forward pass, whose output must repeat the first; and if that changed buffers, a
    third one with their new content. Returns whether the module takes gradients in its forward
    pass, so that inference mode is not for it."""
    state, takes_gradients = _state(module, device), False
    with watched(module) as changes:
        try:
            with torch.inference_mode():
                again = mapped(Tensor.cpu, _forward(module, batch, name, device, state))
        except GolowError:  # it could run in the first pass, without inference mode
            state, takes_gradients = _state(module, device), True
            again = mapped(Tensor.cpu, _forward(module, batch, name, device, state))
    with users_code(f"two results of {name} cannot be compared"):
        require_repeatable(name, "inference", first, again, device, changes)
    before = dict(module.named_buffers())
    changed = [n for n, b in before.items() if not torch.equal(b, state[n].to(b.device))]
    if changed:
        later = mapped(Tensor.cpu, _forward(module, batch, name, device, state))
        pairs = zip(leaves_of(again), leaves_of(later), strict=True)
        if not all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in pairs):
            raise GolowError(
                f"each call of {name} in inference changes its buffers ({', '.join(changed)}), and "
                "the next result depends on them",
                "golow compares calls that start from the same weights; pass the changing tensor "
                "as an input and return its new content.",
            )
    return takes_gradients


def try_step(
    module: nn.Module, batch: Batch, loss: Callable[..., Tensor], name: str, device: Device
) -> tuple[str, ...]:
    """Run a forward pass with the loss twice: training must be possible and repeatable. Returns the
    calls of functions that would have dropped something, which are off here."""
    if complex_ones := [n for n, parameter in module.named_parameters() if parameter.is_complex()]:
        raise GolowError(
            f"{name} has complex parameters, which golow does not train: {complex_ones[0]}",
            "construct them from real ones in the forward pass, with torch.view_as_complex.",
        )
    with random_layers_off(module):
        with dropout_calls_found() as found:
            output, first = _loss_once(module, batch, loss, name, device)
        with watched(module) as changes:
            again, second = _loss_once(module, batch, loss, name, device)
    require_repeatable(name, "training", output, again, device, changes)
    try:
        require_repeatable(name, "training", first, second, device, changes)
    except GolowError as error:
        raise GolowError(
            f"the loss of {name} differs from call to call for the same output: {first.item():g}, "
            f"then {second.item():g}",
            "a loss must not draw random numbers or remember earlier steps.",
        ) from error
    return tuple(found)


def try_gradients(
    module: nn.Module, batch: Batch, loss: Callable[..., Tensor], name: str, device: Device
) -> None:
    """Run forward and backward twice. Draws can be given to a forward pass alone; a layer that is
    computed again in the backward pass would draw anew, which the loss does not show."""
    failing = f"{name} cannot be trained"
    with random_layers_off(module), torch.enable_grad():
        first = _gradients(module, batch, loss, device, failing, 0)
        with watched(module) as changes:
            second = _gradients(module, batch, loss, device, failing, 1)
    require_repeatable(name, "its backward pass", first, second, "cuda", changes)


# ---------------------------------------------------------------- how it is done


def _forward(
    module: nn.Module,
    batch: Batch,
    name: str,
    device: Device,
    state: dict[str, Tensor] | None = None,
) -> Any:
    shapes = ", ".join("x".join(map(str, t.shape)) for t in batch.inputs)
    size = "give the shape of one sample with --input, or its size with --resolution or --sequence"
    hint = f"{size}; give other inputs in Python: golow.compare(module, inputs)."
    ours = f"give example_inputs= that the module takes; without them, {size}."
    what = f"{name} does not accept an input of {shapes}"
    try:
        with (
            _causes_told(module, batch.inputs),
            users_code(what, hint, 3, python_hint=ours, kind=MisfitError),
            torch.no_grad(),
        ):
            # A copy, because the module may change its inputs.
            inputs = tuple(t.to(device, copy=True) for t in batch.inputs)
            output = _call(module, inputs, device, state)
            found = leaves_of(output)
    except torch.OutOfMemoryError as error:
        raise GolowError(
            f"the GPU has too little memory for a forward pass of {name} on {shapes}",
            "use a smaller --batch, --resolution or --sequence.",
        ) from error
    if not found or not all(isinstance(leaf, Tensor) for leaf in found):
        kinds = ", ".join(sorted({type(leaf).__name__ for leaf in found})) or "nothing"
        raise GolowError(
            f"the output of {name} is not a tensor: it contains {kinds}",
            "return a tensor, or a tuple, named tuple, list, dict or dataclass of tensors.",
        )
    if not any(leaf.numel() for leaf in found):
        raise GolowError(
            f"the output of {name} has no elements: {'x'.join(map(str, found[0].shape))}",
            "there is nothing to compare; return what the forward pass computes.",
        )
    for leaf in found:
        if kind := unusual(leaf):
            raise GolowError(
                f"the output of {name} contains a {kind} tensor, which golow cannot compare",
                "return dense, real tensors; torch.view_as_real converts complex ones.",
            )
    return output


@contextmanager
def _causes_told(module: nn.Module, inputs: tuple[Tensor, ...]) -> Iterator[None]:
    """Replace an error of a forward pass with what is known of its cause."""
    try:
        yield
    except GolowError as error:
        cause = explained_cause(error) or unfit_types(error.__cause__, module, inputs)
        if cause is None:
            raise
        raise cause from error


def unusual(tensor: Tensor) -> str:
    """Name the kind of tensor if its elements are not numbers that can be read one by
    one."""
    if tensor.is_complex():
        return "complex"
    if tensor.layout is not torch.strided:
        return "sparse"
    if tensor.is_nested or tensor.is_quantized or tensor.is_meta:
        return "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else "meta"
    return ""


def _state(module: nn.Module, device: Device) -> dict[str, Tensor]:
    """Copied buffers, because a try must not change running statistics; on a GPU all tensors."""
    state = {name: buffer.to(device, copy=True) for name, buffer in module.named_buffers()}
    if device != "cpu":
        state |= {name: weight.to(device) for name, weight in module.named_parameters()}
    return state


def _call(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    device: Device,
    state: dict[str, Tensor] | None = None,
) -> Any:
    """state: takes the new content of buffers; by default a copy."""
    with own_tensors_kept(module):
        return functional_call(module, _state(module, device) if state is None else state, inputs)


def _loss_once(
    module: nn.Module, batch: Batch, loss: Callable[..., Tensor], name: str, device: Device
) -> tuple[Any, Tensor]:
    """The output and the loss."""
    output = _forward(module, batch, name, device)
    fitting = "mse_loss" if isinstance(output, Tensor) else "mse_of_outputs"
    hint = f"name another loss: --loss {fitting}."
    python_hint = f'give another loss=, such as "{fitting}", or its targets=.'
    what = f"the loss does not accept the output of {name}"
    with users_code(what, hint, 3, python_hint=python_hint):
        value = loss(output, *(target.to(device) for target in batch.targets))
    if not isinstance(value, Tensor) or value.numel() != 1 or value.is_complex():
        raise GolowError(f"the loss of {name} is not one number")
    return output, value


def _gradients(
    module: nn.Module,
    batch: Batch,
    loss: Callable[..., Tensor],
    device: Device,
    failing: str,
    seed: int,
) -> list[Tensor]:
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with users_code(failing), torch.random.fork_rng(devices):
        torch.manual_seed(seed)  # a layer that is computed again restores the generator's state
        inputs = tuple(t.to(device, copy=True) for t in batch.inputs)
        output = _call(module, inputs, device)
        value = loss(output, *(target.to(device) for target in batch.targets))
        found = torch.autograd.grad(value, trained, allow_unused=True)
    return [gradient for gradient in found if gradient is not None]
