"""Models from transformers and timm by name: inputs from the configuration, and errors."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from golow.records.errors import GolowError
from golow.records.workload import Workload
from golow.workload.bundle import write_bundle
from golow.workload.graph_capture import capture
from golow.workload.hub.huggingface import _class
from golow.workload.prepare import Prepared, prepare
from golow.workload.request import Request
from huggingface_models import written

SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 64, "max_position_embeddings": 64}  # fmt: skip
CONFIGURATIONS = {
    "bert": {**SMALL, "architectures": ["BertForMaskedLM"]},
    "llama": {**SMALL, "num_key_value_heads": 2, "architectures": ["LlamaForCausalLM"]},
    "gpt2": {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "t5": {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4,
           "architectures": ["T5ForConditionalGeneration"]},
    "vit": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 32,
            "patch_size": 8, "intermediate_size": 64},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for each configuration."""
    pytest.importorskip("transformers")
    place = tmp_path_factory.mktemp("configurations")
    for name, values in CONFIGURATIONS.items():
        (place / f"{name}.json").write_text(json.dumps({"model_type": name, **values}))
    return place


def prepared(folder: Path, name: str, **more: object) -> Prepared:
    return prepare(
        Request(
            f"hf:{folder}/{name}.json",
            batch=2,
            pretrained=False,
            **{"sequence": None if name == "vit" else 16, **more},  # type: ignore[arg-type]
        )
    )


INPUTS = {
    "bert": ("input_ids", "attention_mask"),
    "llama": ("input_ids",),
    "gpt2": ("input_ids",),
    "t5": ("input_ids", "attention_mask", "decoder_input_ids"),
    "vit": ("pixel_values",),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inference_is_captured_with_inputs_from_the_configuration(folder: Path, name: str) -> None:
    found = prepared(folder, name)
    assert found.workload.source.keywords == INPUTS[name]
    assert found.workload.tokens == {"vit": 0, "t5": 64}.get(name, 32)
    assert capture(found).graph.nodes


@pytest.mark.parametrize("name", ["whisper", "swin", "convnext", "resnet"])
def test_further_models_are_captured(name: str, tmp_path: Path) -> None:
    """Those that the table of coverage has, too."""
    pytest.importorskip("transformers")
    found = prepare(Request(f"hf:{written(name, tmp_path)}", batch=2, pretrained=False))
    assert capture(found).graph.nodes


@pytest.mark.parametrize("name", INPUTS)
def test_training_is_captured_by_the_models_own_loss(folder: Path, name: str) -> None:
    found = prepared(folder, name, mode="train")
    assert found.workload.loss == "own_loss"
    assert found.workload.source.keywords[-1] == "labels"
    graph = capture(found).graph
    assert any(output.kind == "gradient" for output in graph.outputs)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_one_token_is_decoded_after_a_cache(folder: Path, name: str) -> None:
    found = prepared(folder, name, phase="decode")
    heads = 2 if name == "llama" else 4
    assert [t.shape for t in found.workload.inputs] == [(2, 1), *[(2, heads, 16, 8)] * 4]
    assert (found.workload.phase, found.workload.tokens) == ("decode", 2)
    joined = [node for node in capture(found).graph.nodes if node.op == "aten.cat.default"]
    if name == "gpt2":  # Llama's rotations join, too
        assert len(joined) == 4  # keys and values of each layer, to those of the new token
    # The cache counts: other keys and values give another token.
    ids, *kept = found.batches[0].inputs
    one = found.module(ids, *kept)
    other = found.module(ids, *(2 * tensor for tensor in kept))
    assert not torch.allclose(one, other)


def test_the_first_pass_computes_the_last_tokens_scores_alone(folder: Path) -> None:
    found = prepared(folder, "llama", phase="prefill")
    assert found.module(*found.batches[0].inputs).logits.shape == (2, 1, 99)


def test_phases_are_for_causal_models(folder: Path) -> None:
    with pytest.raises(GolowError, match="for causal language models"):
        prepared(folder, "bert", phase="decode")


def test_too_many_tokens_are_refused(folder: Path) -> None:
    with pytest.raises(GolowError, match="takes 1 to 64 tokens, not 65"):
        prepared(folder, "bert", sequence=65)


def test_a_model_without_a_limit_of_tokens_gets_the_usual_number(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    small = {"d_model": 32, "n_layer": 1, "n_head": 4, "d_inner": 64, "vocab_size": 99}
    written = {"model_type": "xlnet", "architectures": ["XLNetLMHeadModel"], **small}
    (tmp_path / "endless.json").write_text(json.dumps(written))
    [ids, *_] = prepared(tmp_path, "endless", sequence=None).batches[0].inputs
    assert isinstance(ids, torch.Tensor) and ids.shape == (2, 128)
    with pytest.raises(GolowError, match="takes 1 to any number tokens, not 0"):
        prepared(tmp_path, "endless", sequence=0)


SOUND = {
    "audio-spectrogram-transformer": {
        "architectures": ["ASTForAudioClassification"], "max_length": 24, "num_mel_bins": 16,
    },
    "wav2vec2-bert": {
        "architectures": ["Wav2Vec2BertForSequenceClassification"], "conv_depthwise_kernel_size": 5,
        "feature_projection_input_dim": 20, "classifier_proj_size": 8, "apply_spec_augment": False,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("audio-spectrogram-transformer", (2, 24, 16)), ("wav2vec2-bert", (2, 50, 20))],
)
def test_sound_comes_as_frames_where_a_model_reads_these(
    tmp_path: Path, kind: str, shape: tuple[int, ...]
) -> None:
    pytest.importorskip("transformers")
    written = {**SMALL, "num_hidden_layers": 1, "model_type": kind, **SOUND[kind]}
    (tmp_path / "sound.json").write_text(json.dumps(written))
    found = prepared(tmp_path, "sound", sequence=None, mode="train")
    frames, labels, *_ = found.batches[0].inputs
    assert isinstance(frames, torch.Tensor) and frames.shape == shape
    assert isinstance(labels, torch.Tensor) and labels.shape == (2,)


def test_several_tokens_may_end_a_text(folder: Path, tmp_path: Path) -> None:
    ends = {"model_type": "gpt2", **CONFIGURATIONS["gpt2"], "eos_token_id": [0, 1, 2]}
    (tmp_path / "ends.json").write_text(json.dumps(ends))
    ids = prepared(tmp_path, "ends").batches[0].inputs[0]
    assert isinstance(ids, torch.Tensor) and int(ids.min()) >= 3


def test_a_part_of_a_model_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "part.json").write_text(json.dumps({"model_type": "canine"}))
    with pytest.raises(GolowError, match="its configuration has no vocab_size"):
        prepared(tmp_path, "part")


def test_a_name_that_is_not_here_is_not_downloaded() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(GolowError, match="is not on this machine") as refused:
        prepare(Request("hf:nobody/nothing-of-this-name"))
    assert "--download" in refused.value.hint


def test_a_configuration_has_no_weights(folder: Path) -> None:
    with pytest.raises(GolowError, match="a configuration without weights"):
        prepare(Request(f"hf:{folder}/bert.json"))


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"model_type": "nothing-known"}'])
def test_what_is_no_configuration_is_refused(tmp_path: Path, text: str) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(GolowError, match=r"config\.json"):
        prepare(Request(f"hf:{tmp_path}/config.json", pretrained=False))


