"""The digest of a model from transformers, by which its lowered graphs are kept: the package is
known by its version, and what others have changed in it is seen."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from golow.levels.called.module_digest import module_digest
from golow.workload.generation.step_modules import step_of

transformers = pytest.importorskip("transformers")


def step(**changes: object) -> nn.Module:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 9}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16}
    configuration = transformers.LlamaConfig(**(sizes | heads | changes))
    return step_of(transformers.LlamaForCausalLM(configuration).eval(), 1, 8)


def test_a_step_is_known_by_its_settings_and_by_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = module_digest(step())
    assert digest is not None
    another = step()
    another.model.generation_config._original_object_hash = 1  # it differs between processes
    assert module_digest(another) == digest
    assert module_digest(step(rms_norm_eps=0.1)) != digest
    patched = type(step().model.model.layers[0].mlp)

    def forward(self: nn.Module, hidden: Tensor) -> Tensor:
        return hidden

    monkeypatch.setattr(patched, "forward", forward)
    assert module_digest(step()) != digest
