"""Workers of the level `onednn` with bundles that they can run, and layouts as they keep them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from golow.levels.direct.onednn import level as onednn
from golow.levels.direct.onednn.run import tuning
from golow.levels.direct.onednn.run.tuning import LAYOUTS_FILE
from golow.levels.lowering import GRAPH
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import decode_graph
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Mode
from golow.storage.cache import write_sealed
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import capture
from golow.workload.prepare import Prepared
from support.workers.bundles import network_bundle
from support.workers.conversation import Subject


def make_subject(mode: Mode, workshop: Path, threads: int = 1) -> Subject:
    folder = workshop / f"{mode}-{threads}"
    if not folder.exists():
        network_bundle(folder, mode, threads=threads, batch=8 * threads)
    return subject_of(Bundle(folder), workshop / "cache")


def subject_of(bundle: Bundle, cache: Path) -> Subject:
    launch = onednn.prepare(bundle, "", cache)
    threads = bundle.workload.threads
    environment = worker_environment(launch.command[0], threads, launch.environment)
    return Subject(launch.command, environment, bundle)


def folder_of(subject: Subject) -> Path:
    """Where the lowered graph and the layouts are."""
    return Path(subject.command[-1])


def choose_layouts(folder: Path, *names: str) -> None:
    """Write layouts as an earlier start would have: these in turn, convolution by convolution."""
    places = tuning.convolutions(decode_graph((folder / GRAPH).read_bytes()))
    positions = {place: names[i % len(names)] for i, place in enumerate(places)}
    layouts = tuning.Layouts(positions=positions)
    write_sealed(folder / LAYOUTS_FILE, msgspec.json.encode(layouts))


def written(prepared: Prepared, folder: Path) -> Bundle:
    """The bundle of a workload, with its graph."""
    bundle, prepared = write_bundle(prepared, folder)
    captured = capture(prepared)
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)
    return bundle
