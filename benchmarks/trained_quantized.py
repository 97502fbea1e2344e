"""Trains small networks, quantises each by every rule, and runs all at every level: the three
statements of docs/use/quantization.md, side by side.

    python benchmarks/trained_quantized.py --data-root data
    python benchmarks/trained_quantized.py --data-root data --only lenet
    python benchmarks/trained_quantized.py --page docs/results/quantization.md

Each training, and each network by each rule, is kept in --out as soon as it is there, and a later
run goes on from that: a network at a time, or after it was stopped. --page runs nothing: it writes
what is kept into the page, between the marks of `put_into`. MNIST and CIFAR-10 are needed (`golow
data list`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, get_args

import golow
from golow.programs.quantization.quantization_record import Quantization, Share, TaskAccuracy
from golow.records.quantization import QuantizationRule
from page_part import put_into

GPT2 = f"{Path(__file__).parent / 'byte_gpt2.py'}:ByteGpt2"


class Case(NamedTuple):
    """A network with its training. data: what it is trained and tested on. rules: those that
    quantise a layer of it."""

    name: str
    model: str
    data: str
    epochs: int
    batch: int = 128
    rules: tuple[QuantizationRule, ...] = get_args(QuantizationRule)


ADAM = golow.Optimizer(name="adam", learning_rate=1e-3)
CASES = (
    # Its linear layers have no groups of 32 inputs.
    Case("LeNet-5", "lenet5", "mnist", 2, rules=("int8", "fp8", "int8-weights")),
    # It has one linear layer.
    Case("ResNet-18", "resnet18", "cifar10", 2, rules=("int8", "int8-weights", "int4-weights")),
    Case("GPT-2 of 0.9 million parameters", GPT2, "text", 12, batch=32),
)


def main() -> None:
    """Train, quantise and compare what is not kept yet; or write the page."""
    arguments = _arguments()
    if arguments.page is not None:
        kept = [(case, _kept(case, arguments.out)) for case in CASES]
        text = "\n\n".join(part(case, rows) for case, rows in kept if rows)
        arguments.page.write_text(put_into(arguments.page.read_text(), "quantized", text))
        return
    for case in CASES:
        if arguments.only is None or arguments.only.lower() in case.name.lower():
            weights = trained(case, arguments)
            for rule in case.rules:
                if not _place(arguments.out, case, rule).exists():
                    compare_quantized(case, rule, weights, arguments)
            print(part(case, _kept(case, arguments.out)), flush=True)


def trained(case: Case, arguments: argparse.Namespace) -> Path:
    """The weights of the best epoch."""
    folder = arguments.out / f"{case.data}-trained"
    if not (found := sorted(folder.glob("**/eager/**/best.safetensors"))):
        golow.train(
            case.model, dataset=case.data, epochs=case.epochs, optimizer=ADAM, levels=["eager"],
            batch=case.batch, data_root=arguments.data_root, out=folder, threads=arguments.threads,
        )  # fmt: skip
        found = sorted(folder.glob("**/eager/**/best.safetensors"))
    return found[-1]


def compare_quantized(
    case: Case, rule: QuantizationRule, weights: Path, arguments: argparse.Namespace
) -> None:
    """Quantise by the rule, compare all levels on the quantised network, and keep both records."""
    file = arguments.out / f"{case.data}-{rule}.safetensors"
    made = golow.quantize(
        case.model, calibrate=case.data, out=file, rule=rule, weights=weights, batch=8,
        data_root=arguments.data_root, samples=256, group=32,
        test_samples=arguments.test_samples,
    )  # fmt: skip
    asked = made.request
    assert asked is not None
    compared = golow.compare(
        case.model, asked.example_inputs, weights=file, channels=asked.channels,
        classes=asked.classes, resolution=asked.resolution, levels=arguments.levels,
        threads=arguments.threads, time_limit=0.5, brief=True,
    )  # fmt: skip
    saved = compared._replace(quantization=made).save(arguments.out / "new")
    saved.rename(_place(arguments.out, case, rule))


def _place(out: Path, case: Case, rule: QuantizationRule) -> Path:
    """Folder of the records of a network by a rule."""
    return out / f"{case.data}-{rule}"


def _kept(case: Case, out: Path) -> list[golow.Result]:
    places = (_place(out, case, rule) for rule in case.rules)
    return [golow.load(place) for place in places if place.exists()]


def part(case: Case, kept: list[golow.Result]) -> str:
    """The network's section of the page."""
    records = [_quantization(result) for result in kept]
    head = [f"## {case.name}, {case.data}", "", _training_text(case, records[0].accuracy), ""]
    return "\n".join([*head, *_table(kept)])


def _quantization(result: golow.Result) -> Quantization:
    assert result.quantization is not None
    return result.quantization.quantization


def _training_text(case: Case, accuracy: TaskAccuracy | None) -> str:
    epochs = f"{case.epochs} epochs"
    if accuracy is None:
        return f"Trained for {epochs}."
    return (
        f"Trained for {epochs}: {_share_text(accuracy.original)} of {accuracy.original.cases:,} "
        "answers on the test set are right."
    )


def _table(kept: list[golow.Result]) -> Iterator[str]:
    yield (
        "| rule | layers | bytes | 1. levels that match | differ or fail | 2. relative error | "
        "divergence | other top class | 3. accuracy (95% interval) | lost, gained | gate 99% |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for result in kept:
        record, runs = _quantization(result), result.comparison.runs
        verdicts = {run.level: run.check.verdict for run in runs}
        output, accuracy = record.movement.outputs[0], record.accuracy
        cells = [
            f"`{record.network.rule}`",
            str(len(record.network.layers)),
            f"{record.quantized_bytes / record.original_bytes:.0%}",
            _with(verdicts, "match"),
            _with(verdicts, "differs", "failed") or "none",
            f"{output.error:.2%}",
            "" if output.divergence is None else f"{output.divergence:.2g}",
            "" if output.flipped is None else f"{output.flipped.value:.2%}",
            *_accuracy_cells(accuracy),
        ]
        yield f"| {' | '.join(cells)} |"


def _accuracy_cells(accuracy: TaskAccuracy | None) -> list[str]:
    if accuracy is None:
        return ["", "", ""]
    text = _share_text(accuracy.quantized)
    if accuracy.perplexity is not None:
        before, after = accuracy.perplexity
        text += f", perplexity {before:.3f} to {after:.3f}"
    return [text, f"{accuracy.lost:,}, {accuracy.gained:,}", accuracy.verdict]


def _share_text(share: Share) -> str:
    return f"{share.value:.2%} ({share.low:.2%} to {share.high:.2%})"


def _with(verdicts: Mapping[str, str], *wanted: str) -> str:
    return ", ".join(f"`{level}`" for level, verdict in verdicts.items() if verdict in wanted)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/quantized"))
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--only", default=None, help="part of a network's name")
    parser.add_argument("--test-samples", type=int, default=None, help="all unless given")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--levels", type=lambda text: text.split(","), default=None)
    parser.add_argument("--page", type=Path, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
