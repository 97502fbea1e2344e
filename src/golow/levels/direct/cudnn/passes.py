"""The order of passes at cudnn, from the captured graph to the one that a plan is built of.

``golow lower MODEL --level cudnn --show`` shows the graph after each of them.
"""

from __future__ import annotations

import sys

from golow.levels.direct.cudnn.operators.grouped_product import STEP
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.recurrences import keep_faster_recurrences
from golow.levels.direct.pass_order import (
    ByWorkload,
    Order,
    average_over_ranks,
    ordered,
    update_parameters,
)
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
from golow.lower.fuse.epilogue_fission import release_activations
from golow.lower.fuse.epilogue_fusion import (
    drop_conversions,
    drop_copies,
    drop_neutral_numbers,
    fuse_activation,
    fuse_cut,
    fuse_padding,
    fuse_residual,
)
from golow.lower.fuse.horizontal_fusion import join_linear_layers
from golow.lower.fuse.horizontal_training import join_trained_layers
from golow.lower.fuse.horizontal_weight_norms import join_weight_norms
from golow.lower.fuse.norm_functions import add_within_norms, fuse_batch_norm_function
from golow.lower.fuse.norm_fusion import (
    add_within_norm_gradients,
    compact_strided_gradients,
    fuse_batch_norm_activation,
    fuse_gradient_sum,
)
from golow.lower.fuse.norm_rounding import round_within_norms
from golow.lower.fuse.pooling import skip_idle_pooling
from golow.lower.fuse.product_sums import add_within_products
from golow.lower.fuse.products import (
    join_rows,
    multiply_outer_products,
    scale_products,
)
from golow.lower.fuse.repeated_products import multiply_repeated_once
from golow.lower.fuse.requantisation import fuse_requantisation
from golow.lower.fuse.row_products import multiply_few_rows
from golow.lower.fuse.short_products import mix_few_elementwise
from golow.lower.fuse.short_reductions import reduce_few_elementwise
from golow.lower.fuse.spread_gradients import spread_within_functions
from golow.lower.fuse.tied_weights import add_rows_to_gradients
from golow.lower.fuse.weight_folding import fold_batch_norm, fold_scale, trim_kernels
from golow.lower.images.lines import keep_lines_images
from golow.lower.images.plane_convolutions import convolve_side_by_side
from golow.lower.images.plane_pooling import norm_by_planes, pool_by_planes
from golow.lower.images.volumes import norm_all_volumes, norm_volumes
from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Pass
from golow.lower.recognise.attention_fusion import name_attention
from golow.lower.recognise.caches import keep_caches
from golow.lower.recognise.cross_entropy import name_cross_entropy
from golow.lower.recognise.e4m3_layers import name_e4m3_layers
from golow.lower.recognise.group_norm import keep_group_norm
from golow.lower.recognise.grouped_products import keep_grouped_products
from golow.lower.recognise.linear_recurrences import name_linear_recurrences
from golow.lower.recognise.quantized_layers import name_quantized_linear_layers
from golow.lower.recognise.resampling import keep_resampling
from golow.lower.recognise.rms_norm import name_rms_norm
from golow.lower.recognise.rolls import name_rolls
from golow.lower.recognise.stacked_steps import compute_steps_at_once
from golow.lower.recognise.step_attention import attend_in_steps
from golow.lower.recognise.training_idioms import name_global_pooling, take_gradients_from_results
from golow.lower.recognise.unit_norm import name_unit_norm
from golow.lower.recognise.weight_norm import keep_weight_norm
from golow.lower.recognise.whole_attention import (
    CUDNN,
    CUDNN_IN_TRAINING,
    DROPPING,
    Kernels,
    keep_attention,
)
from golow.lower.recognise.written_activations import name_written_activations
from golow.lower.recognise.written_layer_norm import name_written_layer_norm
from golow.lower.views.added_ranges import add_to_ranges
from golow.lower.views.cut_functions import cut_before_functions
from golow.lower.views.cut_padding import cut_before_padding
from golow.lower.views.interleaving import split_interleaved
from golow.lower.views.joined_functions import compute_before_joining
from golow.lower.views.joined_views import join_as_read
from golow.lower.views.padded_sums import join_padded_parts
from golow.lower.views.row_permutations import order_rows_first
from golow.lower.views.turned_products import multiply_weights_first
from golow.lower.views.view_sinking import (
    activate_before_views,
    norm_before_views,
    scale_and_add_before_views,
)
from golow.records.workload import Mode, Precision, Workload


