"""Trains small networks, quantises each by every rule, and runs all at every level: the three
statements of docs/use/quantization.md, side by side.

    python benchmarks/trained_quantized.py --data-root data --page PAGE.md

The trainings and results are kept in --out: a second run takes up what is there. Without --page the
part of the page is printed; a page has the marks of `put_into`. It needs MNIST and CIFAR-10 (`golow
data list`); --only names networks.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import golow
from golow.programs.quantization.quantization_record import TaskAccuracy
from golow.records.quantization import QuantizationRule
from page_part import put_into

RULES: tuple[QuantizationRule, ...] = ("int8", "int8-weights", "int4-weights")
GPT2 = f"{Path(__file__).parent / 'byte_gpt2.py'}:ByteGpt2"


class Case(NamedTuple):
    """A network with its training. data: what it is trained and tested on. rules: those that
    quantise a layer of it."""

    name: str
    model: str
    data: str
    epochs: int
    optimizer: golow.Optimizer
    batch: int = 128
    rules: tuple[QuantizationRule, ...] = RULES


ADAM = golow.Optimizer(name="adam", learning_rate=1e-3)
CASES = (
    # Its linear layers have no groups of 32 inputs.
    Case("LeNet-5", "lenet5", "mnist", 2, ADAM, rules=RULES[:2]),
    Case("GPT-2 of 0.9 million parameters", GPT2, "text", 12, ADAM, batch=32),
    Case("ResNet-18", "resnet18", "cifar10", 3, ADAM),
)


class Row(NamedTuple):
    """A network by one rule: the three statements. verdicts: of each level that ran."""

    rule: str
    record: golow.QuantizationResult
    verdicts: Mapping[str, str]


def main() -> None:
    """Train, quantise, compare, write."""
    arguments = _arguments()
    parts = []
    for case in CASES:
        case = case if arguments.epochs is None else case._replace(epochs=arguments.epochs)
        if arguments.only is None or arguments.only.lower() in case.name.lower():
            weights = trained(case, arguments)
            rows = [row(case, rule, weights, arguments) for rule in case.rules]
            parts.append(part(case, rows))
    text = "\n\n".join(parts)
    if arguments.page is None:
        print(text)
    else:
        arguments.page.write_text(put_into(arguments.page.read_text(), "quantized", text))


def trained(case: Case, arguments: argparse.Namespace) -> Path:
    """The weights of the best epoch."""
    folder = arguments.out / f"{case.data}-trained"
    if not (found := sorted(folder.glob("**/eager/**/best.safetensors"))):
        golow.train(
            case.model, dataset=case.data, epochs=case.epochs, optimizer=case.optimizer,
            levels=["eager"], batch=case.batch, data_root=arguments.data_root, out=folder,
        )  # fmt: skip
        found = sorted(folder.glob("**/eager/**/best.safetensors"))
    return Path(found[-1])


def row(case: Case, rule: QuantizationRule, weights: Path, arguments: argparse.Namespace) -> Row:
    """Quantise by the rule, then compare all levels on the quantised network."""
    file = arguments.out / f"{case.data}-{rule}.safetensors"
    made = golow.quantize(
        case.model, calibrate=case.data, out=file, rule=rule, weights=weights, batch=8,
        data_root=arguments.data_root, samples=256, group=32,
    )  # fmt: skip
    inputs = None if made.request is None else made.request.example_inputs
    compared = golow.compare(made.module(), inputs, levels=arguments.levels, time_limit=1.0)
    verdicts = {run.level: run.check.verdict for run in compared.comparison.runs}
    return Row(rule, made, verdicts)


def part(case: Case, rows: list[Row]) -> str:
    """The network's section of the page."""
    accuracy = rows[0].record.quantization.accuracy
    lines = [f"## {case.name}, {case.data}", "", _training_text(case, accuracy), "", *_table(rows)]
    return "\n".join(lines)


def _training_text(case: Case, accuracy: TaskAccuracy | None) -> str:
    epochs = f"{case.epochs} epochs"
    if accuracy is None:
        return f"Trained for {epochs}."
    right = accuracy.original
    return (
        f"Trained for {epochs}: {right.value:.2%} of {right.cases:,} answers of the test part are "
        f"right ({right.low:.2%} to {right.high:.2%})."
    )


def _table(rows: list[Row]) -> Iterator[str]:
    yield (
        "| rule | layers | bytes | 1. levels that match | differ or fail | 2. relative error | "
        "divergence | other top class | 3. accuracy | lost, gained | gate 99% |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for found in rows:
        record = found.record.quantization
        output, accuracy = record.movement.outputs[0], record.accuracy
        flipped = "" if output.flipped is None else f"{output.flipped.value:.2%}"
        divergence = "" if output.divergence is None else f"{output.divergence:.2g}"
        cells = [
            f"`{found.rule}`",
            str(len(record.network.layers)),
            f"{record.quantized_bytes / record.original_bytes:.0%}",
            _with(found.verdicts, "match"),
            _with(found.verdicts, "differs", "failed") or "none",
            f"{output.error:.2%}",
            divergence,
            flipped,
            *_accuracy_cells(accuracy),
        ]
        yield f"| {' | '.join(cells)} |"


def _accuracy_cells(accuracy: TaskAccuracy | None) -> list[str]:
    if accuracy is None:
        return ["", "", ""]
    text = f"{accuracy.quantized.value:.2%}"
    if accuracy.perplexity is not None:
        before, after = accuracy.perplexity
        text += f", perplexity {before:.3f} to {after:.3f}"
    return [text, f"{accuracy.lost:,}, {accuracy.gained:,}", accuracy.verdict]


def _with(verdicts: Mapping[str, str], *wanted: str) -> str:
    return ", ".join(f"`{level}`" for level, verdict in verdicts.items() if verdict in wanted)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/quantized"))
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--only", default=None, help="part of a network's name")
    parser.add_argument("--epochs", type=int, default=None, help="instead of each network's own")
    parser.add_argument("--levels", type=lambda text: text.split(","), default=None)
    parser.add_argument("--page", type=Path, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
