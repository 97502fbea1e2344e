"""Modules after public bug reports: the plans of `onednn` compute what the modules do, or the
module is refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Mode
from support.direct.in_process import assert_right
from support.models.reported_layers import LAYERS
from support.models.reported_modules import MODULES, Plain

REPORTED = MODULES | LAYERS

needs_package = pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")

REFUSED: dict[tuple[str, Mode], str] = {
    ("data swapped", "infer"): "assigns to a tensor's .data",
    ("data swapped", "train"): "assigns to a tensor's .data",
    ("slice set", "train"): "autograd needs a value that the model overwrites",
    ("indexed by a row's number", "infer"): "converts a tensor to a Python number",
    ("a cache written at a position", "infer"): "changes the buffer cache in each iteration",
    ("a cache written at a position", "train"): "a value that has a gradient",
    ("elements chosen by a mask", "infer"): "by indexing with a mask in its forward",
    ("elements chosen by a mask", "train"): "by indexing with a mask in its forward",
    ("texts packed by length", "infer"): "by item in layer layer",
    ("texts packed by length", "train"): "by item in layer layer",
}
"""What each says, where it is no plan."""


def cases() -> Iterator[Any]:
    """Every module in both modes; in inference alone what a training step does not prove, too."""
    for name, reported in REPORTED.items():
        trains = not isinstance(reported.module(), Plain) and (name, "train") not in REFUSED
        proved = trains and (name, "infer") not in REFUSED
        marks = [pytest.mark.whole_network] if proved else []
        yield pytest.param(name, "infer", marks=marks, id=f"{name}-infer")
        yield pytest.param(name, "train", id=f"{name}-train")


@needs_package
@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), cases())
def test_a_reported_module_is_right_or_refused(name: str, mode: Mode) -> None:
    from support.direct.onednn_in_process import compute, lower

    torch.manual_seed(0)
    reported = REPORTED[name]
    module, inputs = reported.module(), reported.inputs()
    said = REFUSED.get((name, mode), "")
    if mode == "train" and isinstance(module, Plain):
        said = "no parameters"
    if said:
        with pytest.raises((GolowError, Unsupported), match=said) as caught:
            compute(lower(module, inputs, mode, loss="mse_of_outputs"))
        assert "\n" not in getattr(caught.value, "message", str(caught.value))
        return
    network = lower(module, inputs, mode, loss="mse_of_outputs")
    assert_right(network, compute(network))


def test_every_report_has_a_source() -> None:
    assert len(REPORTED) >= 60
    assert all(item.source.startswith("https://github.com/") for item in REPORTED.values())
