"""Is the lowest level the fastest on networks that nobody tuned for, too?

    python benchmarks/race_further_networks.py --batch 1
    python benchmarks/race_further_networks.py --mode train --batch 8 --networks Volumes,Detector
    python benchmarks/race_further_networks.py --device cuda --precision bf16 --batch 8 --together 6
    python benchmarks/race_further_networks.py --networks torchvision.models:vgg11 --sample 3x96x96
    python benchmarks/race_further_networks.py --networks hf:llama.json --sequence 128
    python benchmarks/race_further_networks.py --show --page docs/results/further_networks.md

The networks are those of `further_networks.py`, or any model as golow names one (MODULE:NAME,
FILE.py:NAME, hf:NAME or timm:NAME; of hf: and timm: with random weights), with samples of the shape
--sample; those of hf: take their own shapes, and --sequence tokens of text. A race is that of
`networks.py`: every level is proved equal first, then all are timed in turn. Standard output gets a
line of text for each, and its record is a folder in --out. With --together N, N networks are
prepared at the same time, each in a process of its own, and raced in turn when the last one is
ready. --show prints the records of a device as tables, a table a mode, precision and batch, and
puts them into a page.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import get_args

import golow
from further_networks import NETWORKS
from golow.programs.comparison.store import load
from golow.records.comparison import Comparison, Run
from golow.records.workload import Device, Mode, Precision
from golow.worker.time_limits import Limits
from golow.worker.turn import Turn
from networks import OURS, listed, memory, over
from page_part import put_into
from together import AfterAll, add_options, run_in_groups, turn

FILE = Path(__file__).parent / "further_networks.py"
RIVALS = {
    ("cpu", "infer"): ("compile:freezing", "onnxruntime", "openvino"),
    ("cpu", "train"): ("eager:channels_last",),
    ("cuda", "infer"): ("compile:freezing-cudagraphs", "cudagraph:channels_last"),
    ("cuda", "train"): ("compile:cudagraphs", "cudagraph:channels_last"),
}
LOAD_SECONDS = 300.0


def main() -> int:
    """Race at every network that was asked for, or show the records; 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--networks", type=listed, default=tuple(NETWORKS))
    parser.add_argument("--mode", choices=get_args(Mode), default="infer")
    parser.add_argument("--device", choices=get_args(Device), default="cpu")
    parser.add_argument("--precision", choices=get_args(Precision), default="default")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--levels", type=listed, help="instead of the rivals of the mode")
    parser.add_argument("--seconds", type=float, default=8.0, help="of racing at a network")
    parser.add_argument("--sample", type=shape, default=(3, 224, 224), help="of any other model")
    parser.add_argument("--sequence", type=int, help="tokens of a text")
    parser.add_argument("--together", type=int, help="networks prepared at the same time")
    add_options(parser)
    parser.add_argument("--out", type=Path, default=Path("runs/further_networks"))
    parser.add_argument("--show", action="store_true", help="the tables of the records, no race")
    parser.add_argument("--page", type=Path, help="with --show: put them into this page")
    options = parser.parse_args()
    if options.show:
        return show(options)
    if unknown := [n for n in options.networks if n not in NETWORKS and ":" not in n]:
        parser.error(f"--networks: there is no {', '.join(unknown)}; known: {', '.join(NETWORKS)}")
    if options.together:
        return int(not run_in_groups(options.networks, options.together, "--networks"))
    place = turn(options)
    brought = [raced(name, options, place) for name in options.networks]
    return int(not all(brought))


def raced(name: str, options: argparse.Namespace, place: Turn) -> bool:
    """Race and print a line; whether it brought a time."""
    begun, own, device = time.monotonic(), NETWORKS.get(name), options.device
    sample = None if name.startswith("hf:") else own.sample if own else options.sample
    try:
        result = golow.compare(
            f"{FILE}:{name}" if own else name,
            mode=options.mode,
            batch=options.batch,
            input_shape=sample,
            sequence=options.sequence if name.startswith("hf:") else None,
            pretrained=False if name.startswith(("hf:", "timm:")) else None,
            levels=[*(options.levels or RIVALS[device, options.mode]), OURS[device]],
            device=device,
            precision=options.precision,
            threads=options.threads,
            time_limit=options.seconds,
            limits=Limits(load=LOAD_SECONDS),
            turn=place,
            brief=True,
        )
    except golow.GolowError as error:
        print(f"{name}: {error.message}", flush=True)
        return False
    finally:
        if isinstance(place, AfterAll):
            place.ready()
    result.save(options.out)
    runs = {run.level: run for run in result.comparison.runs}
    ours = runs.pop(OURS[device])
    if ours.time is None:
        print(f"{name}: {ours.check.verdict}: {ours.check.words}", flush=True)
        return False
    ratios = ", ".join(against(run, ours, result.comparison.race.seed) for run in runs.values())
    share = over_eager(ours, runs["eager"])
    seconds = time.monotonic() - begun
    print(
        f"{name}: {ours.time.value * 1e3:.3g} ms; {ratios}; memory {share} [{seconds:.0f} s]",
        flush=True,
    )
    return True


