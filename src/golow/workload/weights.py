"""A module's initial weights: from a file, an initialisation, or its constructor."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from golow.lower.capture.shared_tensors import first_names
from golow.models import ZOO
from golow.models.initialise import initialise
from golow.records.errors import GolowError
from golow.records.workload import ModelSource
from golow.storage.files import require_file
from golow.workload.hub.huggingface import load_huggingface
from golow.workload.hub.timm_models import weights_file
from golow.workload.known_causes import require_shapes, uncopied
from golow.workload.quantization.foreign.adopted import adopted
from golow.workload.quantization.foreign.checkpoint import in_golows_form
from golow.workload.quantization.replacing import as_quantized
from golow.workload.source import build_module

LONGEST = 200
"""Characters of a line of PyTorch's message, which may name hundreds of tensors."""


def fresh_module(
    model: str | nn.Module,
    source: ModelSource,
    weights: str | Path | None,
    initialisation: str | None,
    seed: int,
) -> tuple[nn.Module, str]:
    """The module with its initial weights, and a description of them for the record.

    model: the caller's own module, which is copied, or a name. source: where a named model is.
    """
    torch.manual_seed(seed)
    if isinstance(model, nn.Module):
        module = as_quantized(adopted(_copy(model)), source.quantized)
    else:
        module = build_module(source)
    return module, _give_weights(module, source, weights, initialisation, seed)


def are_random(source: ModelSource, weights: str | Path | None) -> bool:
    """True if the weights come from an initialisation or a constructor, not from a training run."""
    return weights is None and not source.pretrained and source.kind not in ("pickle", "program")


def load_weights(
    module: nn.Module, weights: Mapping[str, Tensor], assign: bool = False, strict: bool = True
) -> None:
    """Load what the state dict of a module of the same code held.

    A file of tensors has no versions, which PyTorch keeps beside a state dict's tensors and some
    modules require (torchvision's MNASNet). The code is the same, so the versions are its own.
    assign: take the tensors themselves instead of copying them. strict: require all entries of the
    state dict.
    """
    state = OrderedDict(weights)
    versions = {
        path: {"version": layer._version}
        for path, layer in module.named_modules(remove_duplicate=False)
    }
    state._metadata = versions  # type: ignore[attr-defined]
    module.load_state_dict(state, assign=assign, strict=strict)


def _copy(module: nn.Module) -> nn.Module:
    """Copy the caller's module, which keeps its mode, weights and device."""
    try:
        return copy.deepcopy(module).cpu()
    except Exception as error:
        require_shapes(module, type(module).__name__)
        raise uncopied(error, "put it into a file and name it as file.py:Name.") from error


def _give_weights(
    module: nn.Module,
    source: ModelSource,
    weights: str | Path | None,
    initialisation: str | None,
    seed: int,
) -> str:
    """Set the weights; returns their description for the record."""
    if weights is not None:
        _load_weights(module, Path(weights))
        return f"weights of {Path(weights).name}"
    if initialisation is not None or source.kind == "zoo":
        name = initialisation or ZOO[source.name].initialisation
        try:
            initialise(module, name, seed)
        except (KeyError, ValueError) as error:
            raise GolowError(str(error.args[0])) from error
        except (RuntimeError, MemoryError) as error:
            raise GolowError(
                f"the weights of {source.name} cannot be created: "
                f"{str(error).partition(chr(10))[0]}",
                "use a smaller --resolution or --classes.",
            ) from error
        return f"{name}, seed {seed}"
    if source.kind in ("pickle", "program"):
        return "as given"
    if source.pretrained:
        _give_pretrained(module, source)
        return "pretrained"
    return f"the model's constructor, seed {seed}"


def _give_pretrained(module: nn.Module, source: ModelSource) -> None:
    if source.kind == "timm":
        _load_weights(module, weights_file(source.name))
    else:
        module.load_state_dict(load_huggingface(source).state_dict())


def _load_weights(module: nn.Module, path: Path) -> None:
    if path.suffix != ".safetensors":
        raise GolowError(
            f"{path} is not a .safetensors file",
            "pickled weights can run code; convert them: safetensors.torch.save_file("
            "torch.load(PATH, weights_only=True), 'weights.safetensors').",
        )
    require_file(path)
    try:
        state = load_file(path)
    except (SafetensorError, OSError) as error:
        raise GolowError(f"{path} cannot be read: {error}") from error
    state = _under_all_names(module, in_golows_form(state, path))
    try:
        _load_file(module, state)
    except (RuntimeError, ValueError) as error:
        said = str(error).splitlines()[:6]
        lines = [f"{line[:LONGEST]}..." if len(line) > LONGEST else line for line in said]
        raise GolowError(
            f"{path} does not fit the model: " + "\n".join(lines),
            _about_prefix(state, module.state_dict()),
        ) from error


def _under_all_names(module: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state dict with the names that ``safetensors.torch.save_model`` leaves out: it writes a
    tensor that has several names, such as a tied weight, once."""
    first = first_names(module)
    stored = {first[name]: tensor for name, tensor in state.items() if name in first}
    missing = [name for name in module.state_dict() if name not in state]
    return {**state, **{name: stored[first[name]] for name in missing if first.get(name) in stored}}


def _about_prefix(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """A hint for names to which a wrapper, such as DataParallel or a training framework, adds its
    own beginning; empty for other names."""
    one = next(iter(wanted), "")
    prefixes = {name.removesuffix(one) for name in state if name.endswith(f".{one}")}
    for prefix in sorted(prefixes):
        if all(f"{prefix}{name}" in state for name in wanted):
            cut = f"{{name.removeprefix({prefix!r}): tensor for name, tensor in state.items()}}"
            return f"its names begin with {prefix}; save the state dict without it: {cut}."
    return ""


def _load_file(module: nn.Module, state: dict[str, Tensor]) -> None:
    """Load tensors of unknown age. Without a version, modules accept what older ones of their kind
    lack, as batch norm does its count of batches; one that refuses them gets its own version."""
    try:
        module.load_state_dict(state)
    except ValueError:
        load_weights(module, state)
