"""Some 280 small networks by the backend and in eager, in inference and in training. Most run as
plans; what is refused runs in PyTorch. Either way nothing differs but by rounding."""

from __future__ import annotations

import pytest
import torch

from golow.levels.direct.onednn.level import probe
from support.direct.backend_graphs import assert_infers, assert_trains
from support.models.many_networks import CASES
from support.models.rare_operators import FURTHER

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

MODELS = CASES | FURTHER
FEW = tuple(MODELS)[::20]
NAMES = [
    pytest.param(name, marks=pytest.mark.slow if name in FEW else pytest.mark.whole_network)
    for name in MODELS
]


@pytest.mark.parametrize("name", NAMES)
def test_inference(name: str) -> None:
    torch.manual_seed(0)
    case = MODELS[name]
    assert_infers(case.make().eval(), lambda: torch.randn(case.shape))


@pytest.mark.parametrize("name", NAMES)
def test_training(name: str) -> None:
    torch.manual_seed(0)
    case = MODELS[name]
    assert_trains(case.make().train(), lambda: torch.randn(case.shape))
