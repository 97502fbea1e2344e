"""`golow.compile` on networks that nobody tuned it for: built, called with several batches, checked
and given other weights.

    python benchmarks/compiled_networks.py                    # those of further_networks.py
    pip install 'golow[transformers]'
    python benchmarks/compiled_networks.py --networks hf:bert,hf:t5,Mixer
    python benchmarks/compiled_networks.py --device cuda --precision bf16

Prints a row for each network: seconds of the first and of a second compilation, what each part of
the trial said, and bytes of weights over the module's. Ends with status 1 if a result is wrong; a
network that the level lacks an operation for, or that mixes samples, is named and is no failure.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import golow
from further_networks import NETWORKS
from golow.lower.capture.module_outputs import leaves_of
from golow.workload.prepare import prepare
from golow.workload.request import Request
from huggingface_models import CONFIGURATIONS, WORDS, written

BATCHES = (1, 2, 4)
CALLED = (1, 3, 4)
NEAR = {"bf16": 0.1, "fp16": 0.05}  # else a thousandth: the check has the exact limit


class Trial(NamedTuple):
    """A network and an example with the largest batch."""

    name: str
    module: nn.Module
    inputs: tuple[Tensor, ...]


def main() -> int:
    """Try each network; returns the exit status."""
    options = arguments()
    good = True
    with TemporaryDirectory() as folder:
        for trial in trials(options, Path(folder)):
            found = outcome(trial, options)
            good &= "WRONG" not in found
            print(f"{trial.name:<18} {found}", flush=True)
    return 0 if good else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precision", default="default")
    return parser.parse_args()


def trials(options: argparse.Namespace, folder: Path) -> Iterator[Trial]:
    """The networks in ``eval()`` on the device, with random weights."""
    for name in options.networks.split(","):
        torch.manual_seed(0)
        if name in NETWORKS:
            module: nn.Module = NETWORKS[name]()
            inputs: tuple[Tensor, ...] = (torch.randn(BATCHES[-1], *NETWORKS[name].sample),)
        else:
            known = name.removeprefix("hf:")
            if known not in CONFIGURATIONS:
                raise SystemExit(f"there is no network {name}")
            prepared = prepare(
                Request(
                    f"hf:{written(known, folder)}", pretrained=False, batch=BATCHES[-1],
                    sequence=16 if known in WORDS else None,
                )
            )  # fmt: skip
            module, inputs = prepared.module, prepared.batches[0].inputs
        placed = tuple(item.to(options.device) for item in inputs)
        yield Trial(name, module.eval().to(options.device), placed)


def outcome(trial: Trial, options: argparse.Namespace) -> str:
    """What the trial says, in one line."""
    settings: dict[str, Any] = {"precision": options.precision, "quiet": True}
    said = []
    try:
        start = time.perf_counter()
        f = golow.compile(trial.module, trial.inputs, batch=list(BATCHES), **settings)
    except golow.GolowError as error:
        said.append(f"with batches: {error.message.splitlines()[0]}")
        try:
            start = time.perf_counter()
            f = golow.compile(trial.module, trial.inputs, **settings)
        except golow.GolowError as other:
            return f"refused: {other.message.splitlines()[0]}"
    first = time.perf_counter() - start
    sizes = CALLED if f.inputs.pads else (BATCHES[-1],)
    said += [f"batch {rows} WRONG" for rows in sizes if not agrees(f, trial, rows, options)]
    if not f.check(*trial.inputs).matches:
        said.append("check WRONG")
    f.load_state_dict(shaken(trial.module))
    if not agrees(f, trial, sizes[-1], options):
        said.append("other weights WRONG")
    share = f.memory()["weights"] / sum(item.nbytes for item in trial.module.state_dict().values())
    f.close()
    start = time.perf_counter()
    golow.compile(trial.module, trial.inputs, batch=list(sizes), **settings).close()
    second = time.perf_counter() - start
    return f"{first:6.1f} s {second:6.1f} s  weights {share:.2f}  {'; '.join(said) or 'right'}"


def agrees(f: Any, trial: Trial, rows: int, options: argparse.Namespace) -> bool:
    """Whether the callable gives what the module gives, roughly."""
    given = tuple(item[:rows] if item.shape[0] == BATCHES[-1] else item for item in trial.inputs)
    limit = NEAR.get(options.precision, 1e-3)
    with torch.inference_mode():
        pairs = zip(leaves_of(f(*given)), leaves_of(trial.module(*given)), strict=True)
        return all(
            one.shape == other.shape
            and bool((one - other).float().norm() <= limit * other.float().norm() + 1e-6)
            for one, other in pairs
            if other.is_floating_point()
        )


def shaken(module: nn.Module) -> Mapping[str, Tensor]:
    """Other weights, which the module takes, too."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1 + 0.01 * torch.randn_like(parameter))
    return module.state_dict()


if __name__ == "__main__":
    sys.exit(main())
