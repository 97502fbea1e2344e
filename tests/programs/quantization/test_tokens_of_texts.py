"""Models whose tokens are not bytes, with texts that golow or the user gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import golow
from golow.workload.generation.request import TextRequest
from golow.workload.generation.sources import prepare_text
from support.models.text_models import DECODER

transformers = pytest.importorskip("transformers")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Llama of 97 tokens, beside a tokenizer of 100 words."""
    tokenizers: Any = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({f"w{number}": number for number in range(100)}, "w0")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    transformers.LlamaConfig(
        **DECODER | {"hidden_size": 64}, architectures=["LlamaForCausalLM"]
    ).save_pretrained(tmp_path)
    return tmp_path


def request(folder: Path, **given: Any) -> TextRequest:
    return TextRequest(f"hf:{folder}", pretrained=False, tokens=4, **given)


def test_bytes_are_no_tokens_of_a_model_with_a_tokenizer(folder: Path) -> None:
    with pytest.raises(golow.GolowError, match="a token of text is a byte, and hf:") as raised:
        golow.quantize(
            f"hf:{folder}", calibrate="text", out=folder / "q.safetensors", pretrained=False,
            quiet=True,
        )  # fmt: skip
    assert "--calibrate FILE.txt" in str(raised.value)


def test_a_token_that_the_model_lacks_is_refused(folder: Path) -> None:
    assert prepare_text(request(folder, text="w1 w96")).prompts == ((1, 96),)
    with pytest.raises(golow.GolowError, match="makes the token 98 of this text"):
        prepare_text(request(folder, text="w1 w98"))


def test_samples_are_tokens_of_its_tokenizer(folder: Path) -> None:
    file = folder / "words.txt"
    file.write_text("w1 w2 w3 w4 " * 50)
    asked = request(folder, prompt=4, precision="int4-weights", calibrate=file)
    [work] = prepare_text(asked).workloads
    assert work.calibration is not None
    assert (work.calibration.samples, work.calibration.data) == (3, "words.txt, 64 tokens each")
    file.write_text("w1 w99")
    with pytest.raises(golow.GolowError, match="makes the token 99"):
        prepare_text(asked)
