"""Quantise a network, write it to a file, and compare it with the original."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
from torch import nn

from golow.observer import Observer
from golow.programs.quantization.other_quantizers import OTHERS, OtherQuantizer
from golow.programs.quantization.outputs import outputs_of
from golow.programs.quantization.quantization_record import (
    OtherQuantization,
    Quantization,
)
from golow.programs.quantization.samples import INPUTS, Samples, of_data, of_inputs
from golow.programs.quantization.sensitivity import ranking
from golow.programs.quantization.statements import stated
from golow.records.errors import GolowError, Unsupported
from golow.records.quantization import (
    OF_ACTIVATIONS,
    Calibration,
    CalibrationMethod,
    QuantizationRule,
    QuantizedNetwork,
)
from golow.storage.cache import open_cache
from golow.storage.files import CACHE_HINT, writing
from golow.storage.names import LONGEST_PART, file_name
from golow.storage.scratch import scratch_folder
from golow.workload.prepare import Prepared, prepare
from golow.workload.quantization.quantize import GROUP, GROUPS, quantized
from golow.workload.quantization.quantized_weights import (
    require_weights_place,
    rules_in,
    write_quantized,
)
from golow.workload.request import Request

GATE = 0.99
SAMPLES = 512


@dataclass(frozen=True, kw_only=True)
class QuantizationSettings:
    """How to quantise. calibrate: a data set, or ``inputs``. share: of an activation's values that
    its range must cover. samples: number of calibration samples. test_samples: number of test
    samples; all by default. gate: the share of the accuracy that must be kept. group: inputs that
    share a scale with ``int4-weights``. keep: layers, or modules with all their layers, that stay
    in float32. in_8_bits: likewise, those that ``int4-weights`` leaves to ``int8-weights``. rank:
    whether to rank the layers by their loss. rivals: whether to run other tools'
    quantisers too."""

    calibrate: str
    rule: QuantizationRule = "int8"
    group: int = GROUP
    keep: Sequence[str] = ()
    in_8_bits: Sequence[str] = ()
    share: float = 1.0
    samples: int = SAMPLES
    test_samples: int | None = None
    gate: float = GATE
    rank: bool = False
    rivals: bool = False
    data_root: Path | None = None
    cache: Path | None = None


class Quantized(NamedTuple):
    """The record, and the request of the quantised network, whose weights are in the file."""

    record: Quantization
    request: Request


def quantize(
    request: Request, settings: QuantizationSettings, file: Path, observer: Observer
) -> Quantized:
    """Quantise the network and write it to the file. Raises `GolowError` for errors that the caller
    can fix."""
    _require_sense(request, settings)
    require_weights_place(file)
    observer.stage("preparing the workload")
    request, prepared, samples = _prepared(request, settings, observer)
    original = prepared.module.eval()
    observer.stage(f"calibrating with {samples.calibrating:,} samples")
    made = quantized(
        original,
        settings.rule,
        lambda: (batch.inputs for batch in samples.calibration),
        settings.share,
        settings.keep,
        settings.group,
        settings.in_8_bits,
    )
    network = QuantizedNetwork(
        model=prepared.workload.model,
        rule=settings.rule,
        calibration=_calibration(settings, samples),
        layers=made.layers,
        kept=made.kept,
    )
    write_quantized(made.module, network, file)
    observer.stage("comparing the quantised network with the original")
    movement, accuracy = stated(
        outputs_of(original), outputs_of(made.module.eval()), samples, settings.gate
    )
    ranked = None
    if settings.rank:
        ranked = ranking(original, made, samples, settings.gate, observer)
    quantizers = OTHERS if settings.rivals else ()
    others = tuple(_other(one, prepared, samples, settings, observer) for one in quantizers)
    created = datetime.now(UTC)
    record = Quantization(
        id=f"{created:%Y%m%d-%H%M%S}-{file_name(network.model, LONGEST_PART)}-{settings.rule}",
        created=created.isoformat(timespec="seconds"),
        workload=prepared.workload,
        network=network,
        movement=movement,
        accuracy=accuracy,
        original_bytes=_bytes(original),
        quantized_bytes=_bytes(made.module),
        ranking=ranked,
        others=others,
        file=str(file),
    )
    return Quantized(record, replace(request, weights=file, initialisation=None))


def quantize_for_comparison(
    request: Request, settings: QuantizationSettings, observer: Observer
) -> Quantized:
    """Quantise the network into the cache, where the file's name is a digest of its content."""
    folder = open_cache(settings.cache) / "quantized"
    with writing(f"the cache {folder}", CACHE_HINT):
        folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".{os.getpid()}.safetensors"
    try:
        made = quantize(request, settings, new, observer)
        with new.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()[:16]
        file = new.replace(folder / f"{digest}.safetensors")
    finally:
        new.unlink(missing_ok=True)
    record = msgspec.structs.replace(made.record, file=str(file))
    return Quantized(record, replace(made.request, weights=file))


