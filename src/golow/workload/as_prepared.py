"""A module that takes its batches as `prepare` has settled, in a worker that builds it again."""

from __future__ import annotations

from torch import nn

from golow.records.workload import Workload
from golow.workload.draws import accept_draws
from golow.workload.own_copies import work_on_copies


def as_prepared(module: nn.Module, workload: Workload) -> nn.Module:
    """The module, which takes the draws of its batches and leaves its inputs as they are; in the
    mode of the workload, with layers that are in eval() on purpose left there in training."""
    work_on_copies(module, workload.changed_inputs, workload.assigned_buffers)
    if workload.draws:
        accept_draws(module, workload.draws, workload.mode)
    return in_mode(module, workload.mode == "train")


def in_mode(module: nn.Module, training: bool) -> nn.Module:
    """The module in training or not. Layers of a module that is in training keep their flags, such
    as those of a frozen batch norm."""
    if not (training and module.training):
        module.train(training)
    return module
