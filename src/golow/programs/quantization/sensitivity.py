"""Ranking of layers by the loss from quantising them, and a proposal of layers that stay wider.
Each quantised layer in turn is restored to float32, or from 4 bits to 8, and the network is
compared with the original again: the gain of a layer is how much closer the network gets. The
samples are calibration samples, because the test set judges the result afterwards. The proposal is
a set of layers with which the network keeps the gate's share of the original's correct answers: the
best ones are kept until it does, then those that turn out not to be needed are quantised again, the
one with the most multiplications first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from golow.observer import Observer
from golow.programs.quantization.outputs import outputs_of
from golow.programs.quantization.quantization_record import LayerGain, Mixture, Ranking, Width
from golow.programs.quantization.samples import Samples
from golow.programs.quantization.statements import MovementMeter, is_scores, stated
from golow.workload.batch import Batch
from golow.workload.quantization.quantize import IN_8_BITS, QuantizedModule, kept_form
from golow.workload.quantization.replacing import replace_layer
from golow.workload.quantization.transposed_linear import as_linear

MOST_SAMPLES = 256


def ranking(
    original: nn.Module, made: QuantizedModule, samples: Samples, gate: float, observer: Observer
) -> Ranking:
    """Rank the quantised layers, and propose which to keep, if the samples have classes. made: of
    the same network; it is left unchanged."""
    forms = _Forms(original, made)
    judge = _Judge(original, list(_some(samples)))
    whole = judge.measured(made.module)
    sizes = _multiplications(original, forms.paths, judge.batches[0].inputs)
    gains = []
    for place, path in enumerate(forms.paths):
        observer.stage(f"keeping {path} ({place + 1} of {len(forms.paths)} layers)")
        with forms.kept([path]):
            left = judge.measured(made.module).distance
        gains.append(LayerGain(path=path, left=left, multiplications=sizes[path]))
    gains.sort(key=lambda gain: gain.left)
    proposal = None
    if judge.original is not None:
        observer.stage("searching for the layers to keep")
        proposal = _proposal(_Search(forms, judge, gate * judge.original), gains)
        if proposal.keep:
            with forms.kept(proposal.keep) as mixed:
                _, cost = stated(outputs_of(original), outputs_of(mixed), samples, gate)
            proposal = msgspec.structs.replace(proposal, accuracy=cost)
    return Ranking(
        data=samples.data,
        samples=judge.samples,
        measure="divergence" if judge.scores else "error",
        distance=whole.distance,
        layers=tuple(gains),
        original_right=judge.original,
        quantized_right=whole.right,
        proposal=proposal,
        kept_in=forms.kept_in,
    )


def _some(samples: Samples) -> Iterator[Batch]:
    """The first batches of the calibration, up to this many samples."""
    left = MOST_SAMPLES
    for batch in samples.calibration:
        if left > 0:
            yield batch
        left -= len(batch.inputs[0])


class _Forms:
    """Both forms of each quantised layer; the network contains one of them at a time. Of a mixture
    of 4 and 8 bits, these are the layers of 4 bits. kept_in: the numbers of the wider form."""

    def __init__(self, original: nn.Module, made: QuantizedModule) -> None:
        layers = [layer for layer in made.layers if layer.rule != IN_8_BITS] or made.layers
        self.paths = [layer.path for layer in layers]
        self.kept_in: Width = "8 bits" if layers[0].rule == "int4-weights" else "float32"
        self._module = made.module
        self._wide = {
            layer.path: kept_form(original.get_submodule(layer.path), layer) for layer in layers
        }
        self._quantized = {path: made.module.get_submodule(path) for path in self.paths}

    @contextmanager
    def kept(self, paths: Sequence[str]) -> Iterator[nn.Module]:
        """Within the block these layers are in their wider form."""
        for path in paths:
            replace_layer(self._module, self._quantized[path], self._wide[path])
        try:
            yield self._module
        finally:
            for path in paths:
                replace_layer(self._module, self._wide[path], self._quantized[path])


class _Measured(NamedTuple):
    """Distance to the original, and the correct answers; None without classes."""

    distance: float
    right: int | None


class _Judge:
    """Compares forms of a network with the original, on the same samples."""

    def __init__(self, original: nn.Module, batches: Sequence[Batch]) -> None:
        self.batches = batches
        self.samples = sum(len(batch.inputs[0]) for batch in batches)
        call = outputs_of(original)
        self._wanted = [call(batch.inputs) for batch in batches]
        self.scores = is_scores(self._wanted[0][0])
        self.original = self._right(self._wanted)

    def measured(self, module: nn.Module) -> _Measured:
        """Run the module on all samples."""
        call, meter = outputs_of(module), MovementMeter()
        found = [call(batch.inputs) for batch in self.batches]
        for wanted, moved in zip(self._wanted, found, strict=True):
            meter.add(wanted[:1], moved[:1])
        [output] = meter.movement("").outputs
        distance = output.error if output.divergence is None else output.divergence
        return _Measured(distance, self._right(found))

    def _right(self, found: Sequence[Sequence[Tensor]]) -> int | None:
        right = 0
        for outputs, batch in zip(found, self.batches, strict=True):
            labels = batch.targets[0] if batch.targets else None
            if labels is None or not self.scores or outputs[0].shape[:-1] != labels.shape:
                return None
            right += int((outputs[0].argmax(-1) == labels).sum())
        return right


class _Search:
    """Tries sets of layers. wanted: the required number of correct answers."""

    def __init__(self, forms: _Forms, judge: _Judge, wanted: float) -> None:
        self._forms, self._judge, self._wanted = forms, judge, wanted
        self.right = 0

    def is_enough(self, paths: Sequence[str]) -> bool:
        """True if the network with these layers in their wider form has enough correct answers."""
        with self._forms.kept(paths) as module:
            self.right = self._judge.measured(module).right or 0
        return self.right >= self._wanted


def _proposal(search: _Search, gains: Sequence[LayerGain]) -> Mixture:
    """The layers to keep. The sufficient number of best layers is found by bisection: more of them
    are seldom worse, and all of them in float32 are always enough."""
    few, many = -1, len(gains)
    while many - few > 1:
        middle = (few + many) // 2
        if search.is_enough([gain.path for gain in gains[:middle]]):
            many = middle
        else:
            few = middle
    kept = [gain.path for gain in gains[:many]]
    for gain in sorted(gains[:many], key=lambda gain: -gain.multiplications):
        fewer = [path for path in kept if path != gain.path]
        if search.is_enough(fewer):
            kept = fewer
    search.is_enough(kept)
    return Mixture(keep=tuple(kept), right=search.right)


def _multiplications(
    module: nn.Module, paths: Sequence[str], inputs: tuple[Tensor, ...]
) -> dict[str, int]:
    """The multiplications of each layer for a sample."""
    counts = dict.fromkeys(paths, 0)

    def counting(path: str, layer: nn.Module) -> torch.utils.hooks.RemovableHandle:
        each = as_linear(layer).get_parameter("weight")[0].numel()

        def after(_: nn.Module, __: object, result: Tensor) -> None:
            counts[path] += result[0].numel() * each

        return layer.register_forward_hook(after)

    handles = [counting(path, module.get_submodule(path)) for path in paths]
    try:
        outputs_of(module)(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return counts
