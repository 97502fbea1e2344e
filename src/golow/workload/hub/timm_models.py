"""Models of timm: ``timm:NAME``. Nothing is downloaded unless the user asks for it, and weights are
read from safetensors alone."""

from __future__ import annotations

import difflib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from golow.records.errors import GolowError
from golow.records.workload import ModelSource
from golow.workload.hub import downloads

PREFIX = "timm:"
WEIGHTS = "model.safetensors"


def locate_timm(model: str, *, pretrained: bool | None, download: bool) -> ModelSource:
    """The source of a model of timm; raises `GolowError` if the package or the name is missing."""
    timm, name = _timm(model), model.removeprefix(PREFIX)
    if not timm.is_model(name):
        near = difflib.get_close_matches(name.partition(".")[0], timm.list_models(), 3)
        raise GolowError(
            f"timm {timm.__version__} has no model {name!r}",
            f"did you mean {' or '.join(near)}?" if near else "timm.list_models() has the names.",
        )
    if pretrained:
        weights_file(name, download)
    return ModelSource(kind="timm", name=name, pretrained=bool(pretrained))


def sample_shape(source: ModelSource) -> tuple[int, ...]:
    """Channels, height and width of the images that the model was made for."""
    config = _timm(source.name).models.get_pretrained_cfg(source.name)
    size = config.input_size if config is not None else (3, 224, 224)
    return tuple(size)


def build_timm(source: ModelSource) -> nn.Module:
    """The module with random weights."""
    try:
        module: nn.Module = _timm(source.name).create_model(source.name, pretrained=False)
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise GolowError(f"timm cannot build {source.name}: {first}") from error
    return module


def weights_file(name: str, download: bool = False) -> Path:
    """The publisher's weights of the model, a .safetensors file of the cache."""
    config = _timm(name).models.get_pretrained_cfg(name)
    hub_name = config.hf_hub_id if config is not None else None
    if not hub_name:
        raise GolowError(
            f"{name} of timm has no weights on Hugging Face", "leave out --pretrained."
        )
    if download:
        downloads.download(hub_name, (WEIGHTS,))
    file = downloads.cached(hub_name, WEIGHTS)
    if file is not None:
        return file
    if download:
        raise GolowError(f"{hub_name} has no {WEIGHTS}", "leave out --pretrained.")
    raise GolowError(
        f"the weights of {name} are not on this machine",
        "add --download to download them, or leave out --pretrained.",
    )


def _timm(model: str) -> Any:
    for package in ("timm", "torchvision"):  # timm imports torchvision
        if find_spec(package) is None:
            raise GolowError(
                f"{model} needs {package}, which is not installed", "pip install 'golow[timm]'"
            )
    try:
        import timm
    except Exception as error:  # torchvision built for another torch raises RuntimeError
        first = str(error).strip().partition("\n")[0]
        raise GolowError(
            f"{model} needs timm, which cannot be imported: {first}",
            "install the torchvision that was built for this torch.",
        ) from error

    return timm
