"""The numbers of oneDNN's API under the names that golow gives them."""

from __future__ import annotations

from golow.levels.direct.onednn.bindings.api import (
    MACROS,
    dnnl_alg_kind_t,
    dnnl_cpu_isa_t,
    dnnl_data_type_t,
    dnnl_engine_kind_t,
    dnnl_format_kind_t,
    dnnl_format_tag_t,
    dnnl_normalization_flags_t,
    dnnl_prop_kind_t,
    dnnl_query_t,
    dnnl_rnn_direction_t,
    dnnl_rnn_flags_t,
    dnnl_scratchpad_mode_t,
    dnnl_status_t,
    dnnl_stream_flags_t,
)

STATUS = {number: name.removeprefix("dnnl_") for name, number in dnnl_status_t.items()}

CPU = dnnl_engine_kind_t["dnnl_cpu"]
DEFAULT_STREAM = dnnl_stream_flags_t["dnnl_stream_default_flags"]
USER_SCRATCHPAD = dnnl_scratchpad_mode_t["dnnl_scratchpad_mode_user"]

UNDEFINED_TYPE = dnnl_data_type_t["dnnl_data_type_undef"]
DATA_TYPES = {
    "float32": dnnl_data_type_t["dnnl_f32"],
    "bfloat16": dnnl_data_type_t["dnnl_bf16"],
    "int32": dnnl_data_type_t["dnnl_s32"],
    "int8": dnnl_data_type_t["dnnl_s8"],
    "uint8": dnnl_data_type_t["dnnl_u8"],
}
MAX_DIMENSIONS = MACROS["DNNL_MAX_NDIMS"]

ANY = dnnl_format_tag_t["dnnl_format_tag_any"]
BLOCKED_BY_8 = dnnl_format_tag_t["dnnl_aBcd8b"]  # channels in blocks of 8, one AVX register
BLOCKED_BY_16 = dnnl_format_tag_t["dnnl_aBcd16b"]  # in blocks of 16, one AVX-512 register
CHANNELS_LAST = dnnl_format_tag_t["dnnl_acdb"]
OPAQUE = dnnl_format_kind_t["dnnl_format_kind_opaque"]

# The bit that is set for every AVX-512 variant and for nothing below it.
AVX_512 = dnnl_cpu_isa_t["dnnl_cpu_isa_avx512_core"] & ~dnnl_cpu_isa_t["dnnl_cpu_isa_avx2_vnni_2"]

# The bits of the instructions that add products of 8-bit numbers up in 32 bits. Without them the
# library adds pairs of products up in 16 bits, where they may saturate.
VNNI = (
    dnnl_cpu_isa_t["dnnl_cpu_isa_avx512_core_vnni"] & ~dnnl_cpu_isa_t["dnnl_cpu_isa_avx512_core"]
) | (dnnl_cpu_isa_t["dnnl_cpu_isa_avx2_vnni"] & ~dnnl_cpu_isa_t["dnnl_cpu_isa_avx2"])

# The bit of the instructions that add products of pairs of bfloat16 up in float32.
BF16 = (
    dnnl_cpu_isa_t["dnnl_cpu_isa_avx512_core_bf16"]
    & ~dnnl_cpu_isa_t["dnnl_cpu_isa_avx512_core_vnni"]
)

FORWARD_TRAINING = dnnl_prop_kind_t["dnnl_forward_training"]
FORWARD_INFERENCE = dnnl_prop_kind_t["dnnl_forward_inference"]
BACKWARD = dnnl_prop_kind_t["dnnl_backward"]

CONVOLUTION_DIRECT = dnnl_alg_kind_t["dnnl_convolution_direct"]
POOLING_MAX = dnnl_alg_kind_t["dnnl_pooling_max"]
POOLING_AVERAGE = dnnl_alg_kind_t["dnnl_pooling_avg_include_padding"]
POOLING_AVERAGE_EXCLUDING = dnnl_alg_kind_t["dnnl_pooling_avg_exclude_padding"]
BINARY_ADD = dnnl_alg_kind_t["dnnl_binary_add"]
BINARY_MUL = dnnl_alg_kind_t["dnnl_binary_mul"]
BINARY_DIV = dnnl_alg_kind_t["dnnl_binary_div"]
BINARY_SUB = dnnl_alg_kind_t["dnnl_binary_sub"]
REDUCTION_SUM = dnnl_alg_kind_t["dnnl_reduction_sum"]
REDUCTION_MEAN = dnnl_alg_kind_t["dnnl_reduction_mean"]
RESAMPLING_NEAREST = dnnl_alg_kind_t["dnnl_resampling_nearest"]
RESAMPLING_LINEAR = dnnl_alg_kind_t["dnnl_resampling_linear"]
# The library's names. "_use_dst_for_bwd": the gradient reads the result instead of the argument.
ELTWISE = {
    name.removeprefix("dnnl_eltwise_"): number
    for name, number in dnnl_alg_kind_t.items()
    if name.startswith("dnnl_eltwise_")
}

LEFT_TO_RIGHT = dnnl_rnn_direction_t["dnnl_unidirectional_left2right"]
RIGHT_TO_LEFT = dnnl_rnn_direction_t["dnnl_unidirectional_right2left"]
OVERWRITE_GRADIENTS = dnnl_rnn_flags_t["dnnl_rnn_flags_diff_weights_overwrite"]

