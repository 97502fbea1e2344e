"""Is the lowest level the fastest on networks that nobody tuned for, too?

    python benchmarks/race_further_networks.py --batch 1
    python benchmarks/race_further_networks.py --mode train --batch 8 --networks Volumes,Detector
    python benchmarks/race_further_networks.py --device cuda --precision bf16 --batch 8
    python benchmarks/race_further_networks.py --networks torchvision.models:vgg11 --sample 3x96x96
    python benchmarks/race_further_networks.py --networks hf:llama.json --sequence 128

The networks are those of `further_networks.py`, or any model as golow names one (MODULE:NAME,
FILE.py:NAME, hf:NAME or timm:NAME; of hf: and timm: with random weights), with samples of the shape
--sample; those of hf: take their own shapes, and --sequence tokens of text. A race is that of
`networks.py`: every level is proved equal first, then all are timed in turn. Standard output gets a
line of text for each.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import get_args

import golow
from further_networks import NETWORKS
from golow.records.comparison import Run
from golow.records.workload import Device, Mode, Precision
from golow.worker.time_limits import Limits
from golow.worker.turn import Turn
from networks import OURS, listed, memory, over

FILE = Path(__file__).parent / "further_networks.py"
RIVALS = {
    ("cpu", "infer"): ("compile:freezing", "onnxruntime", "openvino"),
    ("cpu", "train"): ("eager:channels_last",),
    ("cuda", "infer"): ("compile:freezing-cudagraphs", "cudagraph:channels_last"),
    ("cuda", "train"): ("compile:cudagraphs", "cudagraph:channels_last"),
}
LOAD_SECONDS = 300.0


def main() -> int:
    """Race at every network that was asked for; 1 if one of them failed."""
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
    parser.add_argument("--turns", type=Path, help="folder of all runs that share the GPU")
    options = parser.parse_args()
    if unknown := [n for n in options.networks if n not in NETWORKS and ":" not in n]:
        parser.error(f"--networks: there is no {', '.join(unknown)}; known: {', '.join(NETWORKS)}")
    brought = [raced(name, options) for name in options.networks]
    return int(not all(brought))


def raced(name: str, options: argparse.Namespace) -> bool:
    """Race and print a line; whether it brought a time."""
    begun, own, device = time.monotonic(), NETWORKS.get(name), options.device
    sample = None if name.startswith("hf:") else own.sample if own else options.sample
    try:
        result = golow.compare(
            f"{FILE}:{name}" if own else name,
            mode=options.mode,
            batch=options.batch,
            input_shape=sample,
            sequence=options.sequence,
            pretrained=False if name.startswith(("hf:", "timm:")) else None,
            levels=[*(options.levels or RIVALS[device, options.mode]), OURS[device]],
            device=device,
            precision=options.precision,
            threads=options.threads,
            time_limit=options.seconds,
            limits=Limits(load=LOAD_SECONDS),
            turn=Turn(options.turns) if options.turns else None,
            brief=True,
        )
    except golow.GolowError as error:
        print(f"{name}: {error.message}", flush=True)
        return False
    runs = {run.level: run for run in result.comparison.runs}
    ours = runs.pop(OURS[device])
    if ours.time is None:
        print(f"{name}: {ours.check.verdict}: {ours.check.words}", flush=True)
        return False
    ratios = ", ".join(against(run, ours, result.comparison.race.seed) for run in runs.values())
    held = [memory(run, device) for run in (ours, runs["eager"])]
    share = f"{held[0] / held[1]:.2f}" if held[0] and held[1] else "-"
    seconds = time.monotonic() - begun
    print(
        f"{name}: {ours.time.value * 1e3:.3g} ms; {ratios}; memory {share} [{seconds:.0f} s]",
        flush=True,
    )
    return True


def shape(text: str) -> tuple[int, ...]:
    """``3x224x224``."""
    return tuple(map(int, text.split("x")))


def against(run: Run, ours: Run, seed: int) -> str:
    """``openvino 1.12 (1.10-1.15)``: its time over ours."""
    found = over(run, ours, seed) if run.time is not None else None
    if found is None:
        return f"{run.level}: {run.check.words or 'no round with both'}"
    return f"{run.level} {found.value:.2f} ({found.low:.2f}-{found.high:.2f})"


if __name__ == "__main__":
    raise SystemExit(main())
