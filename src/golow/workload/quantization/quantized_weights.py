"""The file of a quantised network: the state dict as safetensors, with the rule in its metadata, or
a checkpoint that another tool quantised.

``--weights`` takes it where it takes any state dict: the model is then the quantised network.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from golow.records.errors import GolowError
from golow.records.quantization import QuantizedLayer, QuantizedNetwork
from golow.records.workload import ModelSource
from golow.storage.files import require_file, require_place, writing
from golow.workload.quantization.foreign.checkpoint import foreign_rules

KEY = "golow.quantized_network"


def require_weights_place(file: Path) -> None:
    """Raise `GolowError` for a name that does not end in .safetensors, and unless the file can be
    written: now rather than after the calibration."""
    if file.suffix != ".safetensors":
        raise GolowError(
            f"{file} is not the name of a .safetensors file", "for example quantised.safetensors."
        )
    require_place(file)


def write_quantized(module: nn.Module, network: QuantizedNetwork, file: Path) -> Path:
    """Write the network. Raises `GolowError` if the file cannot be written."""
    # Copies, because two names of a state dict may share memory, which the format refuses.
    state = {name: t.detach().contiguous().clone() for name, t in module.state_dict().items()}
    with writing(file, "name another file."):
        save_file(state, file, {KEY: msgspec.json.encode(network).decode()})
    return file


def read_quantized(file: Path) -> QuantizedNetwork | None:
    """How the network in this file is quantised; None for a file of a network that is not. Raises
    `GolowError` for a file that cannot be read."""
    if file.suffix != ".safetensors":
        return None
    require_file(file)
    try:
        with safe_open(file, framework="numpy") as opened:
            text = (opened.metadata() or {}).get(KEY)
    except (SafetensorError, OSError) as error:
        raise GolowError(f"{file} cannot be read: {error}") from error
    try:
        return None if text is None else msgspec.json.decode(text, type=QuantizedNetwork)
    except msgspec.DecodeError as error:
        raise GolowError(
            f"{file} does not state how its network is quantised: {error}",
            "write it again with golow quantize.",
        ) from error


def with_quantized_layers(source: ModelSource, weights: str | Path | None) -> ModelSource:
    """Return the source of the quantised network, if the file of weights contains one, from golow
    or another tool."""
    return (
        source
        if weights is None
        else msgspec.structs.replace(source, quantized=rules_in(Path(weights)))
    )


def rules_in(file: Path) -> tuple[QuantizedLayer, ...]:
    """Return the rules of the quantised layers in a file of weights; none for a network that is not
    quantised. Raises `GolowError` for a file that cannot be read."""
    network = read_quantized(file)
    if network is not None:
        return network.layers
    return foreign_rules(file) if file.suffix == ".safetensors" else ()
