"""Races of real workers of known cost: how often each word comes, and what is made of a pause.

    python benchmarks/equal_and_slowed.py --races 20

Every race starts its workers anew, because two processes of one program differ for life. The tests
do the same a hundred times in virtual time (``tests/measure/test_race_noise.py``); this is a real
machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch
from torch import nn

from golow.measure.race import run_race
from golow.measure.rounds import Race
from golow.worker.client import Worker
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request

PAUSE = 0.01
KINDS = {
    "equal": (),
    "slower by 5%": ("--slower", "0.05"),
    f"a pause of {PAUSE * 1000:.0f} ms": ("--pause", str(PAUSE)),
}


def main() -> None:
    """Run the races in turn, so that a busy hour hits all kinds alike, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--races", type=int, default=10, help="of each kind")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds of a race")
    parser.add_argument("--interval", type=float, default=0.02, help="relative width to reach")
    given = parser.parse_args()
    races: dict[str, list[Race]] = {kind: [] for kind in KINDS}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        prepared = prepare(Request(nn.Linear(256, 256, bias=False), torch.randn(256, 256)))
        bundle, _ = write_bundle(prepared, Path(folder) / "bundle")
        for seed in range(given.races):
            for kind, options in KINDS.items():
                race = one_race(bundle, options, seed, given.time_limit, given.interval)
                races[kind].append(race)
                print(f"{seed + 1}/{given.races} {kind}: {text(race)}", file=sys.stderr)
    for kind, found in races.items():
        print(summary(kind, found))
    print(f"{3 * given.races} races in {time.monotonic() - began:.0f} s")


def one_race(
    bundle: Bundle, options: tuple[str, ...], seed: int, time_limit: float, interval: float
) -> Race:
    """A plain worker against one with the options."""
    plain = (sys.executable, "-m", "golow.worker.plant")
    with ExitStack() as stack:
        workers = [
            stack.enter_context(Worker(name, command, threads=1))
            for name, command in (("plain", plain), ("other", (*plain, *options)))
        ]
        for worker in workers:
            worker.load(bundle.folder)
        return run_race(
            workers, baseline="plain", seed=seed, time_limit=time_limit, target=interval
        )


def text(race: Race) -> str:
    """The ratio and how the race went."""
    ratio = race.ratio("other")
    how = f"{len(race.rounds)} rounds, {race.seconds:.0f} s, "
    how += f"{race.summary.contended_share:.0%} contended"
    if ratio is None:
        return f"no ratio, {how}"
    return f"{ratio.word}, {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}), {how}"


def summary(kind: str, races: list[Race]) -> str:
    """Words, ratios, and where there is one the pause that was found."""
    ratios = [ratio for race in races if (ratio := race.ratio("other"))]
    words = Counter(ratio.word for ratio in ratios)
    values = [ratio.value for ratio in ratios]
    contended = np.mean([race.summary.contended_share for race in races])
    line = (
        f"{kind}: {', '.join(f'{word} {n}' for word, n in words.most_common())} of {len(races)}; "
    )
    line += f"ratio {np.median(values):.3f} ({min(values):.3f} to {max(values):.3f}); "
    line += f"{contended:.0%} of the blocks contended"
    if "pause" in kind:
        found = [difference.value for race in races if (difference := race.difference("other"))]
        within = sum(abs(value / PAUSE - 1) < 0.05 for value in found)
        line += f"; pause found {np.median(found) * 1000:.2f} ms, within 5% in {within}"
    return line


if __name__ == "__main__":
    main()
