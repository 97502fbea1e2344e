"""oneDNN 3's C API, as far as golow uses it, from the library's header.

Written by ``python -m golow.levels.direct.onednn.bindings.generate``, not by hand.
"""

# fmt: off
from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_void_p,
)
from typing import Any


class dnnl_version_t(Structure):
    _fields_ = [
        ("major", c_int),
        ("minor", c_int),
        ("patch", c_int),
        ("hash", c_char_p),
        ("cpu_runtime", c_uint),
        ("gpu_runtime", c_uint),
    ]


class dnnl_exec_arg_t(Structure):
    _fields_ = [
        ("arg", c_int),
        ("memory", c_void_p),
    ]


# Result and arguments. An enumeration is an int, a handle or a pointer a c_void_p.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "dnnl_version": (POINTER(dnnl_version_t), []),
    "dnnl_get_effective_cpu_isa": (c_int, []),
    "dnnl_sgemm": (c_int, [
        c_char, c_char, c_int64, c_int64, c_int64, c_float, c_void_p, c_int64, c_void_p, c_int64,
        c_float, c_void_p, c_int64,
    ]),
    "dnnl_engine_create": (c_int, [c_void_p, c_int, c_size_t]),
    "dnnl_engine_destroy": (c_int, [c_void_p]),
    "dnnl_stream_create": (c_int, [c_void_p, c_void_p, c_uint]),
    "dnnl_stream_destroy": (c_int, [c_void_p]),
    "dnnl_memory_desc_create_with_strides": (c_int, [c_void_p, c_int, c_void_p, c_int, c_void_p]),
    "dnnl_memory_desc_create_with_tag": (c_int, [c_void_p, c_int, c_void_p, c_int, c_int]),
    "dnnl_memory_desc_clone": (c_int, [c_void_p, c_void_p]),
    "dnnl_memory_desc_create_submemory": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "dnnl_memory_desc_reshape": (c_int, [c_void_p, c_void_p, c_int, c_void_p]),
    "dnnl_memory_desc_permute_axes": (c_int, [c_void_p, c_void_p, c_void_p]),
    "dnnl_memory_desc_query": (c_int, [c_void_p, c_int, c_void_p]),
    "dnnl_memory_desc_get_size": (c_size_t, [c_void_p]),
    "dnnl_memory_desc_equal": (c_int, [c_void_p, c_void_p]),
    "dnnl_memory_desc_destroy": (c_int, [c_void_p]),
    "dnnl_memory_create": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "dnnl_memory_set_data_handle": (c_int, [c_void_p, c_void_p]),
    "dnnl_memory_destroy": (c_int, [c_void_p]),
    "dnnl_primitive_attr_create": (c_int, [c_void_p]),
    "dnnl_primitive_attr_set_scratchpad_mode": (c_int, [c_void_p, c_int]),
    "dnnl_primitive_attr_set_post_ops": (c_int, [c_void_p, c_void_p]),
    "dnnl_primitive_attr_set_scales_mask": (c_int, [c_void_p, c_int, c_int]),
    "dnnl_primitive_attr_destroy": (c_int, [c_void_p]),
    "dnnl_post_ops_create": (c_int, [c_void_p]),
    "dnnl_post_ops_append_sum": (c_int, [c_void_p, c_float, c_int, c_int]),
    "dnnl_post_ops_append_binary": (c_int, [c_void_p, c_int, c_void_p]),
    "dnnl_post_ops_append_eltwise": (c_int, [c_void_p, c_int, c_float, c_float]),
    "dnnl_post_ops_destroy": (c_int, [c_void_p]),
    "dnnl_primitive_desc_query": (c_int, [c_void_p, c_int, c_int, c_void_p]),
    "dnnl_primitive_desc_query_md": (c_void_p, [c_void_p, c_int, c_int]),
    "dnnl_primitive_desc_next_impl": (c_int, [c_void_p]),
    "dnnl_primitive_desc_destroy": (c_int, [c_void_p]),
    "dnnl_primitive_create": (c_int, [c_void_p, c_void_p]),
    "dnnl_primitive_execute": (c_int, [c_void_p, c_void_p, c_int, c_void_p]),
    "dnnl_primitive_destroy": (c_int, [c_void_p]),
    "dnnl_batch_normalization_forward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_float, c_uint, c_void_p,
    ]),
    "dnnl_batch_normalization_backward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_float, c_uint, c_void_p,
        c_void_p,
    ]),
    "dnnl_binary_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_void_p,
    ]),
    "dnnl_concat_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p,
    ]),
    "dnnl_convolution_forward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_void_p, c_void_p, c_void_p, c_void_p,
    ]),
    "dnnl_convolution_backward_data_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_void_p, c_void_p, c_void_p,
    ]),
    "dnnl_convolution_backward_weights_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_void_p, c_void_p, c_void_p, c_void_p,
    ]),
    "dnnl_eltwise_forward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p, c_float, c_float, c_void_p,
    ]),
    "dnnl_eltwise_backward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_float, c_float, c_void_p,
        c_void_p,
    ]),
    "dnnl_inner_product_forward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
    ]),
    "dnnl_layer_normalization_forward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_float, c_uint, c_void_p,
    ]),
    "dnnl_layer_normalization_backward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_float, c_uint,
        c_void_p, c_void_p,
    ]),
    "dnnl_lbr_gru_forward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_void_p, c_void_p, c_uint, c_void_p,
    ]),
    "dnnl_lbr_gru_backward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_uint, c_void_p, c_void_p,
    ]),
    "dnnl_lstm_forward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_uint, c_void_p,
    ]),
    "dnnl_lstm_backward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_uint,
        c_void_p, c_void_p,
    ]),
    "dnnl_matmul_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
    ]),
    "dnnl_pooling_forward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_void_p, c_void_p, c_void_p,
    ]),
    "dnnl_pooling_backward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_void_p, c_void_p, c_void_p,
    ]),
    "dnnl_reduction_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_float, c_float, c_void_p,
    ]),
    "dnnl_reorder_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
    ]),
    "dnnl_resampling_forward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p, c_void_p, c_void_p,
    ]),
    "dnnl_resampling_backward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
    ]),
    "dnnl_sum_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_void_p,
    ]),
    "dnnl_vanilla_rnn_forward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_int, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_void_p, c_void_p, c_uint, c_float, c_float, c_void_p,
    ]),
    "dnnl_vanilla_rnn_backward_primitive_desc_create": (c_int, [
        c_void_p, c_void_p, c_int, c_int, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p,
        c_uint, c_float, c_float, c_void_p, c_void_p,
    ]),
}

