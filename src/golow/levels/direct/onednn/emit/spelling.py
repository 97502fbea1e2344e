"""The library's names for its numbers."""

from __future__ import annotations

from collections.abc import Mapping

from golow.levels.direct.onednn.bindings.api import (
    MACROS,
    dnnl_alg_kind_t,
    dnnl_data_type_t,
    dnnl_format_tag_t,
    dnnl_prop_kind_t,
    dnnl_query_t,
)
from golow.levels.direct.onednn.bindings.constants import DATA_TYPES, POST_OP_STRIDE


def _named(numbers: Mapping[str, int]) -> dict[int, str]:
    """The first name of each number."""
    found: dict[int, str] = {}
    for name, number in numbers.items():
        found.setdefault(number, name)
    return found


ALGORITHMS = _named(dnnl_alg_kind_t)
TAGS = _named(dnnl_format_tag_t)
QUERIES = _named(dnnl_query_t)
_PROPAGATION, _TYPES = _named(dnnl_prop_kind_t), _named(dnnl_data_type_t)
_ARGUMENTS = _named({k: v for k, v in MACROS.items() if k.startswith("DNNL_ARG_")})

# Meanings of the whole numbers among a primitive's arguments, in their order; others are numbers.
ENUMERATIONS: dict[str, tuple[Mapping[int, str], ...]] = {
    "batch_normalization_backward": (_PROPAGATION,),
    "batch_normalization_forward": (_PROPAGATION,),
    "binary": (ALGORITHMS,),
    "convolution_forward": (_PROPAGATION, ALGORITHMS),
    "convolution_backward_data": (ALGORITHMS,),
    "convolution_backward_weights": (ALGORITHMS,),
    "eltwise_backward": (ALGORITHMS,),
    "eltwise_forward": (_PROPAGATION, ALGORITHMS),
    "inner_product_forward": (_PROPAGATION,),
    "layer_normalization_backward": (_PROPAGATION,),
    "layer_normalization_forward": (_PROPAGATION,),
    "pooling_backward": (ALGORITHMS,),
    "pooling_forward": (_PROPAGATION, ALGORITHMS),
    "reduction": (ALGORITHMS,),
    "resampling_backward": (ALGORITHMS,),
    "resampling_forward": (_PROPAGATION, ALGORITHMS),
}


def data_type(name: str) -> str:
    """The library's name of a golow type."""
    return _TYPES[DATA_TYPES[name]]


def argument(number: int) -> str:
    """DNNL_ARG_... of that number."""
    if number >= POST_OP_STRIDE:
        place, rest = divmod(number, POST_OP_STRIDE)
        return f"DNNL_ARG_ATTR_MULTIPLE_POST_OP({place - 1}) | {_ARGUMENTS[rest]}"
    first = MACROS["DNNL_ARG_MULTIPLE_SRC"]
    if number >= first:
        return f"DNNL_ARG_MULTIPLE_SRC + {number - first}"
    return _ARGUMENTS[number]
