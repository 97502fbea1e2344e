"""OpenVINO generates texts with a cache that is its own state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import golow
from golow.levels.generation.openvino import Stateful, stateful_model
from golow.levels.peers import openvino
from golow.records.errors import Unsupported
from golow.workload.generation.carried_caches import CarriedGpt2
from support.models.text_models import OwnStep, varied_gpt2

pytestmark = [
    pytest.mark.usefixtures("forked"),
    pytest.mark.skipif(not openvino.probe().available, reason="OpenVINO is not installed"),
]
SHORT = {"prompt": 6, "tokens": 8, "threads": 1, "seconds": 0.1, "quiet": True}


@pytest.mark.slow
def test_its_texts_are_proved_as_those_of_other_levels() -> None:
    result = golow.generate(varied_gpt2(), levels=["openvino"], batch=2, **SHORT)
    run = result.level("openvino")
    assert run.verdict == "match", run.reason
    assert run.token is not None


@pytest.mark.slow
def test_what_it_does_not_run_is_said_in_a_sentence() -> None:
    result = golow.generate(varied_gpt2(), levels=["openvino"], precision="bf16", **SHORT)
    assert "runs float32 here, not bf16" in result.level("openvino").reason
    result = golow.generate(OwnStep(), levels=["openvino"], batch=2, **SHORT)
    assert "has its own caches" in result.level("openvino").reason


def test_texts_of_different_lengths_are_refused() -> None:
    with torch.no_grad():
        generator = Stateful(CarriedGpt2(varied_gpt2().eval()), batch=2, threads=1)
    with pytest.raises(Unsupported, match="only texts of the same length"):
        generator.prefill_apart([torch.zeros(3, dtype=torch.long)] * 2)


def test_the_cache_is_within_its_attention() -> None:
    """Not a copy of all keys and values for each token: the runtime has recognised the pattern."""
    runtime = openvino.import_openvino()
    model = stateful_model(CarriedGpt2(varied_gpt2()), 1)
    compiled = runtime.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    kinds = [
        node.get_rt_info()["layerType"].astype(str)
        for node in compiled.get_runtime_model().get_ops()
    ]
    assert sum("ScaledDotProductAttention" in kind for kind in kinds) > 0
    assert not any("Concat" in kind for kind in kinds), kinds


def test_a_text_begins_with_an_empty_cache() -> None:
    model = varied_gpt2().eval()
    with torch.no_grad():
        generator = Stateful(CarriedGpt2(model), batch=2, threads=1)
        for seed in (0, 1):
            torch.manual_seed(seed)
            text = torch.randint(0, model.sizes.vocabulary, (2, 9))
            found = [generator.prefill(text[:, :6].contiguous()).clone()]
            found += [generator.step(text[:, k : k + 1].contiguous(), k).clone() for k in (6, 7, 8)]
            wanted = model(text)[:, 5:]
            error = (torch.stack(found, 1) - wanted).abs().max().item()
            assert error < 1e-4 * np.abs(wanted.numpy()).max()
