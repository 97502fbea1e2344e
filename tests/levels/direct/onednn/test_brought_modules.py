"""Modules of kinds that users bring: the plans of `onednn` train them right."""

from __future__ import annotations

import pytest
import torch

from golow.levels.direct.onednn.level import probe
from support.direct.in_process import assert_right
from support.models.brought_modules import BROUGHT

needs_package = pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")


@needs_package
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", BROUGHT)
def test_a_brought_module_is_trained_right(name: str) -> None:
    from support.direct.onednn_in_process import compute, lower

    torch.manual_seed(0)
    module, inputs = BROUGHT[name]
    network = lower(module(), inputs(), "train", loss="mse_of_outputs")
    assert_right(network, compute(network))
