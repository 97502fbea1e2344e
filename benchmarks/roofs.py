"""How close does each network of the zoo come to what the machine allows, and how long does a plan
take to build from nothing?

    python benchmarks/roofs.py --threads 2
    python benchmarks/roofs.py --device cuda --precision bf16 --modes infer --turns /tmp/turns
    python benchmarks/roofs.py --show --out runs/roofs

A point is a network and a mode: `golow lower NETWORK --roof`, with an empty cache. On a CPU it has
the sizes of `networks.py` at batch 1 (training 8), on a GPU those at batch 8. A finished point is a
JSON file in --out, which is not run again, and one line of standard output. --show prints the
tables of all files in --out; --page puts them between the marks of a page, ``<!-- roofs: begin
-->`` and ``<!-- roofs: end -->``.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import msgspec

import golow
from golow.models import ZOO
from golow.programs.explain.explain_record import Roof, StepRoof
from golow.records.workload import Device, Mode, Precision
from golow.report.units import bytes_text, decimal_text, seconds_text, share_text
from golow.worker.turn import Turn
from networks import listed, side
from page_part import put_into

LEVELS = {"cuda": "cudnn", "cpu": "onednn"}
BATCHES = {"cuda": {"infer": 8, "train": 8}, "cpu": {"infer": 1, "train": 8}}
TOKENS = 128
RACE_SECONDS = 1.0
LOSSES = 3  # kinds of steps that a row names


def main() -> int:
    """Measure the points that have no file, or show those that have; returns the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=get_args(Device))
    parser.add_argument("--precision", default="default", choices=get_args(Precision))
    parser.add_argument("--models", type=listed, default=tuple(ZOO))
    parser.add_argument("--modes", type=listed, default=get_args(Mode))
    parser.add_argument("--batch", type=int, help="instead of the device's")
    parser.add_argument("--resolution", type=int, help="of images, instead of the device's")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--level", help="instead of the vendor's without autotuning")
    parser.add_argument("--out", type=Path, default=Path("runs/roofs"))
    parser.add_argument("--turns", type=Path, help="folder of all runs that share the GPU")
    parser.add_argument("--show", action="store_true", help="the table of the files, no run")
    parser.add_argument("--page", type=Path, help="with --show: put the tables into this page")
    options = parser.parse_args()
    if options.show:
        text = "\n".join(table([read(file) for file in sorted(options.out.glob("*.json"))]))
        print(text)
        if options.page:
            options.page.write_text(put_into(options.page.read_text(), "roofs", text))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    points = [(model, mode) for mode in options.modes for model in options.models]
    found = [brought(model, mode, options) for model, mode in points]
    return int(not all(found))


def brought(model: str, mode: Mode, options: argparse.Namespace) -> bool:
    """Measure a point that has no file yet, and print its row; whether it has one now."""
    device: Device = options.device
    level = options.level or LEVELS[device]
    batch = options.batch or BATCHES[device][mode]
    size = f"{batch}x{options.resolution}" if options.resolution else str(batch)
    name = f"{model}-{mode}-{level.replace(':', '-')}-{options.precision}-{size}.json"
    if (options.out / name).exists():
        return True
    entry = ZOO[model]
    try:
        with TemporaryDirectory() as empty:
            found = golow.roof(
                model,
                level=level,
                mode=mode,
                batch=batch,
                sequence=min(TOKENS, entry.longest or TOKENS) if entry.sequence else None,
                resolution=options.resolution or side(entry, device),
                device=device,
                precision=options.precision,
                threads=options.threads,
                time_limit=RACE_SECONDS,
                cache=Path(empty),
                turn=Turn(options.turns) if options.turns else None,
                quiet=True,
            ).roof
    except golow.GolowError as error:
        print(f"{model} {mode}: {error.message}", flush=True)
        return False
    (options.out / name).write_bytes(msgspec.json.encode(found))
    print(row(found), flush=True)
    return True


def read(file: Path) -> Roof:
    return msgspec.json.decode(file.read_bytes(), type=Roof)


def table(roofs: Sequence[Roof]) -> Iterator[str]:
    """A heading, rows and what they were measured on, for each device, mode and precision."""
    groups: dict[tuple[str, str, str], list[Roof]] = defaultdict(list)
    for roof in roofs:
        workload = roof.workload
        groups[workload.device, workload.mode, workload.precision].append(roof)
    for (device, mode, precision), group in groups.items():
        yield f"### {device}, {mode}, {precision}"
        yield ""
        machine = group[0].environment
        where = ", ".join(dict.fromkeys(machine.gpu or (machine.cpu_model,)))
        peaks = between([roof.peak.operations for roof in group], "FLOP/s")
        yield f"{where}; measured: {peaks}, {between([roof.peak.bytes for roof in group], 'B/s')}."
        yield ""
        yield "| network | input | iteration | steps | of the roof | layout | build | lost most |"
        yield "|---|---|---|---|---|---|---|---|"
        yield from map(row, sorted(group, key=share))
        yield ""


def between(rates: Sequence[float], unit: str) -> str:
    """``754 TFLOP/s to 789 TFLOP/s``, or one rate if both are printed alike."""
    return " to ".join(dict.fromkeys(decimal_text(end(rates), unit) for end in (min, max)))


def row(roof: Roof) -> str:
    """One network: an iteration, the roof's share of its steps, and where most is lost."""
    shape = roof.workload.inputs[0].shape
    moved = sum(step.bytes for step in roof.steps)
    build = sum(cost.value for cost in roof.life if cost.name in ("capture", "build"))
    return (
        f"| {roof.workload.model} | {'x'.join(map(str, shape))} "
        f"| {seconds_text(roof.time.value if roof.time else None)} | {len(roof.steps)} "
        f"| {share_text(share(roof))} "
        f"| {bytes_text(roof.layout_bytes)}, {share_text(roof.layout_bytes / moved)} "
        f"| {seconds_text(build)} | {', '.join(losses(roof.steps))} |"
    )


def share(roof: Roof) -> float:
    """What all steps must take, over the time of an iteration."""
    return sum(step.least for step in roof.steps) / roof.time.value if roof.time else 0.0


def losses(steps: Sequence[StepRoof]) -> Iterator[str]:
    """``convolution 31%``: the share of the steps' time that is above their roof, by operation."""
    lost: dict[str, float] = defaultdict(float)
    for step in steps:
        lost[step.operation] += step.lost or 0.0
    taken = sum(step.seconds or 0.0 for step in steps)
    for operation in sorted(lost, key=lambda name: -lost[name])[:LOSSES]:
        yield f"{operation} {share_text(lost[operation] / taken)}"


if __name__ == "__main__":
    sys.exit(main())
