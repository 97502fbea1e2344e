"""Reads the plans of many networks: what each loses against the least that its graph needs.

    pip install 'golow[onednn,timm,transformers]' torchvision
    python benchmarks/survey.py --jobs 2
    python benchmarks/survey.py --groups timm,further --each 2 --modes infer --plans bf16
    python benchmarks/survey.py --networks timm:hiera_tiny_224,hf:albert
    python benchmarks/survey.py --show --page docs/results/survey.md

No GPU is needed, and nothing is downloaded or timed. For each network of timm (--each members of a
file), torchvision, transformers (small configurations) and `further_networks.py`, in both modes:
whether it is captured, what `cudnn` refuses in bf16 and tf32 and `onednn` in float32, the steps of
the plan, the bytes that it moves for layout alone, and its predicted time, each step the longer of
its bytes and its operations at the machine's rates plus a launch; against the least of
`survey_least.py`. The GPU is --gpu by its published figures, the CPU has nominal rates.

Each network has a process of its own with one thread, --jobs at a time, each --seconds at most,
forked from one that has imported the libraries. Its record is appended to --records as a line of
JSON; a network whose record has all modes and plans is left out, so that the survey can be stopped
and continued. Networks that failed before come last. --show prints the tables of all records;
--page puts them between the marks of a page, ``<!-- survey: begin -->`` and its end.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch._dynamo  # each network's capture imports it: once, before the processes are forked

from golow.levels.nvidia.known_gpus import named
from golow.storage.files import write_whole
from networks import listed
from page_part import put_into
from survey_networks import names
from survey_page import tables
from survey_plans import PLANS, surveyed, words

GROUPS = ("further", "timm", "torchvision", "transformers")
MODES = ("infer", "train")


def main() -> int:
    """Survey what has no record yet, or show the records."""
    options = arguments()
    if options.show:
        return show(options)
    done = {record["network"]: record for record in latest(records(options.records))}
    wanted = dict.fromkeys(options.networks or names(options.groups, options.each, print))
    left = [name for name in wanted if name not in done or not covers(done[name], options)]
    left.sort(key=lambda name: name in done)
    print(f"{len(wanted) - len(left)} networks have a record, {len(left)} have none", flush=True)
    for record in in_processes(left, options):
        append(record, options.records)
        print(record["network"], record.get("failed", f"{record['took']} s"), flush=True)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--groups", type=listed, default=GROUPS)
    parser.add_argument("--each", type=int, default=1, help="members of each file of timm")
    parser.add_argument("--networks", type=listed, default=())
    parser.add_argument("--modes", type=listed, default=MODES)
    parser.add_argument("--plans", type=listed, default=tuple(PLANS))
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0, help="for one network")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds in all")
    parser.add_argument("--records", type=Path, default=Path("survey.jsonl"))
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--page", type=Path, help="with --show: put the tables into this page")
    options = parser.parse_args()
    for name, known in (("groups", GROUPS), ("modes", MODES), ("plans", tuple(PLANS))):
        if unknown := set(getattr(options, name)) - set(known):
            parser.error(f"--{name}: no {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return options


def show(options: argparse.Namespace) -> int:
    """Print the tables, or put them into the page."""
    text = tables(latest(records(options.records)), named(options.gpu).title)
    if options.page:
        page = put_into(options.page.read_text(), "survey", text)
        write_whole(options.page, page.encode())
    else:
        print(text)
    return 0


def records(file: Path) -> list[dict[str, Any]]:
    """The records so far; a line that a kill cut short is none."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{file}: a line is damaged and left out", file=sys.stderr)
    return found


def latest(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One record a network, with the last result of each mode and plan."""
    merged: dict[str, dict[str, Any]] = {}
    for record in found:
        before = merged.get(record["network"], {}).get("results", ())
        results = {(r["mode"], r.get("plan")): r for r in (*before, *record.get("results", ()))}
        merged[record["network"]] = {**record, "results": list(results.values())}
        if results:
            merged[record["network"]].pop("failed", None)
    return list(merged.values())


def covers(record: dict[str, Any], options: argparse.Namespace) -> bool:
    """Whether the record answers all that is asked of its network."""
    known = {(r["mode"], r.get("plan")) for r in record.get("results", ())}
    asked = ((mode, plan) for mode in options.modes for plan in options.plans)
    return all((mode, None) in known or (mode, plan) in known for mode, plan in asked)


def append(record: dict[str, Any], file: Path) -> None:
    """Add a line to the records."""
    with file.open("a+b") as open_file:  # the line before may have been cut short
        open_file.seek(max(open_file.seek(0, 2) - 1, 0))
        broken = open_file.read() not in (b"", b"\n")
        open_file.write(b"\n" * broken + json.dumps(record).encode() + b"\n")


# ---------------------------------------------------------------- processes


class Running(NamedTuple):
    """A network's process, and the end of the pipe at which its record arrives."""

    network: str
    process: BaseProcess
    answer: Connection
    begun: float


def in_processes(left: Iterable[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Survey each network in a process of its own; yield records in the order in which they end."""
    waiting, running = deque(left), list[Running]()
    begun = time.monotonic()
    while waiting or running:
        while waiting and len(running) < options.jobs:
            if time.monotonic() - begun > options.budget:
                waiting.clear()
                break
            running.append(started(waiting.popleft(), options))
        ready = wait([item.answer for item in running], timeout=1.0)
        for item in tuple(running):
            late = time.monotonic() - item.begun > options.seconds
            if item.answer in ready or late:
                running.remove(item)
                yield ended(item, options.seconds)


def started(name: str, options: argparse.Namespace) -> Running:
    """A process that surveys the network."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    given = (sender, name, options.modes, options.plans, options.gpu)
    process = context.Process(target=answer, args=given, daemon=True)
    process.start()
    sender.close()
    return Running(name, process, receiver, time.monotonic())


def ended(item: Running, limit: float) -> dict[str, Any]:
    """The record of a process that answered, or that took too long, and its end."""
    found = {"failed": f"did not finish within {limit:.0f} s"}
    if item.answer.poll():
        try:
            found = item.answer.recv()
        except EOFError:
            item.process.join()
            found = {"failed": f"its process ended with exit status {item.process.exitcode}"}
    item.process.kill()
    item.process.join()
    item.answer.close()
    return {"network": item.network, "took": round(time.monotonic() - item.begun), **found}


def answer(sender: Connection, name: str, *asked: Any) -> None:
    """Send the network's record."""
    torch.set_num_threads(1)
    try:
        found = surveyed(name, *asked)
    except Exception as error:  # the next network is not to wait for it
        found = {"failed": words(error)}
    sender.send(found)


if __name__ == "__main__":
    sys.exit(main())
