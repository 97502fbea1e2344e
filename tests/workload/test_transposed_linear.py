"""Layers of transformers that store a transposed weight are quantised as linear layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from golow.records.quantization import QuantizationRule
from golow.workload.quantization.quantize import quantized
from golow.workload.quantization.replacing import as_quantized
from golow.workload.quantization.transposed_linear import as_linear

transformers = pytest.importorskip("transformers")

from transformers.pytorch_utils import Conv1D  # noqa: E402

LAYERS = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    sizes = {"n_embd": 64, "n_layer": 1, "n_head": 2, "vocab_size": 97, "n_positions": 32}
    made: torch.nn.Module = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    return made.eval()


def test_it_computes_what_the_layer_computes() -> None:
    torch.manual_seed(0)
    layer, x = Conv1D(6, 4), torch.randn(2, 3, 4)
    torch.nn.init.normal_(layer.bias)
    torch.testing.assert_close(as_linear(layer)(x), layer(x))
    other = torch.nn.Linear(4, 6)
    assert as_linear(other) is other


@pytest.mark.parametrize("rule", ["int8", "fp8", "int8-weights", "int4-weights"])
def test_a_gpt2_of_transformers_is_quantised_whole(rule: QuantizationRule, tmp_path: Path) -> None:
    original, ids = model(), torch.randint(97, (4, 16))
    made = quantized(original, rule, lambda: [(ids,)])
    assert [layer.path for layer in made.layers] == [
        *(f"transformer.h.0.{name}" for name in LAYERS), "lm_head",
    ]  # fmt: skip
    assert not made.kept
    again = as_quantized(model(), made.layers)
    again.load_state_dict(made.module.state_dict())
    with torch.no_grad():
        wide, narrow = original(ids).logits, made.module(ids).logits
        assert torch.equal(again(ids).logits, narrow)
        assert 0 < float((narrow - wide).norm() / wide.norm()) < 0.2


def test_a_layer_that_is_kept_stays_as_it_is() -> None:
    made = quantized(model(), "int8-weights", tuple, keep=["transformer.h.0.mlp"])
    kept = made.module.get_submodule("transformer.h.0.mlp.c_fc")
    assert isinstance(kept, Conv1D)
    paths = [layer.path for layer in made.kept]
    assert paths == [f"transformer.h.0.mlp.{name}" for name in ("c_fc", "c_proj")]
