"""The verdict of levels for every classification model of torchvision, with random weights.

    python benchmarks/torchvision_models.py --levels onednn --jobs 12 [--mode train] [--device cuda]
    python benchmarks/torchvision_models.py --models resnet18,swin_t --batch 4

Prints a line of JSON for each model: the verdict of each level with the worst tensor's share of its
limit, and its working memory over eager's. Ends with status 1 unless all match. Each model has a
process of its own with one thread, --jobs at a time, each --seconds at most. With --budget no
model begins after so many seconds. The race is cut to a moment: this is about correctness.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import golow
from every_model import text
from golow.records.workload import Device, Mode

SIDES = {"inception_v3": 299, "maxvit_t": 224}  # of an image, whatever --side says; every ViT: 224
AUXILIARY = ("googlenet", "inception_v3")  # in training their outputs are two or three


def main() -> int:
    """Compare every model; returns the exit status."""
    options = arguments()
    if options.one:
        print(json.dumps(verdicts(options.one, options)), flush=True)
        return 0
    begun = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(lambda name: in_its_process(name, options, begun), names(options)))
    matching = sum(all(words.startswith("match") for words in verdict) for verdict in found)
    print(f"{matching} of {len(found)} match")
    return 0 if matching == len(found) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--levels", default="onednn")
    parser.add_argument("--models", default="")
    parser.add_argument("--mode", default="infer", choices=get_args(Mode))
    parser.add_argument("--device", default="cpu", choices=get_args(Device))
    parser.add_argument("--batch", default="2")
    parser.add_argument("--side", default="224", help="of an image")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--budget", type=float, default=float("inf"))
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def names(options: argparse.Namespace) -> list[str]:
    """Those asked for, or all classification models."""
    if options.models:
        return str(options.models).split(",")
    from torchvision import models

    return list(models.list_models(module=models))


def in_its_process(name: str, options: argparse.Namespace, begun: float) -> list[str]:
    """The verdicts of one model, printed as soon as they are known."""
    if time.monotonic() - begun > options.budget:
        return ["not begun"]
    command = [sys.executable, __file__, "--one", name]
    for option in ("levels", "mode", "device", "batch", "side"):
        command += [f"--{option}", getattr(options, option)]
    started = time.monotonic()
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds)
        printed = ended.stdout.splitlines()
        said = json.loads(printed[-1]) if printed else {"failed": ended.stderr[-300:]}
    except subprocess.TimeoutExpired:
        said = {"failed": f"did not finish within {options.seconds:.0f} s"}
    print(
        json.dumps({"model": name, "took": round(time.monotonic() - started), **said}), flush=True
    )
    return [str(words) for key, words in said.items() if key != "memory"]


def verdicts(name: str, options: argparse.Namespace) -> dict[str, object]:
    """By level its verdict, and the levels' working memory over eager's."""
    side = 224 if name.startswith("vit") else SIDES.get(name, int(options.side))
    levels = str(options.levels).split(",")
    loss = "mse_of_outputs" if options.mode == "train" and name in AUXILIARY else None
    try:
        found = golow.compare(
            f"torchvision.models:{name}", mode=options.mode, device=options.device,
            batch=int(options.batch), input_shape=(3, side, side), levels=["eager", *levels],
            loss=loss, threads=1, time_limit=0.1, brief=True, quiet=True,
        )  # fmt: skip
    except golow.GolowError as error:
        return {"failed": error.message}
    # What an iteration holds beside weights and inputs.
    eager, *held = (found.run(level).quantity("allocated_peak") for level in ("eager", *levels))
    over = [round(own / eager, 2) for own in held if own and eager]
    return {level: text(found.run(level)) for level in levels} | {"memory": over}


if __name__ == "__main__":
    sys.exit(main())
