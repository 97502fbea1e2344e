"""Levels on a GPU as subjects of the conformance checks."""

from __future__ import annotations

from pathlib import Path

from golow.levels import ladder
from golow.records.workload import Mode, Precision
from golow.worker.process import worker_environment
from golow.workload.bundle import Bundle
from support.workers.bundles import network_bundle
from support.workers.conformance import CHECKS
from support.workers.conformance_timing import uses_no_more_threads_than_it_was_given
from support.workers.conversation import Subject
from support.workers.precisions import in_precision


def gpu_bundle(workshop: Path, mode: Mode, precision: Precision) -> Bundle:
    folder = workshop / f"{mode}-{precision}"
    if folder.exists():
        return Bundle(folder)
    return in_precision(network_bundle(folder, mode), precision, "cuda")


def gpu_subject(workshop: Path, name: str, mode: Mode, precision: Precision) -> Subject:
    bundle = gpu_bundle(workshop, mode, precision)
    chosen = ladder.choose(name, mode, "cuda")
    launch = chosen.prepare(bundle, workshop / "cache")
    environment = worker_environment(launch.command[0], 1, launch.environment)
    return Subject(launch.command, environment, bundle)


# The GPU computes, and torch's thread of the backward pass feeds it.
ON_GPU = [check for check in CHECKS if check is not uses_no_more_threads_than_it_was_given]
