"""oneDNN's primitives: compiled computations, and the post-ops on their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p, c_float, c_void_p
from types import MappingProxyType
from typing import Any, NamedTuple

from golow.levels.direct.onednn.bindings.constants import (
    BIAS,
    BINARY_ADD,
    BINARY_MUL,
    DIFF_BIAS,
    DIFF_WEIGHTS,
    ELTWISE,
    QUERY,
    QUERY_ARGUMENT,
    QUERY_IMPLEMENTATION,
    SCRATCHPAD,
    UNDEFINED_TYPE,
    USER_SCRATCHPAD,
    WEIGHTS,
)
from golow.levels.direct.onednn.bindings.library import Descriptor, Engine, Owned, call, library
from golow.levels.direct.onednn.bindings.origins import Asked

NO_SCALES: Mapping[int, int] = MappingProxyType({})


class PostOp(NamedTuple):
    """Operation that a primitive applies to its result before it is written.

    kind: ``sum`` (add alpha times the destination's content), ``add`` or ``mul`` (add a tensor with
    that descriptor, or multiply by it) or a key of ELTWISE with its alpha and beta.
    """

    kind: str
    alpha: float = 0.0
    beta: float = 0.0
    descriptor: Descriptor | None = None


class _Attributes(Owned):
    destroy = "dnnl_primitive_attr_destroy"

    def __init__(self, post_ops: Sequence[PostOp], scales: Mapping[int, int]) -> None:
        super().__init__(c_void_p())
        call("dnnl_primitive_attr_create", byref(self.handle))
        for argument, mask in scales.items():
            call("dnnl_primitive_attr_set_scales_mask", self.handle, argument, mask)
        # golow allocates it.
        call("dnnl_primitive_attr_set_scratchpad_mode", self.handle, USER_SCRATCHPAD)
        if post_ops:
            chain = _PostOps(post_ops)  # must live until the call has copied it
            call("dnnl_primitive_attr_set_post_ops", self.handle, chain.handle)


class _PostOps(Owned):
    destroy = "dnnl_post_ops_destroy"

    def __init__(self, post_ops: Sequence[PostOp]) -> None:
        super().__init__(c_void_p())
        call("dnnl_post_ops_create", byref(self.handle))
        for item in post_ops:
            if item.kind == "sum":
                factor = c_float(item.alpha)
                call("dnnl_post_ops_append_sum", self.handle, factor, 0, UNDEFINED_TYPE)
            elif item.descriptor is not None:
                kind = {"add": BINARY_ADD, "mul": BINARY_MUL}[item.kind]
                call("dnnl_post_ops_append_binary", self.handle, kind, item.descriptor.handle)
            else:
                settings = (ELTWISE[item.kind], c_float(item.alpha), c_float(item.beta))
                call("dnnl_post_ops_append_eltwise", self.handle, *settings)


class Primitive(Owned):
    """A computation that is ready to run, with the descriptors of its arguments.

    name is the primitive's name in the API (``convolution_forward``); the arguments are those of
    ``dnnl_NAME_primitive_desc_create`` between the engine and the attributes. implementation counts
    from the one that the library prefers, which is 0. scales: arguments that are multiplied by
    float32 numbers, which are further arguments (SCALES | argument), and along which of its axes
    these differ, a bit an axis. description: the library's, which a backward primitive takes as a
    hint.
    """

    destroy = "dnnl_primitive_destroy"

    def __init__(
        self,
        engine: Engine,
        name: str,
        *arguments: Any,
        post_ops: Sequence[PostOp] = (),
        implementation: int = 0,
        scales: Mapping[int, int] = NO_SCALES,
    ) -> None:
        super().__init__(c_void_p())
        self.description = PrimitiveDescription(
            engine, name, arguments, post_ops, implementation, scales
        )
        call("dnnl_primitive_create", byref(self.handle), self.description.handle)

    @property
    def implementation(self) -> str:
        """The library's name for the code that it chose, e.g. ``brgconv:avx512_core``."""
        text = c_char_p()
        call(
            "dnnl_primitive_desc_query", self.description.handle, QUERY_IMPLEMENTATION, 0,
            byref(text),
        )  # fmt: skip
        return (text.value or b"").decode()

    @property
    def scratchpad(self) -> Descriptor:
        """The layout of the scratch memory that it needs while it runs."""
        return self.descriptor(SCRATCHPAD)

    def descriptor(self, argument: int) -> Descriptor:
        """The layout that it needs for this argument (a key of QUERY); 0 bytes if it is unused."""
        index = 0
        if argument == BIAS:
            argument, index = WEIGHTS, 1
        elif argument == DIFF_BIAS:
            argument, index = DIFF_WEIGHTS, 1
        return self.description.asked(QUERY[argument], index)

    def layout_of(self, argument: int) -> Descriptor:
        """The layout of any argument by its number, DNNL_ARG_..."""
        return self.description.asked(QUERY_ARGUMENT, argument)


class PrimitiveDescription(Owned):
    """The library's description of a primitive (dnnl_primitive_desc_t), with what it was made from:
    the arguments of `Primitive`."""

    destroy = "dnnl_primitive_desc_destroy"

    def __init__(
        self,
        engine: Engine,
        name: str,
        arguments: Sequence[Any],
        post_ops: Sequence[PostOp],
        implementation: int,
        scales: Mapping[int, int],
    ) -> None:
        super().__init__(c_void_p())
        self.name, self.arguments = name, tuple(arguments)
        self.post_ops, self.implementation = tuple(post_ops), implementation
        self.scales = dict(scales)
        attributes = _Attributes(post_ops, scales)
        given = [getattr(a, "handle", a) for a in arguments]
        if name == "reorder":  # source and target may be on different engines
            source, target = given
            given = [source, engine.handle, target, engine.handle]
        else:
            given = [engine.handle, *given]
        function = f"dnnl_{name}_primitive_desc_create"
        call(function, byref(self.handle), *given, attributes.handle)
        for _ in range(implementation):
            call("dnnl_primitive_desc_next_impl", self.handle)

    def asked(self, query: int, index: int) -> Descriptor:
        """The primitive's answer to a query for a layout."""
        found = library().dnnl_primitive_desc_query_md(self.handle, query, index)
        return Descriptor.copied(found, Asked(self, query, index))
