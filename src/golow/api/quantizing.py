"""Quantisation for Python users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack, cast, get_args

from golow.api.line import about, line
from golow.api.options import with_options
from golow.api.progress import shown_progress
from golow.observer import Observer
from golow.records.errors import GolowError
from golow.records.quantization import OF_ACTIVATIONS, QuantizationRule
from golow.records.workload import Precision
from golow.storage.scratch import scratch_folder
from golow.worker.cores import default_threads
from golow.workload.request import Request, WorkloadOptions

if TYPE_CHECKING:
    from torch import nn

    from golow.programs.quantization.quantization_record import Quantization
    from golow.workload.request import Inputs

RULES: tuple[str, ...] = get_args(QuantizationRule)


class QuantizationResult(NamedTuple):
    """Result of `quantize`: the record, with methods to print and save it. request: of the
    quantised network; None for a loaded record."""

    quantization: Quantization
    request: Request | None = None

    def table(self) -> None:
        """Print the quantised layers and the three statements."""
        from golow.report.quantization.table import render

        render(self.quantization)

    def __repr__(self) -> str:
        record = self.quantization
        return line(self, about(record.workload), record.network.rule)

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        from golow.report.notebook import as_html
        from golow.report.quantization.table import render

        return as_html(lambda console: render(self.quantization, console))

    def report(self, file: str | Path) -> Path:
        """Write one HTML page that shows everything and contains the record."""
        from golow.report.html_report import write_report

        with scratch_folder() as folder:
            return write_report([self.save(folder)], Path(file))

    def save(self, folder: str | Path) -> Path:
        """Write the record into a new folder under this one; returns that folder."""
        from golow.programs.quantization import store

        return store.save(self.quantization, Path(folder))

    def save_beside(self, folder: Path) -> None:
        """Write the record into the folder of a comparison."""
        from golow.programs.quantization import store

        store.save_beside(self.quantization, folder)

    def module(self) -> nn.Module:
        """Return the quantised network as a PyTorch module, for `golow.compile` or `golow.compare`.
        Raises `GolowError` for a loaded record, and if its file is missing."""
        from golow.workload.prepare import prepare

        if self.request is None:
            raise GolowError("a loaded record contains no module", "quantise the model again.")
        return prepare(self.request).module


@with_options(WorkloadOptions, Request)
def quantize(
    model: str | nn.Module,
    example_inputs: Inputs | None = None,
    *,
    calibrate: str,
    out: str | Path,
    rule: QuantizationRule = "int8",
    group: int = 64,
    keep: Sequence[str] = (),
    in_8_bits: Sequence[str] = (),
    rank_layers: bool = False,
    clipping_percentile: float = 100.0,
    samples: int = 512,
    test_samples: int | None = None,
    gate: float = 0.99,
    rivals: bool = False,
    data_root: str | Path | None = None,
    cache: Path | None = None,
    quiet: bool = False,
    observer: Observer | None = None,
    **workload: Unpack[WorkloadOptions],
) -> QuantizationResult:
    """Quantise a network, write it to a file, and state how far it is from the original and how
    much accuracy it loses.

    calibrate: one of golow's data sets, or ``inputs`` for the workload's own inputs, which have no
    classes. out: the .safetensors file to write, for ``weights=``. rule: ``int8``, ``fp8``,
    ``int8-weights``, ``int4-weights`` or ``fp8-weights``. group: number of inputs that share a
    scale with ``int4-weights``: 32, 64 or 128. keep: layers to keep in float32, or modules to keep
    with all their layers. in_8_bits: with ``int4-weights``, layers or modules to quantise by
    ``int8-weights`` instead. rank_layers: also measure how much closer each layer, kept in float32
    or instead of 4 bits in 8, brings the network to the original, and propose layers to keep.
    clipping_percentile: percentage of an activation's values that its range must cover; 100 is
    min-max. samples: number of calibration samples. test_samples: number of test samples; all by
    default. gate: share of the original accuracy that must be kept. rivals: also quantise with ONNX
    Runtime, OpenVINO (NNCF) and torchao, as their users do.

    Raises `GolowError` for errors that the caller can fix.
    """
    from golow.programs.quantization.quantize import QuantizationSettings
    from golow.programs.quantization.quantize import quantize as run

    request = Request(model, example_inputs, threads=default_threads(), **workload)
    settings = QuantizationSettings(
        calibrate=calibrate,
        rule=rule,
        group=group,
        keep=keep,
        in_8_bits=in_8_bits,
        rank=rank_layers,
        share=clipping_percentile / 100,
        samples=samples,
        test_samples=test_samples,
        gate=gate,
        rivals=rivals,
        data_root=None if data_root is None else Path(data_root),
        cache=cache,
    )
    with shown_progress("comparison", observer, quiet) as display:
        return QuantizationResult(*run(request, settings, Path(out), display))


def load_quantization(place: str | Path) -> QuantizationResult:
    """Load the result in a folder that ``golow quantize`` wrote. Raises `GolowError` for any other
    folder."""
    from golow.programs.quantization import store

    return QuantizationResult(store.load(Path(place)))


def quantization_beside(folder: Path) -> QuantizationResult | None:
    """Load the quantisation from the folder of a comparison; None if its network is not
    quantised."""
    from golow.programs.quantization import store

    return QuantizationResult(store.load(folder)) if store.BESIDE.is_at(folder) else None


def require_calibration(precision: str, calibrate: str | None) -> None:
    """Raise `GolowError` for a rule of quantisation without samples, or samples without a rule."""
    if precision in RULES and calibrate is None:
        raise GolowError(
            f"--precision {precision} needs samples",
            "name a data set, such as --calibrate digits, or --calibrate inputs.",
        )
    if precision not in RULES and calibrate is not None:
        raise GolowError("--calibrate needs a precision that quantises", "add --precision int8.")


def quantized_module(
    module: nn.Module,
    inputs: object,
    precision: Precision | QuantizationRule,
    *,
    of_text: bool = False,
) -> tuple[nn.Module, Precision]:
    """Return the module and the arithmetic of its levels: a quantised copy, in float32, if the
    precision is a quantisation rule. inputs: an example, from which the rule learns.
    of_text: it is texts for a language model. Raises `GolowError` if there is nothing to quantise,
    and for a rule that rounds activations without an example."""
    from torch import nn

    from golow.workload.quantization.foreign.adopted import adopted

    if isinstance(module, nn.Module):  # anything else is refused later
        module = adopted(module)
    known = (*get_args(Precision), *RULES)
    if precision not in known:
        raise GolowError(f"there is no precision {precision!r}", f"use one of {', '.join(known)}.")
    if precision not in RULES:
        return module, cast("Precision", precision)
    from golow.workload.quantization.quantize import quantized

    rule = cast("QuantizationRule", precision)
    if rule in OF_ACTIVATIONS and inputs is None:
        raise GolowError(
            f"precision {rule} needs example inputs", f"pass them, or use {rule}-weights."
        )
    if inputs is None:
        samples = []
    elif of_text:
        samples = _texts(module, inputs)
    else:
        samples = _example(module, inputs, rule)
    return quantized(module, rule, lambda: samples).module, "default"


def _example(module: nn.Module, inputs: object, rule: QuantizationRule) -> list[tuple[Any, ...]]:
    from golow.levels.called.call_inputs import listed_example

    example = listed_example(module, inputs)
    if isinstance(example, Mapping):
        raise GolowError(
            f"precision {rule} takes example inputs by position, not by name",
            "pass the tensors as a list, in the order of the forward pass.",
        )
    return [tuple(example)]


def _texts(module: nn.Module, inputs: object) -> list[tuple[Any, ...]]:
    """Return each text as an input of its own: logits of many would take much memory."""
    from golow.levels.called.generation.texts import Ids, texts_of
    from golow.workload.generation.encoder_sources import is_encoder_decoder
    from golow.workload.generation.step_modules import device_of, is_own_step

    if is_own_step(module) or is_encoder_decoder(module):
        raise GolowError(
            f"golow cannot calibrate {type(module).__name__} with texts: it is not a causal model "
            "from transformers, nor golow's GPT-2",
            "leave out the inputs.",
        )
    ids = cast("Ids", inputs)
    texts_of(ids, None, device_of(module))
    return [(text[None],) for text in ids]


def quantized_first(
    request: Request, rule: str, calibrate: str | None, cache: Path | None, observer: Observer
) -> QuantizationResult | None:
    """Quantise the network of a comparison; None if it is to stay as it is."""
    if calibrate is None:
        return None
    from golow.programs.quantization.quantize import QuantizationSettings, quantize_for_comparison

    named = cast(QuantizationRule, rule)
    settings = QuantizationSettings(calibrate=calibrate, rule=named, cache=cache)
    return QuantizationResult(*quantize_for_comparison(request, settings, observer))


def with_precision(
    request: Request, precision: str, calibrate: str | None, observer: Observer
) -> Request:
    """Return the request in this precision. If it is a rule, quantise the network, print the three
    statements, and return the request for the quantised network."""
    require_calibration(precision, calibrate)
    if precision not in RULES:
        return replace(request, precision=cast("Precision", precision))
    made = quantized_first(request, precision, calibrate, None, observer)
    if made is None or made.request is None:
        raise TypeError("a network that is quantised has a request")
    made.table()
    return made.request
