"""A language model as a GGUF file, which llama.cpp reads, with weights in the module's own type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from golow.models.gpt2 import Gpt2
from golow.records.errors import Unsupported
from golow.workload.generation.step_modules import is_huggingface

LEVEL = "llama.cpp"
ROTATED = ("q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias")
SUFFIXES = (".weight", ".bias")


class Architecture(NamedTuple):
    """name: llama.cpp's. pairs: whether it rotates neighbouring elements of a head, where
    transformers rotates those of its two halves. scales: whether it reads factors of frequencies.
    """

    name: str
    pairs: bool = False
    scales: bool = False


LLAMA = Architecture("llama", pairs=True, scales=True)
ARCHITECTURES = {  # by the configuration's model_type
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3"),
}


def write_gguf(module: nn.Module, file: Path) -> None:
    """Write the model. Matrices keep their type; vectors are float32. Raises `Unsupported` for a
    model that llama.cpp, or this file, does not have."""
    known = _gpt2(module) if isinstance(module, Gpt2) else _described(module)
    import gguf

    names = gguf.get_tensor_name_map(_number_of(gguf, known.architecture), known.layers)
    writer = gguf.GGUFWriter(file, known.architecture.name)
    for add, value in known.settings.items():
        getattr(writer, f"add_{add}")(value)
    writer.add_block_count(known.layers)
    writer.add_tokenizer_model("none")  # tokens go in and out as numbers
    for name, tensor in _tensors(module, known):
        stored = "rope_freqs.weight" if name == FREQUENCIES else names.get_name(name, SUFFIXES)
        if stored is None:
            raise Unsupported(LEVEL, f"its {known.architecture.name} has no {name}")
        array, kind = _array(tensor), None
        if tensor.dtype == torch.bfloat16 and tensor.dim() > 1:
            array = tensor.contiguous().view(torch.int16).numpy()
            kind = gguf.GGMLQuantizationType.BF16
        writer.add_tensor(stored, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Known(NamedTuple):
    """A model that can be written. settings: by the writer's names. heads, groups: of queries and
    of keys. factors: by which frequencies of the rotary embedding are divided."""

    architecture: Architecture
    layers: int
    settings: dict[str, float]
    heads: int
    groups: int
    factors: Tensor | None = None


def _gpt2(module: Gpt2) -> Known:
    if module.lm_head.weight.dtype == torch.float32:
        raise Unsupported(LEVEL, "it computes GELU in float16; use --precision bf16")
    sizes = module.sizes
    settings = {
        "vocab_size": sizes.vocabulary,
        "context_length": sizes.positions,
        "embedding_length": sizes.width,
        "feed_forward_length": 4 * sizes.width,
        "head_count": sizes.heads,
        "layer_norm_eps": module.transformer.ln_f.eps,
    }
    return Known(Architecture("gpt2"), sizes.layers, settings, sizes.heads, sizes.heads)


def _described(module: nn.Module) -> Known:
    """The model as its configuration from transformers describes it."""
    if not is_huggingface(module):
        raise Unsupported(LEVEL, "a step module has its own caches: see eager:static")
    config: Any = module.config
    architecture = ARCHITECTURES.get(config.model_type)
    if architecture is None:
        known = ", ".join(ARCHITECTURES)
        raise Unsupported(LEVEL, f"golow writes it {known} and gpt2_small, not {config.model_type}")
    if config.hidden_act != "silu":
        raise Unsupported(LEVEL, f"its {architecture.name} has no {config.hidden_act}")
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    # llama.cpp knows no window for these: texts within it are the same without.
    longest = min(
        config.max_position_embeddings, getattr(config, "sliding_window", None) or 1 << 30
    )
    rotary = config.rope_parameters
    settings = {
        "vocab_size": config.vocab_size,
        "context_length": longest,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "head_count": heads,
        "head_count_kv": config.num_key_value_heads,
        "key_length": width,
        "value_length": width,
        "rope_dimension_count": width,
        "rope_freq_base": rotary["rope_theta"],
        "layer_norm_rms_eps": config.rms_norm_eps,
    }
    factors = _factors(module, architecture, rotary, width)
    layers, groups = config.num_hidden_layers, config.num_key_value_heads
    return Known(architecture, layers, settings, heads, groups, factors)


def _factors(
    module: nn.Module, architecture: Architecture, rotary: dict[str, Any], width: int
) -> Tensor | None:
    """Return what divides the frequencies of the rotary embedding; None if nothing does."""
    if (kind := rotary.get("rope_type", "default")) == "default":
        return None
    found = module.get_submodule("model.rotary_emb")
    if not architecture.scales or found.attention_scaling != 1:
        raise Unsupported(LEVEL, f"golow writes its {architecture.name} no {kind} frequencies")
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    frequencies: Any = found.inv_freq
    factors: Tensor = rotary["rope_theta"] ** -exponents / frequencies.double()
    return factors.float()


FREQUENCIES = "frequencies"  # among the tensors, of no parameter


def _tensors(module: nn.Module, known: Known) -> Iterator[tuple[str, Tensor]]:
    """Yield each parameter once, by transformers' name: as llama.cpp stores it."""
    for name, parameter in module.named_parameters():
        weight = parameter.detach()
        if known.architecture.pairs and name.endswith(ROTATED):
            heads = known.heads if "q_proj" in name else known.groups
            halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
            weight = halves.transpose(1, 2).reshape(weight.shape)
        yield name, weight
    if known.factors is not None:
        yield FREQUENCIES, known.factors


def _array(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.float().contiguous().numpy()
    return array


def _number_of(gguf: Any, architecture: Architecture) -> Any:
    numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    return numbers[architecture.name]
