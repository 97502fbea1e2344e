"""A quantisation as text: what was quantised, and three statements that are kept apart. Whether the
program is right, how far the network moved, and how much accuracy it loses."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from golow.programs.quantization.quantization_record import (
    Mixture,
    Movement,
    OutputDistance,
    Quantization,
    Ranking,
    Share,
    TaskAccuracy,
)
from golow.records.quantization import (
    OF_ACTIVATIONS,
    QuantizationRule,
    QuantizedLayer,
    QuantizedNetwork,
)
from golow.report.comparison.table import workload_text
from golow.report.console import wide_console
from golow.report.units import bytes_text

OPTIONS = {"in_channels": "--channels", "classes": "--classes", "resolution": "--resolution"}
SHOWN = 10
"""Layers of a ranking in the text; the record has all."""
PROGRAM, NETWORK, TASK = (
    "1. Is the program right?",
    "2. How far is the quantised network from the original?",
    "3. How much accuracy does it lose?",
)
LAYERS = "Which layers lose most?"
NUMBERS: dict[QuantizationRule, str] = {
    "int8": "8-bit", "fp8": "8-bit floating-point (e4m3)",
    "int8-weights": "8-bit", "int4-weights": "4-bit", "fp8-weights": "8-bit floating-point (e4m3)",
}  # fmt: skip
RANDOM = (
    "the weights are random, so these figures do not apply to a trained network; pass its "
    "weights with --weights"
)


def render(record: Quantization, console: Console | None = None) -> None:
    """Print the quantisation."""
    console = console or wide_console()
    console.print(Text(heading(record), style="bold"))
    for line in described(record):
        console.print(Text(line, style="dim"))
    for title, lines in statements(record):
        console.print()
        console.print(Text(title, style="bold"))
        for line in lines:
            # What one pastes begins with spaces, and is not folded.
            console.print(Text(line), soft_wrap=line.startswith("  ") or "\n  " in line)


def heading(record: Quantization) -> str:
    """The workload and the rule."""
    return f"{workload_text(record.workload)}, quantised by the rule {record.network.rule}"


def described(record: Quantization) -> Iterator[str]:
    """Yield the facts about the quantised network, one line each."""
    yield network_text(record.network)
    if record.quantized_bytes:
        before, after = bytes_text(record.original_bytes), bytes_text(record.quantized_bytes)
        yield f"weights: {before} before, {after} after"
    reasons = Counter(layer.reason for layer in record.network.kept)
    for reason, count in reasons.items():
        first = next(layer.path for layer in record.network.kept if layer.reason == reason)
        yield f"kept: {count} ({first}{', ...' if count > 1 else ''}): {reason}"
    if record.file:
        yield f"file: {record.file}"


def network_text(network: QuantizedNetwork) -> str:
    """The number of layers by rule, and where the scales of activations are from."""
    text = ", ".join(_layers_text(rule, layers) for rule, layers in _by_rule(network))
    found = network.calibration
    of = "" if found is None else f"of {found.samples:,} samples ({found.data})"
    if found is not None and network.rule in OF_ACTIVATIONS:
        how = found.method if found.share == 1 else f"{found.method} {found.share:.4%}"
        numbers = NUMBERS[network.rule]
        return f"{text}; {numbers} activations, a scale for each tensor: {how} {of}"
    if found is not None and found.method == "compensation":
        text += f", rounding errors compensated in the outputs {of}"
    return f"{text}; activations are not quantised"


def _by_rule(
    network: QuantizedNetwork,
) -> Iterator[tuple[QuantizationRule, list[QuantizedLayer]]]:
    for rule in dict.fromkeys((network.rule, *(layer.rule for layer in network.layers))):
        yield rule, [layer for layer in network.layers if layer.rule == rule]


def _layers_text(rule: QuantizationRule, layers: list[QuantizedLayer]) -> str:
    groups = sorted({layer.group for layer in layers if layer.group})
    each = f"{groups[0]} inputs of an output" if groups else "output"
    plural = "s" if len(layers) != 1 else ""
    return f"{len(layers)} layer{plural} with {NUMBERS[rule]} weights, a scale for each {each}"


def statements(record: Quantization) -> Iterator[tuple[str, list[str]]]:
    """The three statements, each with its title."""
    yield PROGRAM, [_program(record)]
    yield NETWORK, list(_moved(record.movement))
    random = [RANDOM] if record.accuracy is not None and _draws_weights(record) else []
    yield TASK, [*random, *_cost(record.accuracy)]
    if record.ranking is not None:
        yield LAYERS, list(ranking_lines(record.ranking))
    for other in record.others:
        lines = [f"not measured: {other.reason}"] if other.reason else []
        if other.movement is not None:
            lines += _moved(other.movement)
        if other.accuracy is not None:
            lines += _cost(other.accuracy)
        yield f"Another quantisation: {other.name}", lines


def _program(record: Quantization) -> str:
    if not record.file:
        return "not checked: the quantised network was not kept"
    return (
        "golow compare checks each level against the quantised network in float64:\n"
        f"  {command(record)}"
    )


def command(record: Quantization) -> str:
    """The command that compares the levels on the quantised network."""
    source = record.workload.source
    prefix = {"huggingface": "hf:", "timm": "timm:"}.get(source.kind, "")
    name = f"{prefix}{source.name}" + (f":{source.attribute}" if source.attribute else "")
    words = ["golow", "compare", name, "--weights", record.file]
    for argument, option in OPTIONS.items():
        if argument in source.arguments:
            words += [option, str(source.arguments[argument])]
    if source.kind in ("file", "import"):
        shape = record.workload.inputs[0].shape[1:]
        words += ["--input", "x".join(map(str, shape))]
    return shlex.join(words)


def _draws_weights(record: Quantization) -> bool:
    return f"seed {record.workload.seed}" in record.workload.initialisation


def _moved(movement: Movement) -> Iterator[str]:
    yield f"over {movement.data}:"
    several = len(movement.outputs) > 1
    for index, output in enumerate(movement.outputs):
        yield f"{f'output {index}: ' if several else ''}{distance_text(output)}"


def distance_text(output: OutputDistance) -> str:
    """How far an output moved."""
    parts = [f"relative error {output.error:.2%}"]
    if output.divergence is not None:
        parts.append(f"Kullback-Leibler divergence {output.divergence:.2g} nats")
    if output.flipped is not None:
        parts.append(f"another top class in {share_text(output.flipped)}")
    return ", ".join(parts)


def share_text(share: Share) -> str:
    """The share with its interval."""
    return (
        f"{share.count:,} of {share.cases:,}: {share.value:.2%} "
        f"({share.low:.2%} to {share.high:.2%})"
    )


def _cost(accuracy: TaskAccuracy | None) -> Iterator[str]:
    if accuracy is None:
        yield "not measured: the samples have no classes; name a data set with --calibrate"
        return
    yield f"over {accuracy.data}:"
    yield f"accuracy of the original:  {share_text(accuracy.original)}"
    yield from _loss(accuracy)


def _loss(accuracy: TaskAccuracy) -> Iterator[str]:
    yield f"accuracy of the quantised network: {share_text(accuracy.quantized)}"
    if accuracy.perplexity is not None:
        before, after = accuracy.perplexity
        yield f"perplexity: {before:.4g} before, {after:.4g} after"
    yield f"lost {accuracy.lost:,}, gained {accuracy.gained:,}"
    yield (
        f"gate, {accuracy.gate:.4g} of the original accuracy: {accuracy.verdict} (above it by "
        f"{accuracy.low:+.2%} to {accuracy.high:+.2%})"
    )


def ranking_lines(ranking: Ranking) -> Iterator[str]:
    """Yield the gain of keeping each of the first layers wider, and the proposal."""
    distance = {"divergence": "Kullback-Leibler divergence", "error": "relative error"}
    yield (
        f"over {ranking.samples:,} samples of {ranking.data}, {distance[ranking.measure]} to the "
        f"original: {ranking.distance:.2g}; with one layer in {ranking.kept_in}:"
    )
    total = sum(layer.multiplications for layer in ranking.layers) or 1
    width = max((len(layer.path) for layer in ranking.layers[:SHOWN]), default=0)
    for layer in ranking.layers[:SHOWN]:
        share_left = layer.left / ranking.distance if ranking.distance else 1.0
        back = round(1 - share_left, 2) + 0.0  # never "-0%"
        share = layer.multiplications / total
        yield (
            f"{layer.path:<{width}}  {layer.left:.2g}, {back:.0%} less, for {share:.1%} of the "
            "multiplications"
        )
    if ranking.proposal is None:
        yield "no proposal: the samples have no classes; name a data set with --calibrate"
        return
    yield from _proposal_lines(ranking, ranking.proposal, total)


def _proposal_lines(ranking: Ranking, proposal: Mixture, total: int) -> Iterator[str]:
    before = (
        f"correct answers on {ranking.samples:,} samples: {ranking.original_right:,} by the "
        f"original, {ranking.quantized_right:,} with all layers quantised"
    )
    if not proposal.keep:
        yield f"{before}, which is enough for the gate: nothing needs to be kept"
        return
    kept = {layer.path: layer.multiplications for layer in ranking.layers}
    share = sum(kept[path] for path in proposal.keep) / total
    yield (
        f"{before}, {proposal.right:,} with {len(proposal.keep)} kept, for {share:.1%} of the "
        "multiplications:"
    )
    option = "--in-8-bits" if ranking.kept_in == "8 bits" else "--keep"
    yield f"  {option} {','.join(proposal.keep)}"
    if proposal.accuracy is not None:
        yield f"with {option}, over {proposal.accuracy.data}:"
        yield from _loss(proposal.accuracy)
