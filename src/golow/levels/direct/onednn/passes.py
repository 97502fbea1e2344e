"""The order of passes at onednn, from the captured graph to the one that a plan is built of.

``golow lower MODEL --level onednn --show`` shows the graph after each of them.
"""

from __future__ import annotations

from golow.levels.direct.onednn.kernels.flash_attention import WIDEST
from golow.levels.direct.onednn.recurrences import keep_faster_recurrences
from golow.levels.direct.pass_order import Order, average_over_ranks, ordered, update_parameters
from golow.lower.aten.attention_calls import drop_known_masks, share_heads
from golow.lower.aten.canonical import canonicalise
from golow.lower.aten.complex_numbers import pair_complex_numbers
from golow.lower.aten.decomposition import decompose
from golow.lower.aten.empty_tensors import leave_out_empty
from golow.lower.aten.functional import make_functional
from golow.lower.aten.scalar_constants import inline_numbers
from golow.lower.aten.strided import stride_over_whole_memory
from golow.lower.fuse.averaged_functions import average_before_scaling
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
from golow.lower.fuse.norm_fusion import fuse_batch_norm_relu, fuse_inference_relu
from golow.lower.fuse.pooling import pool_images, skip_idle_pooling
from golow.lower.fuse.products import join_rows, scale_products
from golow.lower.fuse.requantisation import fuse_requantisation, round_before_pooling
from golow.lower.fuse.weight_folding import fold_batch_norm, fold_scale, trim_kernels
from golow.lower.images.lines import keep_lines_images
from golow.lower.images.volumes import keep_volumes, norm_volumes
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Pass
from golow.lower.recognise.attention_fusion import name_attention
from golow.lower.recognise.caches import keep_caches
from golow.lower.recognise.group_norm import keep_group_norm
from golow.lower.recognise.grouped_products import keep_grouped_products
from golow.lower.recognise.linear_recurrences import name_linear_recurrences
from golow.lower.recognise.narrow_layers import name_narrow_layers
from golow.lower.recognise.quantized_layers import name_quantized_layers
from golow.lower.recognise.resampling import keep_resampling
from golow.lower.recognise.stacked_steps import compute_steps_at_once
from golow.lower.recognise.training_idioms import name_global_pooling, take_gradients_from_results
from golow.lower.recognise.whole_attention import Kernels, keep_attention
from golow.lower.recognise.written_activations import name_written_activations
from golow.lower.recognise.written_layer_norm import name_written_layer_norm
from golow.lower.views.cut_padding import cut_before_padding
from golow.lower.views.joined_views import join_as_read
from golow.lower.views.padded_sums import join_padded_parts
from golow.lower.views.row_permutations import order_rows_first
from golow.lower.views.turned_products import multiply_weights_first
from golow.records.workload import Workload

# Attention that golow's kernel computes sooner than products around a softmax: not that of a few
# rows, of which it computes 16 in any case.
FEWEST_ROWS = 8
ATTENTION = Kernels(width=WIDEST, step=1, rows=FEWEST_ROWS)


def passes(workload: Workload) -> tuple[Pass, ...]:
    """Return the passes for a workload, in order."""
    return ordered(INFERENCE if workload.mode == "infer" else TRAINING, workload)


INFERENCE: Order = (
    # Operators that stay whole, since a primitive or a kernel computes them better than their
    # parts.
    pair_complex_numbers,
    drop_known_masks,
    share_heads,
    keep_caches,
    keep_grouped_products(),
    keep_attention(ATTENTION),
    keep_volumes,
    keep_resampling,
    keep_group_norm,
    keep_faster_recurrences,
    # From ATen's calls, which may change values in place, to the vocabulary, which does not.
    stride_over_whole_memory,
    make_functional,
    decompose,
    canonicalise,
    drop_copies,
    inline_numbers,
    drop_neutral_numbers,
    leave_out_empty,
    join_rows,
    drop_conversions,
    name_quantized_layers,
    name_narrow_layers,
    name_written_activations,
    name_written_layer_norm,
    # Loops that a network writes over its steps.
    name_linear_recurrences,
    compute_steps_at_once,
    # Padding that only a cut or a sum undoes again.
    cut_before_padding,
    eliminate_dead_code,
    join_padded_parts,
    join_as_read,
    # Prologues, epilogues and weights of layers.
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
    # Operators that oneDNN's primitives can absorb beyond those.
    fuse_inference_relu,
    scale_products,
    multiply_weights_first,
    name_attention(ATTENTION),
    pool_images,
    order_rows_first,
    fuse_residual,
    average_before_scaling,
    # The patterns before look for values with one reader.
    merge_equal_nodes,
    # A rounding for several layers is one by now.
    round_before_pooling,
    fuse_requantisation,
    eliminate_dead_code,
)

TRAINING: Order = (
    # Operators that stay whole, since a primitive or a kernel computes them better than their
    # parts.
    pair_complex_numbers,
    drop_known_masks,
    share_heads,
    keep_grouped_products(),
    keep_attention(ATTENTION),
    keep_volumes,
    keep_resampling,
    keep_group_norm,
    keep_faster_recurrences,
    # From ATen's calls, which may change values in place, to the vocabulary, which does not.
    stride_over_whole_memory,
    make_functional,
    decompose,
    canonicalise,
    drop_copies,
    inline_numbers,
    drop_neutral_numbers,
    leave_out_empty,
    join_rows,
    drop_conversions,
    scale_products,
    # Padding that only a cut or a sum undoes again.
    cut_before_padding,
    eliminate_dead_code,
    join_padded_parts,
    join_as_read,
    # Prologues and epilogues of layers, and what autograd took apart.
    keep_lines_images,
    fuse_padding,
    name_global_pooling,
    skip_idle_pooling,
    take_gradients_from_results,
    fuse_activation,
    fuse_batch_norm_relu,
    average_before_scaling,
    # The patterns before look for values with one reader.
    merge_equal_nodes,
    average_over_ranks,
    update_parameters,
    eliminate_dead_code,
)
