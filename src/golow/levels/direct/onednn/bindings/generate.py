"""Writes `api.py` from oneDNN's header: the functions and numbers of its C API that golow uses.

    python -m golow.levels.direct.onednn.bindings.generate [FOLDER]

FOLDER has ``oneapi/dnnl/dnnl.h``; without it, the first of `header_folders` is read. It needs
pycparser, and a compiler for its preprocessor. What golow begins to use is added to the lists here.
"""

from __future__ import annotations

import operator
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from golow.levels.compiler import compiler_command

TARGET = Path(__file__).parent / "api.py"
PACKAGE = "onednn-devel-cpu-gomp"
HEADER = "oneapi/dnnl/dnnl.h"

PRIMITIVES = """
batch_normalization_forward batch_normalization_backward binary concat convolution_forward
convolution_backward_data convolution_backward_weights eltwise_forward eltwise_backward
inner_product_forward layer_normalization_forward layer_normalization_backward lbr_gru_forward
lbr_gru_backward lstm_forward lstm_backward matmul pooling_forward pooling_backward reduction
reorder resampling_forward resampling_backward sum vanilla_rnn_forward vanilla_rnn_backward
""".split()
FUNCTIONS = [
    *"""
    dnnl_version dnnl_get_effective_cpu_isa dnnl_sgemm
    dnnl_engine_create dnnl_engine_destroy dnnl_stream_create dnnl_stream_destroy
    dnnl_memory_desc_create_with_strides dnnl_memory_desc_create_with_tag dnnl_memory_desc_clone
    dnnl_memory_desc_create_submemory dnnl_memory_desc_reshape dnnl_memory_desc_permute_axes
    dnnl_memory_desc_query dnnl_memory_desc_get_size dnnl_memory_desc_equal dnnl_memory_desc_destroy
    dnnl_memory_create dnnl_memory_set_data_handle dnnl_memory_destroy
    dnnl_primitive_attr_create dnnl_primitive_attr_set_scratchpad_mode
    dnnl_primitive_attr_set_post_ops dnnl_primitive_attr_set_scales_mask
    dnnl_primitive_attr_destroy
    dnnl_post_ops_create dnnl_post_ops_append_sum dnnl_post_ops_append_binary
    dnnl_post_ops_append_eltwise dnnl_post_ops_destroy
    dnnl_primitive_desc_query dnnl_primitive_desc_query_md dnnl_primitive_desc_next_impl
    dnnl_primitive_desc_destroy dnnl_primitive_create dnnl_primitive_execute dnnl_primitive_destroy
    """.split(),
    *(f"dnnl_{name}_primitive_desc_create" for name in PRIMITIVES),
]
STRUCTURES = ["dnnl_version_t", "dnnl_exec_arg_t"]
NUMBERS = {  # by enumeration
    "dnnl_status_t": """
        dnnl_out_of_memory dnnl_invalid_arguments dnnl_unimplemented dnnl_last_impl_reached
        dnnl_runtime_error dnnl_not_required""",
    "dnnl_engine_kind_t": "dnnl_cpu",
    "dnnl_stream_flags_t": "dnnl_stream_default_flags",
    "dnnl_scratchpad_mode_t": "dnnl_scratchpad_mode_user",
    "dnnl_cpu_isa_t": """
        dnnl_cpu_isa_avx2 dnnl_cpu_isa_avx2_vnni dnnl_cpu_isa_avx2_vnni_2 dnnl_cpu_isa_avx512_core
        dnnl_cpu_isa_avx512_core_vnni dnnl_cpu_isa_avx512_core_bf16""",
    "dnnl_data_type_t": "dnnl_data_type_undef dnnl_bf16 dnnl_f32 dnnl_s32 dnnl_s8 dnnl_u8",
    "dnnl_format_kind_t": "dnnl_format_kind_opaque",
    "dnnl_format_tag_t": "dnnl_format_tag_any dnnl_aBcd8b dnnl_aBcd16b dnnl_acdb",
    "dnnl_prop_kind_t": "dnnl_forward_training dnnl_forward_inference dnnl_backward",
    "dnnl_alg_kind_t": """
        dnnl_convolution_direct dnnl_pooling_max dnnl_pooling_avg_include_padding
        dnnl_pooling_avg_exclude_padding dnnl_binary_add dnnl_binary_mul dnnl_binary_div
        dnnl_binary_sub dnnl_reduction_sum dnnl_reduction_mean dnnl_resampling_nearest
        dnnl_resampling_linear dnnl_eltwise_relu dnnl_eltwise_tanh dnnl_eltwise_elu
        dnnl_eltwise_square dnnl_eltwise_abs dnnl_eltwise_sqrt dnnl_eltwise_linear
        dnnl_eltwise_soft_relu dnnl_eltwise_hardsigmoid dnnl_eltwise_logistic dnnl_eltwise_exp
        dnnl_eltwise_gelu_tanh dnnl_eltwise_swish dnnl_eltwise_log dnnl_eltwise_clip
        dnnl_eltwise_clip_v2 dnnl_eltwise_pow dnnl_eltwise_gelu_erf dnnl_eltwise_round
        dnnl_eltwise_mish dnnl_eltwise_hardswish dnnl_eltwise_relu_use_dst_for_bwd
        dnnl_eltwise_tanh_use_dst_for_bwd dnnl_eltwise_elu_use_dst_for_bwd
        dnnl_eltwise_sqrt_use_dst_for_bwd dnnl_eltwise_logistic_use_dst_for_bwd
        dnnl_eltwise_exp_use_dst_for_bwd dnnl_eltwise_clip_v2_use_dst_for_bwd""",
    "dnnl_rnn_direction_t": "dnnl_unidirectional_left2right dnnl_unidirectional_right2left",
    "dnnl_rnn_flags_t": "dnnl_rnn_flags_diff_weights_overwrite",
    "dnnl_normalization_flags_t": """
        dnnl_use_global_stats dnnl_use_scale dnnl_use_shift dnnl_fuse_norm_relu""",
    "dnnl_query_t": """
        dnnl_query_impl_info_str dnnl_query_strides dnnl_query_src_md dnnl_query_diff_src_md
        dnnl_query_weights_md dnnl_query_diff_weights_md dnnl_query_dst_md dnnl_query_diff_dst_md
        dnnl_query_workspace_md dnnl_query_scratchpad_md dnnl_query_exec_arg_md
        dnnl_query_ndims_s32 dnnl_query_dims dnnl_query_data_type dnnl_query_submemory_offset_s64
        dnnl_query_format_kind dnnl_query_inner_nblks_s32 dnnl_query_inner_blks
        dnnl_query_inner_idxs""",
}
MACROS = """
DNNL_MAX_NDIMS DNNL_ARG_SRC DNNL_ARG_SRC_1 DNNL_ARG_SRC_ITER DNNL_ARG_SRC_ITER_C DNNL_ARG_DST
DNNL_ARG_DST_ITER DNNL_ARG_DST_ITER_C DNNL_ARG_WEIGHTS DNNL_ARG_WEIGHTS_ITER
DNNL_ARG_WEIGHTS_PROJECTION DNNL_ARG_BIAS DNNL_ARG_MEAN DNNL_ARG_VARIANCE DNNL_ARG_SCALE
DNNL_ARG_SHIFT DNNL_ARG_WORKSPACE DNNL_ARG_SCRATCHPAD DNNL_ARG_DIFF_SRC DNNL_ARG_DIFF_SRC_ITER
DNNL_ARG_DIFF_SRC_ITER_C DNNL_ARG_DIFF_DST DNNL_ARG_DIFF_DST_ITER DNNL_ARG_DIFF_DST_ITER_C
DNNL_ARG_DIFF_WEIGHTS DNNL_ARG_DIFF_WEIGHTS_ITER DNNL_ARG_DIFF_WEIGHTS_PROJECTION DNNL_ARG_DIFF_BIAS
DNNL_ARG_DIFF_SCALE DNNL_ARG_DIFF_SHIFT DNNL_ARG_MULTIPLE_SRC DNNL_ARG_ATTR_SCALES
DNNL_ARG_ATTR_MULTIPLE_POST_OP_BASE
""".split()