def passes(workload: Workload) -> tuple[Pass, ...]:
    """Return the passes for a workload, in order."""
    return ordered(INFERENCE if workload.mode == "infer" else TRAINING, workload)


def attention_kernels(mode: Mode, precision: Precision) -> Kernels | None:
    """Return which attention has kernels: cuDNN's are of 16-bit tensors, golow's of float32 with
    tf32 products, whose gradients need a head's rows in registers. None computes in float32."""
    if precision in ("bf16", "fp16"):
        return CUDNN if mode == "infer" else CUDNN_IN_TRAINING
    if precision == "tf32":
        return Kernels(width=128 if mode == "infer" else 64, masked=sys.maxsize)
    return None


@ByWorkload
def grouped_products_stay_whole(workload: Workload) -> Pass | None:
    """Keep grouped products whole on tensor cores, which alone have a kernel for them."""
    on_tensor_cores = TYPES[workload.precision].products != "ieee"
    return keep_grouped_products(STEP) if on_tensor_cores else None


@ByWorkload
def attention_stays_whole(workload: Workload) -> Pass | None:
    """Keep ATen's attention whole where a kernel computes it."""
    kernels = attention_kernels(workload.mode, workload.precision)
    return keep_attention(kernels, DROPPING) if kernels else None


@ByWorkload
def attention_is_named(workload: Workload) -> Pass | None:
    """Fuse attention that a network writes itself where a kernel computes it."""
    kernels = attention_kernels(workload.mode, workload.precision)
    return name_attention(kernels) if kernels else None


@ByWorkload
def volumes_are_planes(workload: Workload) -> Pass:
    """Compute convolutions of volumes as planes where that is faster with these tensor cores."""
    return convolve_side_by_side(TYPES[workload.precision].convolutions != "ieee")


INFERENCE: Order = (
    # Operators that stay whole, since a kernel computes them better than their parts.
    pair_complex_numbers,
    drop_known_masks,
    share_heads,
    keep_caches,
    grouped_products_stay_whole,
    attention_stays_whole,
    keep_group_norm,
    volumes_are_planes,
    pool_by_planes,
    norm_by_planes,
    keep_resampling,
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
    multiply_outer_products,
    drop_conversions,
    name_quantized_linear_layers,
    name_e4m3_layers,
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
    # Operators for which only this level has kernels.
    norm_all_volumes,
    norm_before_views,
    fold_batch_norm,
    scale_and_add_before_views,
    fold_scale,
    scale_and_add_before_views,  # the sum that follows
    activate_before_views,
    fuse_activation,
    name_rms_norm,
    name_rolls,
    split_interleaved,
    compute_before_joining,
    eliminate_dead_code,
    order_rows_first,
    fuse_residual,
    add_to_ranges,
    scale_products,
    multiply_weights_first,
    attention_is_named,
    name_unit_norm,
    release_activations,
    merge_equal_nodes,
    join_linear_layers,
    # The patterns before look for values with one reader.
    merge_equal_nodes,
    average_before_scaling,
    reduce_few_elementwise,
    mix_few_elementwise,
    attend_in_steps,
    multiply_few_rows,
    multiply_repeated_once,
    fuse_requantisation,
    round_within_norms,
    eliminate_dead_code,
)

TRAINING: Order = (
    # Operators that stay whole, since a kernel computes them better than their parts.
    pair_complex_numbers,
    drop_known_masks,
    share_heads,
    attention_stays_whole,
    keep_group_norm,  # instance norm is batch norm of one image
    keep_weight_norm,
    volumes_are_planes,
    pool_by_planes,
    norm_by_planes,
    keep_resampling,
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
    # Operators for which only this level has kernels.
    fuse_batch_norm_activation,
    fuse_batch_norm_function,
    add_within_norms,
    fuse_gradient_sum,
    compact_strided_gradients,
    spread_within_functions,
    name_rms_norm,
    name_rolls,
    cut_before_functions,
    split_interleaved,
    compute_before_joining,
    name_cross_entropy,
    add_rows_to_gradients,
    join_trained_layers,
    add_within_norm_gradients,
    add_within_products,
    # The patterns before look for values with one reader.
    merge_equal_nodes,
    join_weight_norms,
    average_before_scaling,
    reduce_few_elementwise,
    average_over_ranks,
    update_parameters,
    eliminate_dead_code,
)
