"""Checkpoints in the GPTQ, AWQ and fp8 layouts of Hugging Face's hub: safetensors files whose
tensors are named after their layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from golow.records.errors import GolowError
from golow.records.quantization import QuantizedLayer
from golow.storage.files import read_json, require_file
from golow.workload.quantization.foreign import fp8
from golow.workload.quantization.foreign.awq import awq_layer
from golow.workload.quantization.foreign.foreign_layer import ForeignLayer, refused
from golow.workload.quantization.foreign.gptq import gptq_layer

WORDS = ("qweight", "qzeros", "scales", "g_idx")
OF_FP8 = ("weight", *fp8.SCALES, *fp8.OF_ACTIVATIONS)
CONFIGURATIONS = ("config.json", "quantize_config.json")


class Stated(NamedTuple):
    """Facts that the tensors do not show, from the configuration beside them. form: the GPTQ
    format. block: numbers of outputs and inputs that share an fp8 scale."""

    form: str = ""
    block: tuple[int, int] = (128, 128)


def foreign_rules(file: Path) -> tuple[QuantizedLayer, ...]:
    """Return the rules of the layers that another tool has quantised in this file; none if it has
    no such layers. Raises `GolowError` for a file that cannot be read, and for layers that none of
    golow's rules expresses."""
    require_file(file)
    try:
        with safe_open(file, framework="numpy") as opened:
            names = opened.keys()
            kinds = {name: opened.get_slice(name).get_dtype() for name in names}
    except (SafetensorError, OSError) as error:
        raise GolowError(f"{file} cannot be read: {error}") from error
    if not any(_parts_beside(name, kind.startswith("F8")) for name, kind in kinds.items()):
        return ()
    return tuple(layer.rule for layer in _layers(load_file(file), file))


def in_golows_form(state: Mapping[str, Tensor], file: Path) -> dict[str, Tensor]:
    """Return the state dict of a file with the tensors of such layers replaced by golow's."""
    found = dict(state)
    for layer in _layers(state, file):
        for part in (*WORDS, *OF_FP8):
            found.pop(f"{layer.rule.path}.{part}", None)
        found |= {f"{layer.rule.path}.{name}": x for name, x in layer.tensors().items()}
    return found


def _stated_beside(file: Path) -> Stated:
    """Return the facts from the configuration in the folder of a checkpoint, if there is one."""
    for name in CONFIGURATIONS:
        if (place := file.with_name(name)).is_file():
            whole = read_json(place, dict[str, Any])
            given = whole.get("quantization_config", whole)
            form = str(given.get("checkpoint_format", "")) if isinstance(given, dict) else ""
            block = given.get("weight_block_size") if isinstance(given, dict) else None
            return Stated(form, Stated().block if block is None else _block(place, block))
    return Stated()


def _block(place: Path, found: object) -> tuple[int, int]:
    given = found if isinstance(found, list) else []
    sizes = [size for size in given if type(size) is int and size > 0]
    if len(sizes) != 2 or sizes != found:
        raise GolowError(
            f"{place} has the weight_block_size {found!r}",
            "it states two numbers of weights that share a scale, such as [128, 128].",
        )
    return sizes[0], sizes[1]


def _layers(state: Mapping[str, Tensor], file: Path) -> Iterator[ForeignLayer]:
    """Yield the layers. Only if there are some, the configuration beside the file is read."""
    stated = None
    for name, tensor in state.items():
        narrow = tensor.is_floating_point() and tensor.itemsize == 1
        if parts := _parts_beside(name, narrow):
            stated = stated or _stated_beside(file)
            path = name.rpartition(".")[0]
            given = {part: state.get(f"{path}.{part}") for part in parts}
            yield _layer(path, {part: x for part, x in given.items() if x is not None}, stated)


def _parts_beside(name: str, narrow: bool) -> tuple[str, ...]:
    """Return the parts of a foreign quantised layer, if this is the tensor that identifies it;
    otherwise none. narrow: whether the tensor is 8-bit floating point."""
    part = name.rpartition(".")[2]
    if part == "weight" and narrow:
        return OF_FP8
    return WORDS if part == "qweight" else ()


def _layer(path: str, given: Mapping[str, Tensor], stated: Stated) -> ForeignLayer:
    if "weight" in given:
        return fp8.fp8_layer(path, given, stated.block)
    if missing := [name for name in WORDS[:3] if name not in given]:
        raise refused(path, f"it has {', '.join(given)} and no {missing[0]}")
    _require_tables(path, given)
    columns, outputs = given["qweight"].shape[1], given["scales"].shape[1]
    if columns == outputs:
        return gptq_layer(path, given, stated.form)
    if 8 * columns == outputs:
        return awq_layer(path, given)
    shape = "x".join(map(str, given["qweight"].shape))
    raise refused(path, f"qweight {shape} is no layout that golow knows for {outputs} outputs")


def _require_tables(path: str, given: Mapping[str, Tensor]) -> None:
    """Raise `GolowError` for words that are not int32, and for scales that are not finite."""
    for name in WORDS[:3]:
        tensor, kind = given[name], "float" if name == "scales" else "int32"
        fits = tensor.is_floating_point() if name == "scales" else tensor.dtype == torch.int32
        if tensor.dim() != 2 or not tensor.numel() or not fits:
            shape, dtype = "x".join(map(str, tensor.shape)), str(tensor.dtype)[6:]
            raise refused(path, f"its tensor {name} is {dtype} {shape}, not a table of {kind}")
    if not bool(torch.isfinite(given["scales"]).all()):
        raise refused(path, "its scales are not finite")
