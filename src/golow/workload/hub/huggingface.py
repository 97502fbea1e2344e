"""Models of Hugging Face's transformers: ``hf:NAME``, ``hf:FOLDER``, ``hf:FILE.json``, each also
with ``:CLASS`` behind it.

Nothing is downloaded unless the user asks for it, and only JSON and safetensors are read. The
configuration travels in the workload's source, so that a worker needs no cache and no network.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from golow.records.errors import GolowError
from golow.records.workload import Mode, ModelSource
from golow.storage.files import read_text
from golow.workload.hub import downloads

PREFIX = "hf:"
TOKENIZER = "tokenizer.json"
TOKENIZERS = (TOKENIZER, "tokenizer_config.json")
# The first table that has the configuration's type gives the class, if the user names none.
TASKS = (
    "SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "CAUSAL_LM", "SEMANTIC_SEGMENTATION",
    "IMAGE_CLASSIFICATION",
)  # fmt: skip

READ_AS_FILES = ("gptq", "awq", "fp8")
"""Layouts of quantised checkpoints that ``--weights`` takes."""


def locate_huggingface(
    model: str, *, pretrained: bool | None, download: bool, mode: Mode = "infer"
) -> ModelSource:
    """The source of a model from transformers; raises `GolowError` if the package, the
    configuration or the class is missing."""
    transformers = _transformers(model)
    name, attribute = _parts(model.removeprefix(PREFIX))
    wanted = True if pretrained is None else pretrained
    if wanted and name.endswith(".json"):
        raise GolowError(f"{name} is a configuration without weights", "add --random-weights.")
    if download and not _is_own(name):
        downloads.download(name, ("config.json", *(downloads.WEIGHTS if wanted else ())))
    config = _configuration(transformers, name, wanted)
    kind = _class(transformers, config, attribute)
    config.use_cache = False
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        # Generation's settings have it; the loss needs it to shift the labels.
        config.decoder_start_token_id = getattr(config, "pad_token_id", None) or 0
    settings = {"return_loss": 1} if mode == "train" and kind.__name__ == "CLIPModel" else {}
    return ModelSource(
        kind="huggingface",
        name=name,
        attribute=kind.__name__,
        configuration=json.dumps(config.to_dict(), default=str, sort_keys=True),
        pretrained=wanted,
        settings=settings,
    )


def configuration_of(source: ModelSource) -> Any:
    """The configuration that the source carries, as transformers' object."""
    values = json.loads(source.configuration)
    return _transformers(source.name).AutoConfig.for_model(values.pop("model_type"), **values)


def class_of(source: ModelSource) -> type[nn.Module]:
    """The class of transformers that the source names."""
    found: type[nn.Module] = getattr(_transformers(source.name), source.attribute)
    return found


def build_huggingface(source: ModelSource) -> nn.Module:
    """The module with random weights, in float32."""
    config = configuration_of(source)
    config.dtype = torch.float32
    with _explained(f"{source.attribute} cannot be built from the configuration of {source.name}"):
        return class_of(source)(config)


def load_huggingface(source: ModelSource) -> nn.Module:
    """The module with its publisher's weights, from this machine's cache or a folder."""
    _require_plain_weights(source)
    kind: Any = class_of(source)
    config = _configuration_file(source.name)
    hint = (
        "add --download to download them, or --random-weights; golow reads weights only from "
        "safetensors files."
    )
    with _explained(f"the weights of {source.name} are not on this machine", hint):
        if config is None:
            raise FileNotFoundError("nor is its configuration")
        # A folder: of a name, transformers asks the hub even if told to look at local files only.
        module: nn.Module = kind.from_pretrained(
            config.parent,
            config=configuration_of(source),
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
        )
    return module


def _require_plain_weights(source: ModelSource) -> None:
    """Raise `GolowError` for a checkpoint that golow reads itself, where transformers would want
    the quantiser's package and a GPU."""
    stated = json.loads(source.configuration).get("quantization_config") or {}
    if (method := stated.get("quant_method")) in READ_AS_FILES:
        raise GolowError(
            f"the weights of {source.name} are quantised ({method})",
            "pass their file, which golow reads with its scales: --random-weights --weights "
            "FOLDER/model.safetensors.",
        )


