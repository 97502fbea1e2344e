"""Hostile inputs by the thousand: does golow answer each with a clear message?

    python benchmarks/hostile_inputs.py [--count 2000] [--seed 0] [--kinds comparison,model-file]

Each case is made from the seed. A fault is a traceback, a status that the case does not allow, a
hang, more than 4 GiB of memory, raw control characters in what is printed, or no message. The
status is 1 if there is a fault; its files stay in the folder that is named. The generators are in
tests/hostile, where the suite takes a few cases of each kind.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from hostile.kinds import KINDS, Taken, run_kind
from hostile.runner import warm_runner


def main() -> int:
    """Run the cases; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="cases in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of a case")
    given = parser.parse_args()
    kinds = given.kinds.split(",")
    scratch = Path(tempfile.mkdtemp(prefix="golow-hostile-"))
    scratch.chmod(0o755)
    faulty, statuses, began = 0, Counter[int | None](), time.monotonic()
    with warm_runner(scratch / "cache") as runner:
        for place, name in enumerate(kinds):
            numbers = range(place, given.count, len(kinds))
            for taken in run_kind(name, numbers, given.seed, runner, scratch, given.seconds):
                statuses[taken.outcome.status] += 1
                if taken.faults:
                    faulty += 1
                    report(taken)
            print(f"{name}: {len(numbers)} cases, {time.monotonic() - began:.0f} s", flush=True)
    told = ", ".join(f"{count} with status {status}" for status, count in statuses.most_common())
    print(f"{sum(statuses.values())} cases, {faulty} with a fault; {told}")
    print(f"files of the faults: {scratch}")
    return 1 if faulty else 0


def report(taken: Taken) -> None:
    """What was hostile, what is wrong, and the end of what golow printed."""
    print(f"\nFAULT {taken.name}: {'; '.join(taken.faults)}")
    print(f"  {taken.case.title[:300]!r}")
    print(f"  {taken.case.arguments!r}{taken.case.code}"[:600])
    for line in taken.outcome.error.splitlines()[-6:]:
        print(f"  | {line[:200]!r}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