def _other(
    quantizer: OtherQuantizer,
    prepared: Prepared,
    samples: Samples,
    settings: QuantizationSettings,
    observer: Observer,
) -> OtherQuantization:
    name = quantizer.name
    observer.stage(f"quantising by {name}")
    try:
        with scratch_folder() as folder:
            moved = quantizer.make(prepared, samples, folder)
            found = stated(outputs_of(prepared.module), moved, samples, settings.gate)
    except Unsupported as error:
        return OtherQuantization(name=name, reason=error.reason)
    return OtherQuantization(name=name, movement=found[0], accuracy=found[1])


def _prepared(
    request: Request, settings: QuantizationSettings, observer: Observer
) -> tuple[Request, Prepared, Samples]:
    if settings.calibrate == INPUTS:
        prepared = prepare(request)
        return request, prepared, of_inputs(prepared)
    request, samples = of_data(
        request,
        settings.calibrate,
        settings.samples,
        settings.test_samples,
        settings.data_root,
        open_cache(settings.cache),
        observer,
    )
    return request, prepare(request), samples


def _calibration(settings: QuantizationSettings, samples: Samples) -> Calibration | None:
    if settings.rule == "int8-weights":
        return None
    return Calibration(
        method=_method(settings),
        data=samples.data,
        samples=samples.calibrating,
        share=settings.share,
    )


def _method(settings: QuantizationSettings) -> CalibrationMethod:
    if settings.rule not in OF_ACTIVATIONS:
        return "compensation"
    return "min-max" if settings.share == 1 else "percentile"


def _bytes(module: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in module.state_dict().values())


def _require_sense(request: Request, settings: QuantizationSettings) -> None:
    if request.mode != "infer":
        raise GolowError(
            "a quantised network cannot be trained",
            "leave out --mode train.",
            python_hint='leave out mode="train".',
        )
    if request.device != "cpu":
        raise GolowError(
            "golow quantises on the CPU",
            "quantise first, with golow quantize; then compare the file on the GPU.",
            python_hint="leave out device=; compare the file on the GPU.",
        )
    if request.weights is not None and rules_in(Path(request.weights)):
        raise GolowError(
            f"{request.weights} is a quantised network already",
            "give the weights it was made from.",
        )
    if settings.group not in GROUPS:
        raise GolowError(
            f"--group {settings.group} is not a group size",
            f"use one of {', '.join(map(str, GROUPS))}.",
        )
    if settings.in_8_bits and settings.rule != "int4-weights":
        raise GolowError(
            f"--in-8-bits does not apply to --rule {settings.rule}, which has 8 bits everywhere",
            "use --rule int4-weights, or --keep for layers in float32.",
            python_hint='use rule="int4-weights", or keep= for layers in float32.',
        )
    if not 0.5 <= settings.share <= 1:
        raise GolowError(
            f"a percentile of {settings.share:.4%} is not between 50% and 100%",
            "for example --clipping-percentile 99.99.",
        )
    if not 0 < settings.gate <= 1:
        raise GolowError(f"the gate {settings.gate} is not a share", "for example --gate 0.99.")
    for name, value in (("samples", settings.samples), ("test-samples", settings.test_samples)):
        if value is not None and value < 1:
            raise GolowError(f"--{name} {value} has no samples", f"use --{name} 1 or more.")
