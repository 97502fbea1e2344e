"""Power of the check of a level's results: the smallest change of one layer that it detects."""

from __future__ import annotations

import math
from pathlib import Path

from safetensors import safe_open

from golow.check.rule import Reference
from golow.records.comparison import Power
from golow.records.workload import Mode

COARSE = 0.01
"""Share of an output from which on its limit may hide a layer. Where it is less, only outputs that
hardly answer to their inputs do, which `answering` finds."""
FEW = 1000
"""Elements of a gradient below which its limit is that of a noisy estimate, and no layer's."""


def sees_little(reference: Reference) -> bool:
    """True if the limit of every output is a large share of it."""
    shares = [
        reference.limit(name) / item.scale
        for name, item in reference.expected.items()
        if "/output/" in name and item.scale > 0
    ]
    return bool(shares) and min(shares) > COARSE


def power_of_outputs(reference: Reference, responses: Path) -> Power | None:
    """The layer whose change has the least effect on the outputs. responses: of the float64
    reference, as `layer_responses` gives them. None if no layer's is known."""
    seen: dict[str, float] = {}
    with safe_open(responses, "pt") as file:
        for key in file.keys():  # noqa: SIM118 (it is not a dictionary)
            _, _, place, layer = key.split("/", 3)
            response = float(file.get_tensor(key))
            limit = reference.limit(f"0/output/{place}")
            share = limit / response if response else math.inf
            seen[layer] = min(share, seen.get(layer, math.inf))
    finite = {layer: share for layer, share in seen.items() if share > 0}
    return _worst(finite)


def power_of_gradients(reference: Reference) -> Power | None:
    """The layer of whose gradient the limit is the largest share. None for a reference without
    gradients of layers."""
    shares = {
        name.removeprefix("0/gradient/"): reference.limit(name) / item.scale
        for name, item in reference.expected.items()
        if name.startswith("0/gradient/")
        and item.elements >= FEW
        and item.scale > 0
        and not item.zero_scale
    }
    return _worst(shares)


def weakness(power: Power, mode: Mode) -> str:
    """A note for the record on a check that would miss changes that it should detect."""
    what = "the weights" if mode == "infer" else "the gradient"
    return (
        f"match (weak): the check of the results would not see {what} of {power.layer} changed by "
        f"less than {power.share:.0%}. It sees more with trained weights or a larger batch; at a "
        f"direct level each operation is checked separately"
    )


def _worst(shares: dict[str, float]) -> Power | None:
    layer = max(shares, key=shares.__getitem__, default="")
    return Power(layer=layer, share=min(shares[layer], 1e9)) if layer else None
