"""How often is a cheat believed, and how often is an honest worker refused?

    PYTHONPATH=tests python benchmarks/cheats_and_honest.py --cheats 20
    PYTHONPATH=tests python benchmarks/cheats_and_honest.py --honest 100
    PYTHONPATH=tests python benchmarks/cheats_and_honest.py --show --page race_proof.md

Cheats race beside an honest worker, in the cases of tests/support/plants/cheated_races.py. Honest
levels race on networks of the zoo, in both modes in turn. Every race adds its workers to --out, a
line each, with the load of the machine; a race that is there is not run again. With --part 1/4 only
every fourth race is run, so that four processes share them. --show prints for each worker its races
and those after which it has a time, or was cut: on busy cores a race may be over before a worker's
times can be checked. A cheat must never have a time, and an honest worker must never be refused.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

import golow
from page_part import put_into
from support.plants.cheated_races import BELIEVED_ONCE, race

LEVELS = ("eager:channels_last", "torchscript", "compile", "libtorch", "direct", "direct:called")
INFER_ONLY = ("onnxruntime", "openvino", "aotinductor")
NETWORKS = [(name, mode) for mode in ("infer", "train") for name in ("lenet5", "mnist_cnn")]
UNABLE = ("unsupported", "unavailable")


class Ended(msgspec.Struct, frozen=True):
    """A worker after a race. race: its name and number. load: of the machine, of one minute.
    cores: of the machine. refused: for what the worker has no time, or the verdict of its check if
    it had no turn; empty if it has a time."""

    race: str
    worker: str
    cheats: bool
    load: float
    cores: int
    refused: str

    @property
    def was_cut(self) -> bool:
        """Whether the race was over before the worker had a time that could be checked."""
        return self.refused == "match" or self.refused.startswith("the race ended")


def main() -> int:
    options = arguments()
    known = read(options.out)
    if options.show:
        text = "\n".join([*table(known), ""])
        print(text)
        if options.page:
            options.page.write_text(put_into(options.page.read_text(), "cheats", text))
        return 0
    done = {ended.race for ended in known}
    part, parts = options.part
    for name in [*wanted(options)][part - 1 :: parts]:
        if name not in done:
            lines = map(msgspec.json.encode, run(name, options.seconds))
            with options.out.open("ab") as file:
                file.write(b"\n".join([*lines, b""]))
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--cheats", type=int, default=0, help="races of each case of cheats")
    parser.add_argument("--honest", type=int, default=0, help="races of honest levels")
    parser.add_argument("--part", type=part, default=(1, 1), help="of the races, such as 1/4")
    parser.add_argument("--seconds", type=float, default=12.0, help="of a race")
    parser.add_argument("--out", type=Path, default=Path("runs/cheats_and_honest.jsonl"))
    parser.add_argument("--show", action="store_true", help="the table of --out, no race")
    parser.add_argument("--page", type=Path, help="with --show: put it into this page")
    return parser.parse_args()


def part(text: str) -> tuple[int, int]:
    """``1/4``: the first of four parts."""
    number, _, of = text.partition("/")
    return int(number), int(of)


def read(file: Path) -> list[Ended]:
    """The lines of a file; none if it does not exist."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=Ended) for line in lines]


def wanted(options: argparse.Namespace) -> Iterator[str]:
    """The names of all races."""
    for number in range(options.cheats):
        yield from (f"cheats {case} {number}" for case in BELIEVED_ONCE)
    for number in range(options.honest):
        yield " ".join(("honest", *NETWORKS[number % len(NETWORKS)], str(number)))


def run(name: str, seconds: float) -> list[Ended]:
    """Run a race; return its workers."""
    kind, *case, _ = name.split()
    with tempfile.TemporaryDirectory() as cache:
        if kind == "cheats":
            found = race(case[0], seconds, Path(cache))
            cheats = set(BELIEVED_ONCE[case[0]].reasons)
        else:
            model, mode = case
            levels = ["eager", *LEVELS, *(INFER_ONLY if mode == "infer" else ())]
            found = golow.compare(
                model, batch=4, mode=mode, levels=levels, time_limit=seconds, brief=True
            )
            cheats = set()
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return [
        Ended(name, run.level, run.level in cheats, load, cores, reason)
        for run in found.comparison.runs
        if run.check.verdict not in UNABLE
        for reason in ["" if run.time is not None else run.check.reason or run.check.verdict]
    ]


def table(known: Sequence[Ended]) -> Iterator[str]:
    """The machines, then a row a worker."""
    for cores in sorted({ended.cores for ended in known}):
        loads = {ended.race: ended.load for ended in known if ended.cores == cores}
        yield (
            f"{len(loads)} races on {cores} cores whose load was {min(loads.values()):.0f} to "
            f"{max(loads.values()):.0f}."
        )
    yield ""
    yield "| worker | cheats | races | with a time | cut | refused |"
    yield "|---|---|---|---|---|---|"

    def order(ended: Ended) -> tuple[bool, str]:
        return not ended.cheats, ended.worker

    for (honest, worker), group in groupby(sorted(known, key=order), order):
        ended = list(group)
        timed = sum(not item.refused for item in ended)
        cut = sum(item.was_cut for item in ended)
        yield (
            f"| {worker} | {'no' if honest else 'yes'} | {len(ended)} | {timed} | {cut} "
            f"| {len(ended) - timed - cut} |"
        )


if __name__ == "__main__":
    raise SystemExit(main())
