"""The request for texts of a model. Importing this imports no torch."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING

from golow.records.errors import GolowError
from golow.records.quantization import COMPENSATED
from golow.records.text import Sampling, TextPrecision
from golow.records.workload import Device
from golow.workload.request import require_seed

if TYPE_CHECKING:
    from torch import nn

PROMPT, TOKENS = 64, 64
PRECISIONS: dict[Device, tuple[TextPrecision, ...]] = {
    "cpu": ("default", "bf16", "int8-weights", "int4-weights", "fp8-weights"),
    "cuda": ("default", "tf32", "bf16", "fp16"),
}


@dataclass(frozen=True)
class TextRequest:
    """A model and its texts, as its user describes them.

    model: ``gpt2_small``, ``hf:NAME``, the folder of a training run, ``file.py:Name`` or
    ``package.module:name`` of a step module, or a module. batch: sizes, each measured apart.
    prompt, tokens: of a text, those that are given and those that are generated. text: what the
    texts begin with, instead of drawn tokens; several are one batch. weights: a .safetensors file.
    calibrate: a file, or ``text`` for golow's own, from which the rounding of weights learns.
    pretrained, download: for ``hf:``, as in a comparison. device: of every level. threads: for
    every level.
    """

    model: str | nn.Module
    _: KW_ONLY
    batch: tuple[int, ...] = (1,)
    prompt: int | None = None
    tokens: int = TOKENS
    text: str | tuple[str, ...] | None = None
    precision: TextPrecision = "default"
    device: Device = "cpu"
    sampling: Sampling = field(default_factory=Sampling)
    calibrate: str | Path | None = None
    weights: str | Path | None = None
    classes: int | None = None
    seed: int = 0
    threads: int = 1
    pretrained: bool | None = None
    download: bool = False


def require_sense(request: TextRequest) -> None:
    """Raise `GolowError` for a request that no model can run."""
    _require_types(request)
    if not request.batch or any(size < 1 for size in request.batch):
        raise GolowError("a batch has at least one text", "for example --batch 1,8.")
    if len(set(request.batch)) < len(request.batch):
        raise GolowError("a batch size is given twice", "for example --batch 1,8.")
    if request.prompt is not None and request.prompt < 1:
        raise GolowError(f"a prompt of {request.prompt} tokens is empty", "use --prompt 1 or more.")
    if request.text is not None and request.prompt is not None:
        raise GolowError("--text has its own number of tokens", "leave out --prompt or --text.")
    if isinstance(request.text, tuple):
        _require_batch_of(request.text, request)
    if request.tokens < 2:
        raise GolowError(
            f"--tokens {request.tokens} leaves no step to time", "use --tokens 2 or more."
        )
    if request.device not in PRECISIONS:
        raise GolowError(f"there is no device {request.device!r}", "devices are cpu and cuda.")
    known = PRECISIONS[request.device]
    if request.precision not in known:
        on = "a CPU" if request.device == "cpu" else "a GPU"
        raise GolowError(
            f"precision {request.precision!r} is not available for texts on {on}",
            f"use --precision {', '.join(known)}; default is float32.",
        )
    _require_learning(request)
    require_seed(request.seed)
    require_sampling(request.sampling)


def _require_learning(request: TextRequest) -> None:
    """Raise `GolowError` for calibration samples from which the precision learns nothing."""
    if request.calibrate is not None and request.precision not in COMPENSATED:
        raise GolowError(
            f"--calibrate does not apply to --precision {request.precision}, which learns nothing "
            "from samples",
            "leave it out, or use --precision int4-weights.",
            python_hint='leave it out, or use precision="int4-weights".',
        )


def _require_types(request: TextRequest) -> None:
    prompt = () if request.prompt is None else (request.prompt,)
    whole = {
        "batch size": request.batch, "number of tokens": (*prompt, request.tokens),
        "number of threads": (request.threads,), "seed": (request.seed,),
    }  # fmt: skip
    for name, values in whole.items():
        for value in values:
            if type(value) is not int:
                raise GolowError(f"the {name} {value!r} is not a whole number", "for example 8.")
    texts = request.text if isinstance(request.text, tuple) else (request.text,)
    for text in texts:
        if text is not None:
            _require_text(text)


def _require_text(text: object) -> None:
    if not isinstance(text, str):
        raise GolowError(f"the text is {type(text).__name__}", 'for example --text "The ".')
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise GolowError(
            f"the text has bytes that are not UTF-8, from character {error.start} on",
            "give --text in UTF-8.",
        ) from None


def _require_batch_of(texts: tuple[str, ...], request: TextRequest) -> None:
    if request.batch not in ((1,), (len(texts),)):
        raise GolowError(
            f"{len(texts)} texts are a batch of {len(texts)}", "leave out --batch, or --text."
        )


def require_sampling(sampling: Sampling) -> None:
    """Raise `GolowError` for invalid settings."""
    for name, kind in (
        ("temperature", Real),
        ("top_k", Integral),
        ("top_p", Real),
        ("seed", Integral),
    ):
        if not isinstance(value := getattr(sampling, name), kind):
            raise GolowError(f"{name}={value!r} is not a number", "for example temperature=0.8.")
    require_seed(sampling.seed)
    if not 0 <= sampling.temperature < float("inf"):
        raise GolowError(
            f"--temperature {sampling.temperature:g} is not a temperature",
            "use 0 for the likeliest token, or a number above it.",
        )
    if sampling.top_k < 0 or not 0 < sampling.top_p <= 1:
        raise GolowError(
            f"--top-k {sampling.top_k} and --top-p {sampling.top_p:g} leave no token",
            "--top-k is 0 (all) or more; --top-p is above 0 and at most 1.",
        )
    if sampling.is_greedy and (sampling.top_k or sampling.top_p < 1):
        raise GolowError(
            "--top-k and --top-p need a --temperature above 0",
            "without it the likeliest token is taken.",
        )