dnnl_status_t = {
    "dnnl_out_of_memory": 1,
    "dnnl_invalid_arguments": 2,
    "dnnl_unimplemented": 3,
    "dnnl_last_impl_reached": 4,
    "dnnl_runtime_error": 5,
    "dnnl_not_required": 6,
}

dnnl_engine_kind_t = {
    "dnnl_cpu": 1,
}

dnnl_stream_flags_t = {
    "dnnl_stream_default_flags": 1,
}

dnnl_scratchpad_mode_t = {
    "dnnl_scratchpad_mode_user": 1,
}

dnnl_cpu_isa_t = {
    "dnnl_cpu_isa_avx2": 7,
    "dnnl_cpu_isa_avx2_vnni": 15,
    "dnnl_cpu_isa_avx2_vnni_2": 31,
    "dnnl_cpu_isa_avx512_core": 39,
    "dnnl_cpu_isa_avx512_core_vnni": 103,
    "dnnl_cpu_isa_avx512_core_bf16": 231,
}

dnnl_data_type_t = {
    "dnnl_data_type_undef": 0,
    "dnnl_bf16": 2,
    "dnnl_f32": 3,
    "dnnl_s32": 4,
    "dnnl_s8": 5,
    "dnnl_u8": 6,
}

dnnl_format_kind_t = {
    "dnnl_format_kind_opaque": 3,
}

dnnl_format_tag_t = {
    "dnnl_format_tag_any": 1,
    "dnnl_aBcd8b": 102,
    "dnnl_aBcd16b": 78,
    "dnnl_acdb": 22,
}

dnnl_prop_kind_t = {
    "dnnl_forward_training": 64,
    "dnnl_forward_inference": 96,
    "dnnl_backward": 128,
}