# Extensions of GNU C, which the C library's headers use and pycparser does not know.
WITHOUT_EXTENSIONS = ("-D__attribute__(x)=", "-D__extension__=", "-D__restrict=")
WIDTH = 100
MARK = "golow_"  # before the name of a macro, as an enumerator
NUMBER_TYPES = {
    "int": "c_int",
    "unsigned int": "c_uint",
    "unsigned": "c_uint",
    "char": "c_char",
    "float": "c_float",
    "int32_t": "c_int",
    "int64_t": "c_int64",
    "size_t": "c_size_t",
}
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "|": operator.or_,
    "<<": operator.lshift,
}


def main() -> None:
    """Write the file."""
    folders = [Path(name) for name in sys.argv[1:]] or header_folders()
    if not folders:
        sys.exit(f"no folder has {HEADER}: pip install {PACKAGE}")
    TARGET.write_text(generated(folders[0]))


def header_folders() -> list[Path]:
    """The installed folders of headers: of the package that belongs to golow's library, and of
    torch, which brings those of a newer oneDNN 3."""
    found = []
    try:
        files = distribution(PACKAGE).files or []
        found += [Path(str(f.locate())).resolve() for f in files if str(f).endswith(HEADER)]
    except PackageNotFoundError:
        pass
    torch = find_spec("torch")
    for place in (torch.submodule_search_locations or []) if torch else []:
        found.append(Path(place) / "include" / HEADER)
    return [header.parents[2] for header in found if header.is_file()]


