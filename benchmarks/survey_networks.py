"""The networks of `survey.py`: names as golow takes them, and how each is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import further_networks
import huggingface_models
import torchvision_models
from golow.workload.request import Request

SCENES = "torchvision_scenes"  # what this module's __getattr__ answers for
BATCH, SIDE = 8, 224
# How models of timm name their small members: the first of these words wins.
SMALL = (
    "atto", "femto", "pico", "nano", "tiny", "_xxs", "_xs", "xx_small", "x_small", "_t", "mini",
    "small", "_s", "b0", "_12", "s12", "18", "26", "_050", "34", "50", "base",
)  # fmt: skip
# Values for every field of that name in a configuration of transformers.
FEW, WIDE, HEADS = 2, 256, 4
LAYERS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
    "num_encoder_layers", "num_decoder_layers",
)  # fmt: skip
NARROW: dict[str, Any] = {
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "encoder_embed_dim",
         "decoder_embed_dim", "embedding_size", "projection_dim", "d_embed",
         "text_hidden_size"), WIDE,
    ),
    **dict.fromkeys(
        ("intermediate_size", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_dim", "d_inner",
         "moe_intermediate_size", "shared_expert_intermediate_size", "n_inner"), 2 * WIDE,
    ),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads",
         "decoder_attention_heads", "num_key_value_heads", "num_encoder_attention_heads",
         "num_decoder_attention_heads"), HEADS,
    ),
    "head_dim": WIDE // HEADS, "d_kv": WIDE // HEADS, "vocab_size": 512,
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(
        ("num_experts_per_tok", "num_experts_per_token", "num_selected_experts", "moe_topk",
         "moe_k", "moe_top_k"), 2,
    ),
    **dict.fromkeys(("n_group", "n_groups", "topk_group", "num_expert_group"), 1), "image_size": 64,
    "max_position_embeddings": 512, "n_positions": 512, "expand": 1, "mamba_n_heads": 8,
    "mamba_d_head": 2 * WIDE // 8,
    # Tokens of the vocabulary that remains.
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
# Of backbones: names of stages that a network with few layers lacks.
LEFT_OUT = ("out_features", "out_indices", "stage_names")
HEADS_OF_MODELS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)  # fmt: skip


def names(groups: list[str], each: int, tell: Callable[[str], None]) -> Iterator[str]:
    """The names of the groups' networks; ``each``: members of a file of timm. A group whose library
    is missing is told of and left out."""
    listing = {
        "further": lambda: [f"further:{name}" for name in further_networks.NETWORKS],
        "timm": lambda: list(_of_timm(each)),
        "torchvision": lambda: list(_of_torchvision()),
        "transformers": lambda: list(_of_transformers()),
    }
    for group in groups:
        try:
            yield from listing[group]()
        except (ImportError, RuntimeError) as error:
            tell(f"{group} is left out: it does not import here ({str(error).splitlines()[0]})")


def request(name: str, mode: Any, folder: Path) -> Request:
    """What golow is asked for. folder: for files of configurations."""
    group, _, rest = name.partition(":")
    asked = partial(Request, mode=mode, batch=BATCH, threads=1)
    if group == "further":
        network = further_networks.NETWORKS[rest]
        return asked(f"{further_networks.__file__}:{rest}", input_shape=network.sample)
    if group == "timm":
        return asked(name, pretrained=False)
    if group == "torchvision":
        side = torchvision_models.SIDES.get(rest, SIDE)
        return asked(f"torchvision.models:{rest}", input_shape=(3, side, side))
    if group == SCENES:
        return asked(f"{__file__}:{rest}", input_shape=(3, SIDE, SIDE))
    if rest in huggingface_models.CONFIGURATIONS:
        file = huggingface_models.written(rest, folder)
    else:
        file = folder / f"{rest}.json"
        file.write_text(json.dumps(_narrowed(rest)))
    return asked(f"hf:{file}", pretrained=False)


def __getattr__(name: str) -> Callable[[], Any]:
    """Build a network of torchvision's detection or segmentation, which by itself would download
    weights."""
    if name.startswith("_"):
        raise AttributeError(name)
    from torchvision import models

    return partial(models.get_model, name, weights=None, weights_backbone=None)


def _of_timm(each: int) -> Iterator[str]:
    import timm

    def rank(name: str) -> tuple[int, int, str]:
        place = next((i for i, word in enumerate(SMALL) if word in name), len(SMALL))
        return place, len(name), name

    for module in timm.list_modules():
        members = [n for n in timm.list_models(module=module) if not n.startswith("test_")]
        yield from (f"timm:{name}" for name in sorted(members, key=rank)[:each])


def _of_torchvision() -> Iterator[str]:
    from torchvision import models

    yield from (f"torchvision:{name}" for name in models.list_models(module=models))
    for module in (models.segmentation, models.detection):
        yield from (f"{SCENES}:{name}" for name in models.list_models(module=module))


def _of_transformers() -> Iterator[str]:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    yield from (f"hf:{kind}" for kind in CONFIG_MAPPING_NAMES if _class_of(kind))


def _class_of(kind: str) -> str:
    """The class of transformers for that kind of model with the most telling head; empty if there
    is none."""
    from transformers.models.auto import modeling_auto

    for head in HEADS_OF_MODELS:
        found = getattr(modeling_auto, head).get(kind)
        if found is not None:
            return found if isinstance(found, str) else found[0]
    return ""


def _narrowed(kind: str) -> dict[str, Any]:
    """The default configuration with few layers and narrow ones."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    default = CONFIG_MAPPING[kind]().to_dict()
    return _small(default) | {"model_type": kind, "architectures": [_class_of(kind)]}


def _small(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with few layers, and few of everything that `NARROW` names."""
    kept = _kept_layers(fields)
    found = {}
    for name, value in fields.items():
        if name in LEFT_OUT:
            continue
        if isinstance(value, dict):
            found[name] = _small(value)
        elif isinstance(value, list) and len(value) == _depth(fields):
            found[name] = [value[place] for place in kept]
        elif name in LAYERS and isinstance(value, int):
            found[name] = len(kept)
        elif name in NARROW and isinstance(value, int) and not isinstance(value, bool):
            found[name] = min(NARROW[name], value) if name.endswith("_id") else NARROW[name]
        else:
            found[name] = value
    return found


def _kept_layers(fields: dict[str, Any]) -> list[int]:
    """The first layer of each kind, and others until there are few."""
    depth = _depth(fields)
    kinds = [v for v in fields.values() if _names_kinds(v) and len(v) == depth]
    if not kinds:
        return list(range(FEW))
    layers = list(zip(*kinds, strict=True))
    firsts = [place for place, kind in enumerate(layers) if layers.index(kind) == place]
    others = [place for place in range(depth) if place not in firsts]
    return sorted(firsts + others[: max(FEW - len(firsts), 0)])


def _names_kinds(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _depth(fields: dict[str, Any]) -> int:
    """How many layers the network has by default, if there are more than few."""
    found = [fields[name] for name in LAYERS if isinstance(fields.get(name), int)]
    return found[0] if found and found[0] > FEW else -1