dnnl_alg_kind_t = {
    "dnnl_convolution_direct": 1,
    "dnnl_pooling_max": 511,
    "dnnl_pooling_avg_include_padding": 767,
    "dnnl_pooling_avg_exclude_padding": 1023,
    "dnnl_binary_add": 131056,
    "dnnl_binary_mul": 131057,
    "dnnl_binary_div": 131060,
    "dnnl_binary_sub": 131061,
    "dnnl_reduction_sum": 196596,
    "dnnl_reduction_mean": 196598,
    "dnnl_resampling_nearest": 196592,
    "dnnl_resampling_linear": 196593,
    "dnnl_eltwise_relu": 32,
    "dnnl_eltwise_tanh": 33,
    "dnnl_eltwise_elu": 34,
    "dnnl_eltwise_square": 35,
    "dnnl_eltwise_abs": 36,
    "dnnl_eltwise_sqrt": 37,
    "dnnl_eltwise_linear": 38,
    "dnnl_eltwise_soft_relu": 39,
    "dnnl_eltwise_hardsigmoid": 40,
    "dnnl_eltwise_logistic": 41,
    "dnnl_eltwise_exp": 42,
    "dnnl_eltwise_gelu_tanh": 43,
    "dnnl_eltwise_swish": 44,
    "dnnl_eltwise_log": 45,
    "dnnl_eltwise_clip": 46,
    "dnnl_eltwise_clip_v2": 47,
    "dnnl_eltwise_pow": 48,
    "dnnl_eltwise_gelu_erf": 49,
    "dnnl_eltwise_round": 50,
    "dnnl_eltwise_mish": 51,
    "dnnl_eltwise_hardswish": 52,
    "dnnl_eltwise_relu_use_dst_for_bwd": 256,
    "dnnl_eltwise_tanh_use_dst_for_bwd": 257,
    "dnnl_eltwise_elu_use_dst_for_bwd": 258,
    "dnnl_eltwise_sqrt_use_dst_for_bwd": 259,
    "dnnl_eltwise_logistic_use_dst_for_bwd": 260,
    "dnnl_eltwise_exp_use_dst_for_bwd": 261,
    "dnnl_eltwise_clip_v2_use_dst_for_bwd": 262,
}

dnnl_rnn_direction_t = {
    "dnnl_unidirectional_left2right": 1,
    "dnnl_unidirectional_right2left": 2,
}

dnnl_rnn_flags_t = {
    "dnnl_rnn_flags_diff_weights_overwrite": 1,
}

dnnl_normalization_flags_t = {
    "dnnl_use_global_stats": 1,
    "dnnl_use_scale": 2,
    "dnnl_use_shift": 4,
    "dnnl_fuse_norm_relu": 8,
}

dnnl_query_t = {
    "dnnl_query_impl_info_str": 8,
    "dnnl_query_strides": 14,
    "dnnl_query_src_md": 129,
    "dnnl_query_diff_src_md": 130,
    "dnnl_query_weights_md": 131,
    "dnnl_query_diff_weights_md": 132,
    "dnnl_query_dst_md": 133,
    "dnnl_query_diff_dst_md": 134,
    "dnnl_query_workspace_md": 135,
    "dnnl_query_scratchpad_md": 136,
    "dnnl_query_exec_arg_md": 255,
    "dnnl_query_ndims_s32": 256,
    "dnnl_query_dims": 257,
    "dnnl_query_data_type": 258,
    "dnnl_query_submemory_offset_s64": 259,
    "dnnl_query_format_kind": 262,
    "dnnl_query_inner_nblks_s32": 263,
    "dnnl_query_inner_blks": 264,
    "dnnl_query_inner_idxs": 265,
}

MACROS = {
    "DNNL_MAX_NDIMS": 12,
    "DNNL_ARG_SRC": 1,
    "DNNL_ARG_SRC_1": 2,
    "DNNL_ARG_SRC_ITER": 2,
    "DNNL_ARG_SRC_ITER_C": 3,
    "DNNL_ARG_DST": 17,
    "DNNL_ARG_DST_ITER": 18,
    "DNNL_ARG_DST_ITER_C": 19,
    "DNNL_ARG_WEIGHTS": 33,
    "DNNL_ARG_WEIGHTS_ITER": 34,
    "DNNL_ARG_WEIGHTS_PROJECTION": 36,
    "DNNL_ARG_BIAS": 41,
    "DNNL_ARG_MEAN": 49,
    "DNNL_ARG_VARIANCE": 50,
    "DNNL_ARG_SCALE": 51,
    "DNNL_ARG_SHIFT": 52,
    "DNNL_ARG_WORKSPACE": 64,
    "DNNL_ARG_SCRATCHPAD": 80,
    "DNNL_ARG_DIFF_SRC": 129,
    "DNNL_ARG_DIFF_SRC_ITER": 130,
    "DNNL_ARG_DIFF_SRC_ITER_C": 131,
    "DNNL_ARG_DIFF_DST": 145,
    "DNNL_ARG_DIFF_DST_ITER": 146,
    "DNNL_ARG_DIFF_DST_ITER_C": 147,
    "DNNL_ARG_DIFF_WEIGHTS": 161,
    "DNNL_ARG_DIFF_WEIGHTS_ITER": 162,
    "DNNL_ARG_DIFF_WEIGHTS_PROJECTION": 164,
    "DNNL_ARG_DIFF_BIAS": 169,
    "DNNL_ARG_DIFF_SCALE": 255,
    "DNNL_ARG_DIFF_SHIFT": 256,
    "DNNL_ARG_MULTIPLE_SRC": 1024,
    "DNNL_ARG_ATTR_SCALES": 4096,
    "DNNL_ARG_ATTR_MULTIPLE_POST_OP_BASE": 32768,
}
