"""How many requests per second does each level serve within a latency limit?

    python benchmarks/load_levels.py --latency 0.3 --percentile 90 --threads 1 --tokens 32
    python benchmarks/load_levels.py --device cuda --precision bf16 --latency 0.02 \\
        --rates 500,1000,2000 --seconds 2
    python benchmarks/load_levels.py --show --page PAGE

One load test a network: requests one after another, all at once, and the search for the highest
rate that meets the limit, or, in less time, runs at the rates given. Each test is a record in
--out; after Ctrl-C, too. --show writes a table for each record of a device into the page, and draws
its figure of latency over rate beside it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import golow
from golow.models import ZOO
from golow.programs.load.early_stopping import Quoted
from golow.programs.load.load_record import LevelLoad, LoadTest
from golow.programs.load.store import load
from golow.records.workload import Device, Precision
from golow.report.load.facts import Row, best_runs, rows
from golow.report.load.figure import write_figures
from golow.report.load.table import limits_text
from networks import listed
from page_part import put_into

NETWORKS = ("resnet50", "bert_base")
LEVELS = {
    "cpu": ("eager", "compile", "onnxruntime", "openvino", "onednn"),
    "cuda": ("eager", "compile", "compile:cudagraphs", "cudagraph", "cudnn"),
}
FIGURE = "load-rate.svg"


def main() -> int:
    """Test every network, or show the records; 1 if a test failed, 2 without records."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=get_args(Device))
    parser.add_argument("--precision", default="default", choices=get_args(Precision))
    parser.add_argument("--networks", type=listed, default=NETWORKS)
    parser.add_argument("--levels", type=listed, help="instead of five of the device")
    parser.add_argument("--rates", type=numbers, default=(), help="requests per second; no search")
    parser.add_argument("--latency", type=float, default=0.02, help="seconds")
    parser.add_argument("--percentile", type=float, default=99.0)
    parser.add_argument("--max-batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128, help="of a text")
    parser.add_argument("--resolution", type=int, default=224, help="of an image")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a run")
    parser.add_argument("--out", type=Path, default=Path("runs/load_levels"))
    parser.add_argument("--show", action="store_true", help="the tables of the records, no test")
    parser.add_argument("--page", type=Path, help="with --show: put them into this page")
    options = parser.parse_args()
    if options.show:
        return show(options)
    return max(test(name, options) for name in options.networks)


def test(name: str, options: argparse.Namespace) -> int:
    """Test one network and save the record; 1 if it failed."""
    try:
        result = golow.load_test(
            name,
            device=options.device,
            precision=options.precision,
            sequence=options.tokens if ZOO[name].sequence else None,
            resolution=None if ZOO[name].sequence else options.resolution,
            levels=options.levels or LEVELS[options.device],
            latency=options.latency,
            percentile=options.percentile,
            rates=options.rates,
            max_batch=options.max_batch,
            threads=options.threads,
            seconds=options.seconds,
        )
    except golow.GolowError as error:
        print(f"{name}: {error.message}", file=sys.stderr, flush=True)
        return 1
    except golow.LoadTestInterrupted as stopped:
        keep(stopped.result, options.out)
        raise
    keep(result, options.out)
    return 0


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    return tuple(map(float, listed(text)))


def keep(result: golow.LoadTestResult, folder: Path) -> None:
    """Save the record and print its table."""
    result.save(folder)
    print("\n".join(table(result.test)), flush=True)


# ---------------------------------------------------------------- the page


def show(options: argparse.Namespace) -> int:
    """Print the tables of all records, and put those of each device into the page."""
    found = [load(file.parent) for file in sorted(options.out.glob("*/load.json"))]
    if not found:
        print(f"no records in {options.out}", file=sys.stderr)
        return 2
    for device in dict.fromkeys(item.workload.device for item in found):
        of_device = [item for item in found if item.workload.device == device]
        text = "\n\n".join("\n".join(part(item, options.page)) for item in of_device)
        print(text)
        if options.page is not None:
            page = options.page.read_text()
            options.page.write_text(put_into(page, f"levels under load, {device}", text))
    return 0


def part(found: LoadTest, page: Path | None) -> Iterator[str]:
    """The heading, the table and the figure of a record."""
    work, machine = found.workload, found.environment
    yield f"### {work.model}"
    yield ""
    yield (
        f"{', '.join(machine.gpu or (machine.cpu_model,))}, torch {machine.versions['torch']}, "
        f"precision {work.precision}, {work.threads} thread{'s' * (work.threads != 1)} per level, "
        f"{batches(found.plan.most)}; inputs {shapes(found)}; {limits_text(found.plan)}."
    )
    yield ""
    yield from table(found)
    if page is not None:
        name = f"load-{work.model}-{work.device}.svg"
        with tempfile.TemporaryDirectory() as folder:
            drawn = {file.name: file for file in write_figures(found, Path(folder))}
            (page.parent / "figures" / name).write_bytes(drawn[FIGURE].read_bytes())
        yield ""
        yield f"![{work.model}: latency over requests per second, by level](figures/{name})"


def batches(most: int) -> str:
    """The sizes of batches."""
    return "batches of one sample" if most == 1 else f"batches of up to {most}"


def shapes(found: LoadTest) -> str:
    """The inputs of a sample."""
    sizes = ("x".join(map(str, item.shape[1:])) for item in found.workload.inputs)
    return ", ".join(dict.fromkeys(sizes))


def table(found: LoadTest) -> Iterator[str]:
    """A row per level. Without an interval, a figure is the median of the rounds."""
    share, rates = found.plan.percentile, found.plan.rates
    titles = ["level", "check", "one by one: p50", f"p{100 * share:g}", "all at once"]
    if rates:
        titles += [f"p{100 * share:g} at {rate:,.0f}/s" for rate in rates]
    else:
        titles += ["highest rate", "over the first level's", "batch", "energy per request"]
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    one = {row.level: row for row in rows(found, "single-stream")}
    many = {row.level: row for row in rows(found, "offline")}
    served = {(row.level, row.rate): row for row in rows(found, "server")}
    for level in found.levels:
        asked = [at_rate(served.get((level.label, rate)), share) for rate in rates]
        cells = (
            f"`{level.label}`", level.check.verdict, latency(one.get(level.label), 0.5),
            latency(one.get(level.label), share), throughput(many.get(level.label)),
            *(asked if rates else (*peak(level), *at_peak(level))),
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def at_rate(row: Row | None, share: float) -> str:
    """A percentile at a rate, and what became of it unless it is within the limit."""
    if row is None:
        return "-"
    shown = latency(row, share)
    return shown if row.outcome == "held" else f"{shown} ({row.outcome})".removeprefix("- ")


def latency(row: Row | None, share: float) -> str:
    """A percentile in milliseconds, if it may be quoted."""
    quoted: Quoted | None = row.spreads["latency"].percentiles[share] if row is not None else None
    return f"{quoted.value * 1e3:.1f} ms" if quoted is not None and quoted.is_sure else "-"


def throughput(row: Row | None) -> str:
    """Samples per second."""
    return f"{row.throughput:,.0f}/s" if row is not None and row.throughput else "-"


def peak(level: LevelLoad) -> tuple[str, str]:
    """The highest rate, and its ratio to the first level's, each with its interval."""
    found = level.peak
    if found is None or found.rate is None:
        return "none" if found is not None else "-", "-"
    rate, ratio = found.rate, found.ratio
    return (
        f"{rate.value:,.0f}/s ({rate.low:,.0f}-{rate.high:,.0f})",
        "-" if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})",
    )


def at_peak(level: LevelLoad) -> tuple[str, str]:
    """Mean batch, and joules of a request, at the highest rate."""
    runs = best_runs(level)
    batches = [batch.size for run in runs for batch in run.batches]
    joules = sorted(run.joules for run in runs if run.joules is not None)
    return (
        f"{sum(batches) / len(batches):.1f}" if batches else "-",
        f"{joules[len(joules) // 2]:.2f} J" if joules else "-",
    )


if __name__ == "__main__":
    sys.exit(main())
