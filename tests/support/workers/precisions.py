"""Bundles in another precision."""

from __future__ import annotations

import msgspec

from golow.records.record import encode
from golow.records.workload import Device, Precision
from golow.workload.bundle import Bundle


def in_precision(bundle: Bundle, precision: Precision, device: Device = "cpu") -> Bundle:
    """The bundle with another precision written into it."""
    workload = msgspec.structs.replace(bundle.workload, precision=precision, device=device)
    bundle.file("workload.json").write_bytes(encode(workload))
    return Bundle(bundle.folder)
