"""From the captured graph to the one that both vendor levels execute: the table of contents of
their lowering. Every stage can be shown (``golow lower MODEL --show --level onednn``)."""

from __future__ import annotations

from functools import partial

from golow.lower.folding import fold_batch_norm, trim_kernels
from golow.lower.fusion import (
    drop_copies,
    fuse_activation,
    fuse_padding,
    fuse_residual,
    make_functional,
    name_convolutions,
)
from golow.lower.passes import Pass, drop_identities, eliminate_dead_code
from golow.lower.training import (
    append_update,
    fuse_batch_norm_relu,
    name_activation_gradients,
    name_global_pooling,
)
from golow.record import Mode, Optimizer

INFERENCE: tuple[Pass, ...] = (
    make_functional,
    drop_identities,
    drop_copies,
    name_convolutions,
    fuse_padding,
    fold_batch_norm,
    fuse_residual,
    fuse_activation,
    trim_kernels,
    eliminate_dead_code,
)


def vendor_passes(
    mode: Mode, optimizer: Optimizer, further: tuple[Pass, ...] = ()
) -> tuple[Pass, ...]:
    """The passes for this mode, in order. further: those that only one level wants, after the
    common fusions."""
    if mode == "infer":
        return (*INFERENCE[:-1], *further, INFERENCE[-1])
    update = partial(append_update, optimizer=optimizer)
    update.__name__ = append_update.__name__  # type: ignore[attr-defined]
    return (
        make_functional,
        drop_identities,
        drop_copies,
        name_convolutions,
        fuse_padding,
        name_global_pooling,
        name_activation_gradients,
        fuse_batch_norm_relu,
        fuse_activation,
        *further,
        update,
        eliminate_dead_code,
    )