def generated(folder: Path) -> str:
    """The file's text. Raises `KeyError` for what the header does not have."""
    header = Header(folder)
    parts = [
        '''"""oneDNN 3's C API, as far as golow uses it, from the library's header.

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
''',
        *(header.structure(name) for name in STRUCTURES),
        "\n# Result and arguments. An enumeration is an int, a handle or a pointer a c_void_p.\n"
        "FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {",
        *(header.function(name) for name in FUNCTIONS),
        "}\n",
        *(header.numbers(name, wanted.split()) for name, wanted in NUMBERS.items()),
        header.macros(MACROS),
    ]
    return "\n".join(parts)


class Header:
    """Declarations of the header."""

    def __init__(self, folder: Path) -> None:
        from pycparser import CParser, c_ast

        self._ast = c_ast
        self._types: dict[str, Any] = {}
        self._functions: dict[str, Any] = {}
        self._members: dict[str, dict[str, int]] = {}  # of enumerations
        self._values: dict[str, int] = {}  # of all enumerators
        for declared in CParser().parse(_preprocessed(folder)).ext:
            if isinstance(declared, c_ast.Typedef):
                self._types[declared.name] = declared.type
                self._add_enumerators(declared.name, declared.type.type)
            elif isinstance(declared.type, c_ast.FuncDecl):
                self._functions[declared.name] = declared.type
            else:
                self._add_enumerators("", declared.type)

    def structure(self, name: str) -> str:
        """A class of ctypes."""
        members = self._types[name].type.decls
        fields = [f'        ("{item.name}", {self._type(item.type)}),' for item in members]
        return "\n".join((f"\nclass {name}(Structure):", "    _fields_ = [", *fields, "    ]\n"))

    def function(self, name: str) -> str:
        """An entry of the dictionary of functions."""
        declared = self._functions[name]
        given = [self._type(one.type) for one in declared.args.params]
        arguments = [one for one in given if one]  # (void) is none
        result = self._result(declared.type)
        line = f'    "{name}": ({result}, [{", ".join(arguments)}]),'
        if len(line) <= WIDTH:
            return line
        return f'    "{name}": ({result}, [\n{_wrapped(arguments, 8)}\n    ]),'

    def numbers(self, name: str, wanted: list[str]) -> str:
        """A dictionary of an enumeration."""
        return _dictionary(name, {one: self._members[name][one] for one in wanted})

    def macros(self, wanted: list[str]) -> str:
        """A dictionary of macros."""
        return _dictionary("MACROS", {one: self._values[MARK + one] for one in wanted})

    # ------------------------------------------------------------ types

    def _result(self, node: Any) -> str:
        if isinstance(node, self._ast.PtrDecl):
            (name,) = node.type.type.names
            if name in STRUCTURES:
                return f"POINTER({name})"
        return self._type(node)

    def _type(self, node: Any) -> str:
        """The type of ctypes; empty for void."""
        if isinstance(node, self._ast.PtrDecl):
            named = getattr(node.type.type, "names", None)
            return "c_char_p" if named == ["char"] else "c_void_p"
        if isinstance(node, self._ast.ArrayDecl):  # an argument: the address of its first element
            return "c_void_p"
        inner = node.type
        if isinstance(inner, self._ast.Enum):
            return "c_int"
        name = " ".join(inner.names)
        if name == "void":
            return ""
        return NUMBER_TYPES[name] if name in NUMBER_TYPES else self._type(self._types[name])

    # ------------------------------------------------------------ numbers

    def _add_enumerators(self, name: str, node: Any) -> None:
        if not isinstance(node, self._ast.Enum) or node.values is None:
            return
        value, members = -1, self._members.setdefault(name, {})
        for one in node.values.enumerators:
            value = value + 1 if one.value is None else self._value(one.value)
            members[one.name] = self._values[one.name] = value

    def _value(self, node: Any) -> int:
        if isinstance(node, self._ast.Constant):
            return int(node.value.rstrip("uUlL"), 0)
        if isinstance(node, self._ast.ID):
            return self._values[node.name]
        if isinstance(node, self._ast.UnaryOp) and node.op == "-":
            return -self._value(node.expr)
        return OPERATIONS[node.op](self._value(node.left), self._value(node.right))


def _preprocessed(folder: Path) -> str:
    """The header without its directives; the macros stand after it as an enumeration."""
    command = compiler_command()
    if command is None:
        raise OSError("there is no compiler")
    macros = ", ".join(f"{MARK}{name} = {name}" for name in MACROS)
    return subprocess.run(
        [*command, "-x", "c", "-E", "-P", *WITHOUT_EXTENSIONS, f"-I{folder}", "-"],
        input=f'#include "{HEADER}"\nenum golow_macros {{ {macros} }};\n',
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def _dictionary(name: str, numbers: dict[str, int]) -> str:
    lines = [f'    "{one}": {number},' for one, number in numbers.items()]
    return "\n".join((f"{name} = {{", *lines, "}\n"))


def _wrapped(words: list[str], indent: int) -> str:
    space = " " * indent
    text = ", ".join(words) + ","
    return textwrap.fill(text, WIDTH, initial_indent=space, subsequent_indent=space)


if __name__ == "__main__":
    main()
