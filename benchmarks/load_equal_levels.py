"""Are two equal levels called equal under load? One level, loaded twice at a time, in many tries.

    python benchmarks/load_equal_levels.py --model lenet5 --level eager --rate 200 --tries 20

Each try has two processes of the same level and compares their percentiles as `golow load` does. A
try is wrong if a percentile is called faster or slower. The exit status is 1 if more than one try
in twenty is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack

from golow.observer import Silent
from golow.programs.load.cores import divided
from golow.programs.load.early_stopping import PERCENTILES
from golow.programs.load.level_under_load import Place
from golow.programs.load.load import loaded
from golow.programs.load.proof import Proof
from golow.programs.load.settings import LoadSettings, plan_of, require_loadgen
from golow.programs.load.tested_level import TestedLevel
from golow.programs.load.verdict import Apart, apart_in_turn, pooled
from golow.storage.cache import open_cache
from golow.storage.scratch import scratch_folder
from golow.worker.time_limits import Limits
from golow.workload.bundle import write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request


def told(options: argparse.Namespace, seed: int) -> dict[float, Apart]:
    """What one try says of the second process against the first, by percentile."""
    settings = LoadSettings(
        scenarios=["server"],
        rates=[options.rate],
        max_batch=options.max_batch,
        seconds=options.seconds,
        repeats=options.repeats,
    )
    plan = plan_of(settings, seed)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        prepared = prepare(Request(options.model, batch=plan.most, threads=1))
        bundle, _ = write_bundle(prepared, folder / "bundle")
        proof = Proof(bundle, folder)
        cores = divided(sorted(os.sched_getaffinity(0)), 1)
        place = Place(bundle, folder, plan, cores, proof.count, open_cache(None), Limits())
        pair = [stack.enter_context(TestedLevel(options.level, place, proof)) for _ in range(2)]
        if loaded(pair, plan, Silent()):
            raise KeyboardInterrupt
        first, second = (level.record().of("server", options.rate) for level in pair)
    shares = [share for share in PERCENTILES if pooled(first, share)]
    return {share: apart_in_turn(second, first, share) for share in shares}


def main() -> None:
    """Count the tries that are wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="lenet5")
    parser.add_argument("--level", default="eager")
    parser.add_argument("--rate", type=float, default=200.0, help="requests per second")
    parser.add_argument("--max-batch", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tries", type=int, default=20)
    options = parser.parse_args()
    require_loadgen()
    wrong = 0
    for number in range(options.tries):
        words = told(options, number)
        wrong += bool({"faster", "slower"} & set(words.values()))
        shown = ", ".join(f"p{100 * share:g} {word}" for share, word in words.items())
        print(f"try {number + 1}: {shown}", flush=True)
    print(f"{options.tries - wrong} of {options.tries} tries called no percentile different")
    sys.exit(wrong > options.tries / 20)


if __name__ == "__main__":
    main()
