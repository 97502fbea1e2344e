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

Each network has a process of its own with one thread, --jobs at a time, each --seconds at most. Its
record is appended to --records as a line of JSON; a network whose record has all modes and plans is
left out, so that the survey can be stopped and continued. --show prints the tables of all records;
--page puts them between the marks of a page, ``<!-- survey: begin -->`` and its end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from golow.levels import ladder
from golow.levels.nvidia.known_gpus import named
from golow.lower.analysis.arithmetic import step_operations
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.lower.plan.memory_traffic import layout_bytes, moved_bytes
from golow.lower.plan.plan import Plan
from golow.programs.explain.show_lowering import plan_of
from golow.records.errors import GolowError, Unsupported
from golow.storage.files import write_whole
from golow.workload.graph_capture import capture
from golow.workload.prepare import Prepared, prepare_for_absent
from networks import listed
from page_part import put_into
from survey_least import Rates, least_seconds
from survey_networks import names, request
from survey_page import tables

GROUPS = ("further", "timm", "torchvision", "transformers")
MODES = ("infer", "train")
# By name of a plan: level, device and precision.
PLANS = {
    "bf16": ("cudnn:autotune", "cuda", "bf16"),
    "tf32": ("cudnn:autotune", "cuda", "tf32"),
    "float32": ("onednn", "cpu", "default"),
}
# Bytes and operations per second of two cores with AVX2, and seconds of a call of the library.
CPU = Rates(30e9, 150e9, 1e-6, 4)
LAUNCH = 2e-6  # seconds of a launch within a CUDA graph
WORST = 3  # operations that a record names


def main() -> int:
    """Survey what has no record yet, or show the records."""
    options = arguments()
    if options.one:
        print(json.dumps(surveyed(options.one, options)), flush=True)
        return 0
    if options.show:
        return show(options)
    done = latest(records(options.records))
    known = {record["network"] for record in done if covers(record, options)}
    wanted = dict.fromkeys(options.networks or names(options.groups, options.each, print))
    left = [name for name in wanted if name not in known]
    print(f"{len(wanted) - len(left)} networks have a record, {len(left)} have none", flush=True)
    begun = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        for record in pool.map(lambda name: in_its_process(name, options, begun), left):
            if record:
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
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
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


def in_its_process(name: str, options: argparse.Namespace, begun: float) -> dict[str, Any] | None:
    """Survey one network and append its record; None if there was no time to begin."""
    if time.monotonic() - begun > options.budget:
        return None
    command = [sys.executable, __file__, "--one", name, "--gpu", options.gpu]
    command += ["--modes", ",".join(options.modes), "--plans", ",".join(options.plans)]
    started = time.monotonic()
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds)
        printed = ended.stdout.splitlines()
        found = json.loads(printed[-1]) if printed else {"failed": ended.stderr[-300:]}
    except subprocess.TimeoutExpired:
        found = {"failed": f"not ended within {options.seconds:.0f} s"}
    except json.JSONDecodeError:
        found = {"failed": printed[-1][-300:]}
    record = {"network": name, "took": round(time.monotonic() - started), **found}
    with options.records.open("a+b") as file:  # the line before may have been cut short
        file.seek(max(file.seek(0, 2) - 1, 0))
        broken = file.read() not in (b"", b"\n")
        file.write(b"\n" * broken + json.dumps(record).encode() + b"\n")
    return record


# ---------------------------------------------------------------- one network


def surveyed(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """What is known of one network: a result for each mode and plan."""
    results = []
    with TemporaryDirectory() as folder:
        for mode in options.modes:
            try:
                prepared = prepared_for(name, mode, Path(folder))
                graph = apply(capture(prepared).graph, CLEAN_UP)
            except Exception as error:  # whatever a library's model does
                results.append({"mode": mode, "missing": words(error)})
                continue
            for plan in options.plans:
                found = result(graph, prepared, plan, options.gpu)
                results.append({"mode": mode, "plan": plan, **found})
    return {"results": results}


def prepared_for(name: str, mode: str, folder: Path) -> Prepared:
    """The workload; one whose output is no logits is trained by the mean of its squares."""
    asked = request(name, mode, folder)
    try:
        return prepare_for_absent(asked)
    except GolowError:
        if mode == "infer":
            raise
        return prepare_for_absent(replace(asked, loss="mse_of_outputs"))


def result(graph: Any, prepared: Prepared, name: str, gpu: str) -> dict[str, Any]:
    """The plan's figures, or why there is none."""
    level, device, precision = PLANS[name]
    workload = msgspec.structs.replace(prepared.workload, device=device, precision=precision)
    choice = ladder.choose(level, workload.mode, workload.device)
    rates = rates_of(device, precision, gpu)
    assert choice.level.refusals is not None
    refused = Counter(str(item.words) for item in choice.level.refusals(graph, workload))
    if refused:
        return {"refused": dict(refused.most_common())}
    try:
        plan = plan_of(graph, workload, choice, gpu if device == "cuda" else "").plan
    except Unsupported as error:
        return {"refused": {error.words: 1}}
    except Exception as error:  # the next network is not to wait for it
        return {"failed": words(error)}
    assert plan is not None
    times = step_seconds(plan, rates)
    by_operation: Counter[str] = Counter()
    for step, seconds in times:
        by_operation[step] += seconds  # type: ignore[assignment]
    return {
        "steps": len(times),
        "layout": layout_bytes(plan),
        "predicted": sum(seconds for _, seconds in times),
        "least": least_seconds(graph, rates, workload.mode == "train"),
        "most": by_operation.most_common(WORST),
    }


def step_seconds(plan: Plan, rates: Rates) -> list[tuple[str, float]]:
    """Of each step of an iteration, its operation and the predicted time."""
    found = []
    for step in plan.steps:
        if not step.once:
            moving = moved_bytes(plan, step) / rates.bytes
            computing = step_operations(step) / rates.operations
            found.append((step.operation, max(moving, computing) + rates.launch))
    return found


def rates_of(device: str, precision: Any, gpu: str) -> Rates:
    """Of the CPU, or of the GPU by its published figures."""
    if device == "cpu":
        return CPU
    known = named(gpu)
    item = 2 if precision in ("bf16", "fp16") else 4
    return Rates(known.bandwidth, known.operations(precision), LAUNCH, item)


def words(error: Exception) -> str:
    """The first line, with the kind of an error that is not golow's."""
    text = (error.message if isinstance(error, GolowError) else str(error)).strip()
    first = text.splitlines()[0][:160] if text else ""
    return first if isinstance(error, GolowError) else f"{type(error).__name__}: {first}"


if __name__ == "__main__":
    sys.exit(main())
