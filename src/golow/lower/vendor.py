"""The passes from a captured graph to the one that both vendor levels execute.
``golow lower MODEL --show --level onednn`` shows every stage."""

from __future__ import annotations

from functools import partial

from golow.lower.aten.canonical import canonicalise
from golow.lower.aten.decomposition import decompose
from golow.lower.aten.empty_tensors import leave_out_empty
from golow.lower.aten.functional import make_functional
from golow.lower.aten.scalar_constants import inline_numbers
from golow.lower.aten.strided import stride_over_whole_memory
from golow.lower.fuse.common_subexpressions import merge_equal_nodes
from golow.lower.fuse.epilogue_fusion import (
    drop_conversions,
    drop_copies,
    drop_neutral_numbers,
    fuse_activation,
    fuse_cut,
    fuse_padding,
    fuse_residual,
)
from golow.lower.fuse.pooling import skip_idle_pooling
from golow.lower.fuse.products import join_rows
from golow.lower.fuse.training import name_global_pooling, take_gradients_from_results
from golow.lower.fuse.updating import append_update
from golow.lower.fuse.weight_folding import fold_batch_norm, fold_scale, trim_kernels
from golow.lower.images.lines import keep_lines_images
from golow.lower.images.volumes import norm_volumes
from golow.lower.ir.passes import Pass, eliminate_dead_code
from golow.lower.recognise.recurrences import unfold_recurrences
from golow.lower.views.cut_padding import cut_before_padding
from golow.lower.views.joined_views import join_as_read
from golow.lower.views.padded_sums import join_padded_parts
from golow.records.workload import Mode, Optimizer

# Padding that only a cut or a sum undoes again.
PADDING: tuple[Pass, ...] = (
    cut_before_padding,
    eliminate_dead_code,
    join_padded_parts,
    join_as_read,
)

# From ATen's calls, which may change values in place, to the vocabulary, which does not.
CANONICAL: tuple[Pass, ...] = (
    stride_over_whole_memory,
    make_functional,
    decompose,
    canonicalise,
    drop_copies,
    inline_numbers,
    drop_neutral_numbers,
    leave_out_empty,
    join_rows,
)


def vendor_passes(
    mode: Mode,
    optimizer: Optimizer,
    further: tuple[Pass, ...] = (),
    recurrences: Pass = unfold_recurrences,
) -> tuple[Pass, ...]:
    """The passes for this mode, in order. further: the level's own, after the common fusions.
    recurrences: the pass that says which recurrent layers stay whole."""
    if mode == "infer":
        return (
            recurrences,
            *CANONICAL,
            drop_conversions,
            *PADDING,
            keep_lines_images,
            norm_volumes,
            fuse_padding,
            fuse_cut,
            fold_batch_norm,
            fold_scale,
            fuse_residual,
            fuse_activation,
            trim_kernels,
            skip_idle_pooling,
            *further,
            merge_equal_nodes,  # the patterns before look for values with one reader
            eliminate_dead_code,
        )
    update = partial(append_update, optimizer=optimizer)
    update.__name__ = append_update.__name__  # type: ignore[attr-defined]
    return (
        recurrences,
        *CANONICAL,
        drop_conversions,
        *PADDING,
        fuse_padding,
        name_global_pooling,
        skip_idle_pooling,
        take_gradients_from_results,
        fuse_activation,
        *further,
        merge_equal_nodes,
        update,
        eliminate_dead_code,
    )
