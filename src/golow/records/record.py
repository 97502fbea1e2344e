"""Base of every record: immutable, built by keyword, compared by value, written as JSON.

Format history (every file contains ``FORMAT_VERSION``; ``programs/comparison/store.py`` reads older
ones):

    Added later, with defaults, so that old and new versions read each other's files:
    ``Run.layers``, ``Run.layers_missing``, and for GPUs ``Workload.device``, ``Block.gpu``,
    ``Block.throttled``, ``Conditions.device``, ``Conditions.cache``,
    ``Conditions.throttled_share`` and ``Run.device``. For the proof of timed iterations:
    ``Block.wall_ns``. For the audit of choices: ``Run.choices``. For draws that are given:
    ``Workload.draws``. For tensors that are zero: ``TensorError.zero_scale``; with infinities:
    ``TensorError.infinite``. For optimizers:
    the fields of ``Optimizer`` beyond its first three. For losses of the user's own:
    ``Workload.loss_sha256``. For models that work on copies: ``Workload.changed_inputs``,
    ``Workload.assigned_buffers``, ``Workload.takes_gradients``. For quantised networks:
    ``ModelSource.quantized``. For data-parallel training: ``Workload.ranks``, ``Block.rank_ns``.

Nothing in this folder imports torch, so that a worker without a framework can read records.
A number is a `Quantity`: name, unit, value and, if it is an estimate, its 95% interval.
Only ``report/`` turns one into text.
"""

from __future__ import annotations

from typing import Any

import msgspec

FORMAT_VERSION = 1


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Base of all records: immutable, built by keyword, compared by value."""


def encode(record: Any) -> bytes:
    """The record as JSON, indented so that people can read it."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
