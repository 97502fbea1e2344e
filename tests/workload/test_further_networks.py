"""The networks of `benchmarks/further_networks.py` at `onednn` against float64; and what the
program that races them says to a name that it does not know."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import pytest
import torch

from golow.levels.direct.onednn.level import probe
from support.direct.in_process import assert_right
from support.places import ROOT

BENCHMARKS = ROOT / "benchmarks"


def loaded() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module("further_networks")


FURTHER = loaded()


@pytest.mark.whole_network
@pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")
@pytest.mark.parametrize("name", FURTHER.NETWORKS)
def test_a_network_is_right(name: str) -> None:
    from support.direct.onednn_in_process import compute, lower

    torch.manual_seed(0)
    network = FURTHER.NETWORKS[name]()
    x = torch.randn(3, *network.sample)
    lowered = lower(network, x, "infer")
    assert_right(lowered, compute(lowered))


@pytest.mark.slow
def test_an_unknown_network_is_named() -> None:
    program = BENCHMARKS / "race_further_networks.py"
    done = subprocess.run(
        [sys.executable, str(program), "--networks", "ConvMixer,Nothing"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "there is no Nothing; known: ConvMixer, Mixer" in done.stderr
