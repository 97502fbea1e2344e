"""Rules of quantisation as a precision: of `golow.compile`, and of generated texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

import golow
from golow.api.quantizing import quantized_module
from golow.models.gpt2 import Gpt2, Gpt2Sizes
from golow.records.quantization import OF_ACTIVATIONS, QuantizationRule, QuantizedNetwork
from golow.workload.generation.request import TextRequest
from golow.workload.generation.sources import prepare_text
from golow.workload.generation.text_bundle import write_text_bundles
from golow.workload.quantization.quantize import quantized
from golow.workload.quantization.quantized_layers import Quantized
from golow.workload.quantization.quantized_weights import write_quantized
from support.models.quantized_networks import samples_of

RULES: tuple[QuantizationRule, ...] = get_args(QuantizationRule)
OF_WEIGHTS = tuple(rule for rule in RULES if rule not in OF_ACTIVATIONS)


def rows() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)).eval()


@pytest.mark.parametrize("level", ["onednn", "eager"])
@pytest.mark.parametrize("rule", RULES)
def test_a_compiled_module_is_the_quantised_one(rule: QuantizationRule, level: str) -> None:
    module, x = rows(), torch.randn(3, 64)
    compiled = golow.compile(module, x, level=level, precision=rule, quiet=True)
    wanted = quantized(module, rule, samples_of(x)).module
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), wanted(x), rtol=1e-5, atol=1e-6)
        assert float((wanted(x) - module(x)).norm() / module(x).norm()) > 1e-4
    assert not any(isinstance(layer, Quantized) for layer in module.modules())


def test_what_has_no_ranges_is_refused() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)

    with pytest.raises(golow.GolowError, match="takes example inputs by position"):
        golow.compile(Named().eval(), {"x": torch.ones(1, 4)}, precision="int8", quiet=True)
    with pytest.raises(golow.GolowError, match="needs example inputs"):
        golow.compile(gpt2(), generation=golow.Generation(longest=8), precision="int8", quiet=True)


# ---------------------------------------------------------------- texts


def gpt2() -> Gpt2:
    torch.manual_seed(0)
    return Gpt2(Gpt2Sizes(vocabulary=50, positions=32, width=64, layers=1, heads=2)).eval()


@pytest.mark.parametrize("rule", ["int8", "int4-weights"])
def test_rules_learn_from_texts(rule: QuantizationRule) -> None:
    module, ids = gpt2(), torch.randint(50, (6, 9), generator=torch.Generator().manual_seed(1))
    wanted = quantized(module, rule, lambda: [(text[None],) for text in ids]).module
    for given in (ids, list(ids)):
        found, precision = quantized_module(module, given, rule, of_text=True)
        assert precision == "default"
        state = wanted.state_dict()
        assert all(torch.equal(state[name], item) for name, item in found.state_dict().items())


@pytest.mark.parametrize(
    ("module", "given", "said"),
    [
        (gpt2, torch.ones(2, 3), "the tokens are float32"),
        (gpt2, 5, "the texts are int"),
        (rows, torch.ones(2, 3).long(), "it is not a causal model"),
    ],
)
def test_samples_that_are_no_texts_are_refused(module: Any, given: Any, said: str) -> None:
    with pytest.raises(golow.GolowError, match=said):
        golow.compile(
            module(), given, generation=golow.Generation(longest=8), precision="int4-weights",
            quiet=True,
        )  # fmt: skip


@pytest.mark.slow
def test_a_generator_writes_the_quantised_networks_text() -> None:
    module, samples = gpt2(), torch.arange(12).reshape(2, 6)
    made = quantized(module, "int4-weights", lambda: [(row[None],) for row in samples]).module
    made_text, text = (
        golow.compile(
            item, given, generation=golow.Generation(longest=16), level="onednn", quiet=True,
            precision=precision,
        ).generate(torch.tensor([[1, 2, 3]]), 8)
        for item, given, precision in (
            (made, None, "default"),
            (module, samples, "int4-weights"),
        )
    )  # fmt: skip
    assert torch.equal(torch.as_tensor(made_text), torch.as_tensor(text))


@pytest.mark.parametrize("rule", OF_WEIGHTS)
def test_workers_get_the_quantised_network(rule: QuantizationRule, tmp_path: Path) -> None:
    asked = TextRequest(gpt2(), prompt=4, tokens=4, precision=rule)
    wide = prepare_text(TextRequest(gpt2(), prompt=4, tokens=4))
    prepared = prepare_text(asked)
    [work] = prepared.workloads
    assert [layer.rule for layer in work.source.quantized] == [rule] * 5
    assert work.parameters == wide.workloads[0].parameters + 50 * 64  # the head has its own now
    assert work.weight_bytes < wide.workloads[0].weight_bytes / (5 if rule == "int4-weights" else 3)
    [bundle] = write_text_bundles(prepared, tmp_path)
    module = bundle.module()
    state = prepared.module.state_dict()
    assert all(torch.equal(state[name], item) for name, item in module.state_dict().items())
    tokens = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        assert torch.equal(module(tokens), prepared.module(tokens))


def test_a_quantised_network_stays_in_float32(tmp_path: Path) -> None:
    file, made = tmp_path / "q.safetensors", quantized(gpt2(), "int8-weights", samples_of())
    network = QuantizedNetwork(
        model="Gpt2", rule="int8-weights", calibration=None, layers=made.layers
    )
    write_quantized(made.module, network, file)
    asked = TextRequest(gpt2(), weights=file, prompt=4, tokens=4)
    prepared = prepare_text(asked)
    assert prepared.workloads[0].source.quantized == made.layers
    tokens = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        assert torch.equal(prepared.module(tokens), made.module(tokens))
    with pytest.raises(golow.GolowError, match="computes in float32, not in bf16"):
        prepare_text(replace(asked, precision="bf16"))