def over_eager(ours: Run, eager: Run) -> str:
    """The level's memory over eager's."""
    held = [memory(run, ours.workload.device) for run in (ours, eager)]
    return f"{held[0] / held[1]:.2f}" if held[0] and held[1] else "-"


def shape(text: str) -> tuple[int, ...]:
    """``3x224x224``."""
    return tuple(map(int, text.split("x")))


def against(run: Run, ours: Run, seed: int) -> str:
    """``openvino 1.12 (1.10-1.15)``: its time over ours."""
    found = spelled(run, ours, seed)
    if found == "-":
        return f"{run.level}: {run.check.words or 'no round with both'}"
    return f"{run.level} {found}"


def spelled(run: Run, ours: Run, seed: int) -> str:
    """``1.12 (1.10-1.15)``: its time over ours; ``-`` if there is none."""
    found = over(run, ours, seed) if run.time is not None else None
    return "-" if found is None else f"{found.value:.2f} ({found.low:.2f}-{found.high:.2f})"


# ---------------------------------------------------------------- the page


def show(options: argparse.Namespace) -> int:
    """Print the tables of the device's records, and put them into the page; 2 without records."""
    found = [load(file.parent) for file in sorted(options.out.glob("*/comparison.json"))]
    found = [one for one in found if one.workload.device == options.device]
    if not found:
        print(f"{options.out} has no records of {options.device}", file=sys.stderr)
        return 2
    text = "\n".join(tables(found))
    print(text)
    if options.page:
        options.page.write_text(put_into(options.page.read_text(), options.device, text))
    return 0


def tables(found: Sequence[Comparison]) -> Iterator[str]:
    """A table a mode, precision and batch; in each the networks by their names."""
    machine = found[0].runs[0].environment
    threads = f"{machine.cpu_model}, {found[0].workload.threads} threads"
    torch = machine.versions.get("torch", "?")
    yield f"{', '.join(machine.gpu or (threads,))}, torch {torch}, {found[0].created[:10]}."
    for (mode, precision, batch), group in groupby(sorted(found, key=setting), key=setting):
        some = list(group)
        ours = OURS[some[0].workload.device]
        rivals = list(dict.fromkeys(run.level for one in some for run in one.runs))
        rivals.remove(ours)
        what = {"infer": "Inference", "train": "Training"}[mode]
        heads = [f"`{ours}`", *(f"{level} / ours" for level in rivals), "memory over eager's"]
        yield f"\n{what}, precision {precision}, batch {batch}:\n"
        yield f"| network | {' | '.join(heads)} |"
        yield f"|{'---|' * (len(heads) + 1)}"
        yield from sorted(row(one, rivals) for one in some)


def setting(found: Comparison) -> tuple[str, str, int]:
    """What the networks of one table share."""
    return found.workload.mode, found.workload.precision, found.workload.batch


def row(found: Comparison, rivals: Sequence[str]) -> str:
    """The level's time, and the others' over it."""
    runs = {run.level: run for run in found.runs}
    ours = runs[OURS[found.workload.device]]
    if ours.time is None:
        return f"| {found.workload.model} | {ours.check.verdict} |{' - |' * (len(rivals) + 1)}"
    cells = [f"{ours.time.value * 1e3:.3g} ms"]
    cells += [
        spelled(runs[name], ours, found.race.seed) if name in runs else "-" for name in rivals
    ]
    cells.append(over_eager(ours, runs["eager"]) if "eager" in runs else "-")
    return f"| {found.workload.model} | {' | '.join(cells)} |"


if __name__ == "__main__":
    raise SystemExit(main())