GLOBAL_STATISTICS = dnnl_normalization_flags_t["dnnl_use_global_stats"]
USE_SCALE = dnnl_normalization_flags_t["dnnl_use_scale"]
USE_SHIFT = dnnl_normalization_flags_t["dnnl_use_shift"]
FUSE_RELU = dnnl_normalization_flags_t["dnnl_fuse_norm_relu"]

SRC, SRC_1 = MACROS["DNNL_ARG_SRC"], MACROS["DNNL_ARG_SRC_1"]
DST, WEIGHTS, BIAS = MACROS["DNNL_ARG_DST"], MACROS["DNNL_ARG_WEIGHTS"], MACROS["DNNL_ARG_BIAS"]
MEAN, VARIANCE = MACROS["DNNL_ARG_MEAN"], MACROS["DNNL_ARG_VARIANCE"]
SCALE, SHIFT = MACROS["DNNL_ARG_SCALE"], MACROS["DNNL_ARG_SHIFT"]
WORKSPACE, SCRATCHPAD = MACROS["DNNL_ARG_WORKSPACE"], MACROS["DNNL_ARG_SCRATCHPAD"]
DIFF_SRC, DIFF_DST = MACROS["DNNL_ARG_DIFF_SRC"], MACROS["DNNL_ARG_DIFF_DST"]
DIFF_WEIGHTS, DIFF_BIAS = MACROS["DNNL_ARG_DIFF_WEIGHTS"], MACROS["DNNL_ARG_DIFF_BIAS"]
DIFF_SCALE, DIFF_SHIFT = MACROS["DNNL_ARG_DIFF_SCALE"], MACROS["DNNL_ARG_DIFF_SHIFT"]
MULTIPLE_SRC = MACROS["DNNL_ARG_MULTIPLE_SRC"]
# Constants of recurrent layers.
SRC_ITER, SRC_ITER_C = MACROS["DNNL_ARG_SRC_ITER"], MACROS["DNNL_ARG_SRC_ITER_C"]
DST_ITER, DST_ITER_C = MACROS["DNNL_ARG_DST_ITER"], MACROS["DNNL_ARG_DST_ITER_C"]
WEIGHTS_ITER = MACROS["DNNL_ARG_WEIGHTS_ITER"]
WEIGHTS_PROJECTION = MACROS["DNNL_ARG_WEIGHTS_PROJECTION"]
DIFF_SRC_ITER, DIFF_SRC_ITER_C = (
    MACROS["DNNL_ARG_DIFF_SRC_ITER"], MACROS["DNNL_ARG_DIFF_SRC_ITER_C"]
)  # fmt: skip
DIFF_DST_ITER, DIFF_DST_ITER_C = (
    MACROS["DNNL_ARG_DIFF_DST_ITER"], MACROS["DNNL_ARG_DIFF_DST_ITER_C"]
)  # fmt: skip
DIFF_WEIGHTS_ITER = MACROS["DNNL_ARG_DIFF_WEIGHTS_ITER"]
DIFF_WEIGHTS_PROJECTION = MACROS["DNNL_ARG_DIFF_WEIGHTS_PROJECTION"]
SCALES = MACROS["DNNL_ARG_ATTR_SCALES"]  # a bit beside those of the argument
# DNNL_ARG_ATTR_MULTIPLE_POST_OP(n) is (n + 1) times this.
POST_OP_STRIDE = MACROS["DNNL_ARG_ATTR_MULTIPLE_POST_OP_BASE"]

QUERY = {
    SRC: dnnl_query_t["dnnl_query_src_md"],
    DIFF_SRC: dnnl_query_t["dnnl_query_diff_src_md"],
    WEIGHTS: dnnl_query_t["dnnl_query_weights_md"],
    DIFF_WEIGHTS: dnnl_query_t["dnnl_query_diff_weights_md"],
    DST: dnnl_query_t["dnnl_query_dst_md"],
    DIFF_DST: dnnl_query_t["dnnl_query_diff_dst_md"],
    WORKSPACE: dnnl_query_t["dnnl_query_workspace_md"],
    SCRATCHPAD: dnnl_query_t["dnnl_query_scratchpad_md"],
}
QUERY_IMPLEMENTATION = dnnl_query_t["dnnl_query_impl_info_str"]
QUERY_ARGUMENT = dnnl_query_t["dnnl_query_exec_arg_md"]  # the index is an argument's number
QUERY_STRIDES = dnnl_query_t["dnnl_query_strides"]
QUERY_NDIMS = dnnl_query_t["dnnl_query_ndims_s32"]
QUERY_DIMS = dnnl_query_t["dnnl_query_dims"]
QUERY_DATA_TYPE = dnnl_query_t["dnnl_query_data_type"]
QUERY_OFFSET = dnnl_query_t["dnnl_query_submemory_offset_s64"]
QUERY_FORMAT_KIND = dnnl_query_t["dnnl_query_format_kind"]
QUERY_INNER_COUNT = dnnl_query_t["dnnl_query_inner_nblks_s32"]
QUERY_INNER_BLOCKS = dnnl_query_t["dnnl_query_inner_blks"]
QUERY_INNER_INDICES = dnnl_query_t["dnnl_query_inner_idxs"]