@pytest.mark.parametrize(("model", "package"), [("hf:gpt2", "transformers"), ("timm:x", "timm")])
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, model: str, package: str
) -> None:
    from golow.workload.hub import huggingface, timm_models

    for module in (huggingface, timm_models):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(GolowError, match=f"needs {package}, which is not installed") as refused:
        prepare(Request(model))
    assert f"golow[{package}]" in refused.value.hint


def test_a_package_that_cannot_be_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As timm beside a torchvision that was built for another torch."""
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "__init__.py").write_text("raise RuntimeError('no operator nms\\nmore')")
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(GolowError, match=r"cannot be imported: no operator nms\n") as refused:
        prepare(Request("timm:resnet18"))
    assert "torchvision" in refused.value.hint


class Lazy(dict[type, object]):
    """As transformers' tables, which import a model when it is asked for."""

    def __getitem__(self, kind: type) -> object:
        broken = RuntimeError("operator torchvision::nms does not exist\nmore")
        raise ModuleNotFoundError("Could not import module 'BertModel'") from broken


def test_a_model_that_cannot_be_imported_is_named_with_its_cause() -> None:
    """As BERT beside a torchvision that was built for another torch."""
    config = SimpleNamespace(architectures=None, model_type="bert")
    tables = SimpleNamespace(MODEL_MAPPING=Lazy({SimpleNamespace: None}))
    auto = SimpleNamespace(modeling_auto=tables)
    with pytest.raises(GolowError, match="for bert: RuntimeError: operator torchvision") as refused:
        _class(SimpleNamespace(models=SimpleNamespace(auto=auto)), config, "")
    assert "\nmore" not in str(refused.value)


def test_the_options_are_for_these_models() -> None:
    with pytest.raises(GolowError, match="are for hf: and timm:"):
        prepare(Request("lenet5", pretrained=True))


class Named(nn.Module):
    """Takes inputs by name, and returns a dict; holds what cannot be pickled once it has run."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.later: object = None

    def forward(self, *, right: Tensor, left: Tensor) -> dict[str, Tensor]:
        """[batch, 4], [batch, 4] -> [batch, 3]"""
        self.later = (item for item in "unpicklable")
        return {"difference": self.layer(left - right)}


def test_inputs_by_name_reach_a_worker(tmp_path: Path) -> None:
    from golow.levels.torch import bundle as torch_bundle

    left, right = torch.randn(2, 4), torch.randn(2, 4)
    module = Named()
    found = prepare(Request(module, {"left": left, "right": right}))
    bundle, found = write_bundle(found, tmp_path / "bundle")
    assert isinstance(bundle.workload, Workload)
    assert bundle.workload.source.keywords == ("left", "right")
    again = torch_bundle.module(bundle)
    torch.testing.assert_close(
        again(left, right)["difference"], module(left=left, right=right)["difference"]
    )
    assert list(again.state_dict()) == ["layer.weight", "layer.bias"]


def test_caches_are_switched_off_in_the_copy(folder: Path) -> None:
    import transformers

    values = {k: v for k, v in CONFIGURATIONS["gpt2"].items() if k != "architectures"}
    module = transformers.GPT2LMHeadModel(transformers.GPT2Config(**values)).eval()
    found = prepare(Request(module, {"input_ids": torch.randint(99, (2, 8))}))
    assert found.notes and "use_cache=False" in found.notes[0]
    assert module.config.use_cache is True
    assert capture(found).graph.nodes
