"""The verdict of every level that runs here for nine transformers models, small and with random
weights; nothing is downloaded.

    pip install 'golow[transformers,onednn,onnxruntime,openvino,jax]'
    python benchmarks/huggingface_models.py [--models bert,gpt2] [--levels ...] [--mode train]

Prints a row for each model and ends with status 1 if a level differs or failed. The race is cut to
a moment: this is about correctness.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import golow
from every_model import text
from golow.levels.ladder import default

TEXT = {
    "vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "max_position_embeddings": 64,
}  # fmt: skip
CONFIGURATIONS = {
    "bert": {**TEXT, "architectures": ["BertForMaskedLM"]},
    "gpt2": {"vocab_size": 99, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64,
             "architectures": ["GPT2LMHeadModel"]},
    "vit": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 128, "image_size": 32, "patch_size": 8,
            "architectures": ["ViTForImageClassification"]},
    "t5": {"vocab_size": 99, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2,
           "num_heads": 4, "architectures": ["T5ForConditionalGeneration"]},
    "llama": {**TEXT, "num_key_value_heads": 2, "architectures": ["LlamaForCausalLM"]},
    "whisper": {"vocab_size": 99, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2,
                "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "num_mel_bins": 16,
                "max_source_positions": 32, "max_target_positions": 32, "pad_token_id": 0,
                "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
    "swin": {"image_size": 32, "patch_size": 4, "embed_dim": 24, "depths": [2, 2],
             "num_heads": [2, 4], "window_size": 4,
             "architectures": ["SwinForImageClassification"]},
    "convnext": {"hidden_sizes": [16, 32], "depths": [2, 2], "num_stages": 2, "image_size": 32,
                 "architectures": ["ConvNextForImageClassification"]},
    "resnet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [2, 2],
               "architectures": ["ResNetForImageClassification"]},
}  # fmt: skip
WORDS = ("bert", "gpt2", "t5", "llama")


def main() -> int:
    """Compare each model; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(CONFIGURATIONS))
    parser.add_argument("--mode", default="infer", choices=("infer", "train"))
    parser.add_argument("--levels")
    given = parser.parse_args()
    levels = given.levels.split(",") if given.levels else default(given.mode, "cpu")
    good = True
    with TemporaryDirectory() as folder:
        for name in given.models.split(","):
            result = golow.compare(
                f"hf:{written(name, Path(folder))}", pretrained=False, batch=2, mode=given.mode,
                sequence=16 if name in WORDS else None, levels=levels, threads=1, time_limit=0.3,
                quiet=True,
            )  # fmt: skip
            runs = result.comparison.runs
            print(name, given.mode, *(f"{r.level}: {text(r)}" for r in runs), sep="  ", flush=True)
            good &= all(r.check.verdict in ("match", "unavailable") for r in runs)
    return 0 if good else 1


def written(name: str, folder: Path) -> Path:
    """The configuration as a file of transformers."""
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"model_type": name, **CONFIGURATIONS[name]}))
    return file


if __name__ == "__main__":
    sys.exit(main())
