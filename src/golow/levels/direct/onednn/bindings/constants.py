"""The part of oneDNN's enumerations that golow uses: the values of version 3's ``dnnl_types.h``,
which are stable within a major version."""

# dnnl_status_t
STATUS = {
    1: "out_of_memory",
    2: "invalid_arguments",
    3: "unimplemented",
    4: "last_impl_reached",
    5: "runtime_error",
    6: "not_required",
}

DATA_TYPES = {"float32": 3, "int32": 4, "uint8": 6}  # dnnl_data_type_t

# dnnl_format_tag_t
ANY = 1
BLOCKED_BY_8 = 102  # aBcd8b: channels in blocks of 8, one AVX register
BLOCKED_BY_16 = 78  # aBcd16b: channels in blocks of 16, one AVX-512 register
CHANNELS_LAST = 22  # acdb

# dnnl_cpu_isa_t: the bit that is set for every AVX-512 variant and for nothing below it
AVX_512 = 0x20

# dnnl_prop_kind_t
FORWARD_TRAINING, FORWARD_INFERENCE = 64, 96
BACKWARD = 128

# dnnl_alg_kind_t
CONVOLUTION_DIRECT = 1
POOLING_MAX, POOLING_AVERAGE, POOLING_AVERAGE_EXCLUDING = 511, 767, 1023
BINARY_ADD, BINARY_MUL, BINARY_DIV, BINARY_SUB = 131056, 131057, 131060, 131061
REDUCTION_SUM, REDUCTION_MEAN = 196596, 196598
RESAMPLING_NEAREST, RESAMPLING_LINEAR = 196592, 196593
# The library's names. "_use_dst_for_bwd": the gradient reads the result instead of the argument.
ELTWISE = {
    "relu": 32,
    "tanh": 33,
    "elu": 34,
    "square": 35,
    "abs": 36,
    "sqrt": 37,
    "linear": 38,
    "soft_relu": 39,
    "hardsigmoid": 40,
    "logistic": 41,
    "exp": 42,
    "gelu_tanh": 43,
    "swish": 44,
    "log": 45,
    "clip": 46,
    "clip_v2": 47,
    "pow": 48,
    "gelu_erf": 49,
    "round": 50,
    "mish": 51,
    "hardswish": 52,
    "relu_use_dst_for_bwd": 256,
    "tanh_use_dst_for_bwd": 257,
    "elu_use_dst_for_bwd": 258,
    "sqrt_use_dst_for_bwd": 259,
    "logistic_use_dst_for_bwd": 260,
    "exp_use_dst_for_bwd": 261,
    "clip_v2_use_dst_for_bwd": 262,
}

# dnnl_rnn_direction_t, dnnl_rnn_flags_t
LEFT_TO_RIGHT, RIGHT_TO_LEFT = 1, 2
OVERWRITE_GRADIENTS = 1

# dnnl_normalization_flags_t
GLOBAL_STATISTICS, USE_SCALE, USE_SHIFT, FUSE_RELU = 1, 2, 4, 8

# DNNL_ARG_...
SRC, SRC_1, DST, WEIGHTS, BIAS = 1, 2, 17, 33, 41
MEAN, VARIANCE, SCALE, SHIFT, WORKSPACE, SCRATCHPAD = 49, 50, 51, 52, 64, 80
DIFF_SRC, DIFF_DST, DIFF_WEIGHTS, DIFF_BIAS, DIFF_SCALE, DIFF_SHIFT = 129, 145, 161, 169, 255, 256
MULTIPLE_SRC = 1024
# Of recurrent layers.
SRC_ITER, SRC_ITER_C, DST_ITER, DST_ITER_C = 2, 3, 18, 19
WEIGHTS_ITER, WEIGHTS_PROJECTION = 34, 36
DIFF_SRC_ITER, DIFF_SRC_ITER_C, DIFF_DST_ITER, DIFF_DST_ITER_C = 130, 131, 146, 147
DIFF_WEIGHTS_ITER, DIFF_WEIGHTS_PROJECTION = 162, 164
POST_OP_STRIDE = 32768  # DNNL_ARG_ATTR_MULTIPLE_POST_OP(n) is (n + 1) times this

# dnnl_query_t
QUERY = {
    SRC: 129,
    DIFF_SRC: 130,
    WEIGHTS: 131,
    DIFF_WEIGHTS: 132,
    DST: 133,
    DIFF_DST: 134,
    WORKSPACE: 135,
    SCRATCHPAD: 136,
}
QUERY_IMPLEMENTATION = 8
QUERY_ARGUMENT = 255  # dnnl_query_exec_arg_md: the index is an argument's number
QUERY_STRIDES, QUERY_NDIMS, QUERY_DIMS, QUERY_DATA_TYPE = 14, 256, 257, 258
QUERY_OFFSET = 259
QUERY_FORMAT_KIND = 262
QUERY_INNER_COUNT, QUERY_INNER_BLOCKS, QUERY_INNER_INDICES = 263, 264, 265
OPAQUE = 3  # dnnl_format_kind_t