def has_tokenizer(source: ModelSource) -> bool:
    """True if the tokenizer of the model is on this machine."""
    return (_folder_of_tokenizer(source.name) / TOKENIZER).is_file()


def load_tokenizer(source: ModelSource) -> Any:
    """The tokenizer of the model, from this machine's cache or a folder."""
    folder = _folder_of_tokenizer(source.name)
    with _explained(f"the tokenizer of {source.name} cannot be read", "add --download."):
        return _transformers(source.name).AutoTokenizer.from_pretrained(
            folder, local_files_only=True
        )


def _folder_of_tokenizer(name: str) -> Path:
    if not _is_own(name):
        return (downloads.cached(name, TOKENIZER) or Path(TOKENIZER)).parent
    return Path(name).parent if name.endswith(".json") else Path(name)


def _transformers(model: str) -> Any:
    if find_spec("transformers") is None:
        raise GolowError(
            f"{model} needs transformers, which is not installed",
            "pip install 'golow[transformers]'",
        )
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _parts(text: str) -> tuple[str, str]:
    name, _, attribute = text.partition(":")
    if not name:
        raise GolowError(
            "hf: names no model", "for example hf:bert-base-uncased or hf:./config.json."
        )
    return name, attribute


def _is_own(name: str) -> bool:
    """True if it is a file or folder of the user, not a name of the hub."""
    return name.endswith(".json") or name.startswith((".", "/")) or Path(name).is_dir()


def _configuration_file(name: str) -> Path | None:
    """Configuration file of the user, or of the hub's model in the cache; None if there is none."""
    if _is_own(name):
        return Path(name) if name.endswith(".json") else Path(name) / "config.json"
    with _explained(f"{name} is not a model name", "write hf:NAME or hf:OWNER/NAME."):
        return downloads.cached(name, "config.json")


def _configuration(transformers: Any, name: str, pretrained: bool) -> Any:
    """From a file, a folder or the cache; with random weights also a type's own defaults."""
    file = _configuration_file(name)
    if file is not None:
        return _read(transformers, file)
    types = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    if name in types and not pretrained:
        return transformers.AutoConfig.for_model(name)
    raise GolowError(
        f"the configuration of {name} is not on this machine",
        "add --download to download it, or give one that is here: hf:./config.json with "
        "--random-weights"
        + (", or --random-weights alone for the type's defaults." if name in types else "."),
    )


def _read(transformers: Any, file: Path) -> Any:
    try:
        values = json.loads(read_text(file))
        kind = values.pop("model_type")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise GolowError(
            f"{file} is not a configuration of transformers: not JSON, or no 'model_type' key",
            "write it with config.save_pretrained(FOLDER).",
        ) from error
    try:
        return transformers.AutoConfig.for_model(kind, **values)
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise GolowError(f"transformers refuses {file}: {first}") from error


def _class(transformers: Any, config: Any, attribute: str) -> type[nn.Module]:
    names = [attribute] if attribute else list(config.architectures or ())
    for name in names[:1]:
        with _explained(f"transformers cannot import {name}"):
            found = getattr(transformers, name, None)
        if isinstance(found, type) and issubclass(found, nn.Module):
            return found
        raise GolowError(
            f"transformers {transformers.__version__} has no model class {name}",
            "name one after the model: hf:NAME:CLASS.",
        )
    tables = transformers.models.auto.modeling_auto
    for task in (*(f"MODEL_FOR_{task}_MAPPING" for task in TASKS), "MODEL_MAPPING"):
        table = getattr(tables, task, {})
        if type(config) in table:
            with _explained(f"transformers cannot import its model for {config.model_type}"):
                chosen = table[type(config)]
            first: type[nn.Module] = chosen[0] if isinstance(chosen, tuple) else chosen
            return first
    raise GolowError(
        f"transformers has no model for the type {config.model_type}",
        "name a class after the model: hf:NAME:CLASS.",
    )


@contextmanager
def _explained(what: str, hint: str = "") -> Iterator[None]:
    """An error of transformers as a `GolowError` with the first line of its first cause."""
    try:
        yield
    except (GolowError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__:  # a lazy import hides what is missing behind "Could not import"
            cause = cause.__cause__
        first = str(cause).strip().partition("\n")[0]
        raise GolowError(f"{what}: {type(cause).__name__}: {first}", hint) from error
