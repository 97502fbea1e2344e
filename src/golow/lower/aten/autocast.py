"""Autocast as a pass: adds the casts of a training step to its graph.

PyTorch casts while a step runs, so a captured graph does not show the casts. Here they are ordinary
operations. Which operation runs in which precision follows PyTorch's list for CUDA
(`ATen/autocast_mode.h`), because half precision needs a GPU. The list is translated to the
operations that captured graphs contain. Backward operations run in the precision of their forward
operations, and a gradient has the dtype of its value, as in autograd.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from golow.lower.ir.graph import Argument, Graph, Node, Ref, Scalar, Symbol, Value
from golow.lower.ir.rewriting import Links
from golow.lower.ir.verify import run_node

CAST = "aten._to_copy.default"
TRANSPOSE = "aten.t.default"
VIEWS = (TRANSPOSE, "aten.view.default")
CONVOLUTION_BACKWARD = "aten.convolution_backward.default"

# Names of operations, without namespace and overload.
HALVED = frozenset(
    "convolution convolution_backward addmm addmv addbmm addr mm mv bmm baddbmm linalg_vecdot "
    "_prelu_kernel _prelu_kernel_backward".split()
)
WIDENED = frozenset(
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus "
    "native_layer_norm native_group_norm _fused_rms_norm nll_loss_forward nll_loss2d_forward "
    "smooth_l1_loss huber_loss mse_loss multi_margin_loss multilabel_margin_loss_forward "
    "soft_margin_loss _cdist_forward _pdist_forward renorm logsumexp upsample_nearest1d "
    "_upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d "
    "_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa "
    "upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa prod _softmax _log_softmax "
    "cumprod cumsum linalg_vector_norm sum norm".split()
)
# Operations that need all arguments in one dtype: they get the widest one.
PROMOTED = frozenset(
    "addcdiv addcmul atan2 cross linalg_cross dot vdot grid_sampler_2d grid_sampler_3d index_put "
    "scatter_add".split()
)
# Backward of widened operations: the first arguments are the gradient and the forward's input.
WIDENED_BACKWARD = frozenset(
    "softplus_backward native_layer_norm_backward native_group_norm_backward "
    "_fused_rms_norm_backward nll_loss_backward nll_loss2d_backward smooth_l1_loss_backward "
    "huber_loss_backward mse_loss_backward multi_margin_loss_backward "
    "multilabel_margin_loss_backward soft_margin_loss_backward".split()
)
# Gradients whose second argument is the forward's result instead of its input.
FROM_RESULT = frozenset("_softmax_backward_data _log_softmax_backward_data".split())


class NoCasts(Exception):
    """The node's operation rejects the dtypes that autocast gives it; the message is PyTorch's."""

    def __init__(self, node: Node, message: str) -> None:
        super().__init__(message)
        self.node = node


def autocast(graph: Graph, half: str) -> Graph:
    """The training step under autocast to ``half`` (``bfloat16`` or ``float16``): parameters and
    their gradients stay float32, products run in half precision. Raises `NoCasts`.

    Source: torch.autocast, https://docs.pytorch.org/docs/stable/amp.html
    """
    with FakeTensorMode():
        return _Casting(graph, half).rewritten()


class _Casting:
    """The rewriting of one graph. Fake tensors tell which dtype PyTorch gives each value."""

    def __init__(self, graph: Graph, half: str) -> None:
        self.graph = graph
        self.half: torch.dtype = getattr(torch, half)
        self.links = Links(graph)
        self.tensors = {
            item.value.name: torch.empty(item.value.shape, dtype=getattr(torch, item.value.dtype))
            for item in graph.inputs
        }
        self.nodes: list[Node] = []
        self.casts: dict[tuple[str, torch.dtype], str] = {}
        self.parameters = {i.value.name for i in graph.inputs if i.kind == "parameter"}
        # For each value returned as a gradient, the dtype of its parameter.
        dtypes = {
            i.target: self._dtype(i.value.name) for i in graph.inputs if i.kind == "parameter"
        }
        self.gradients = {o.name: dtypes[o.target] for o in graph.outputs if o.kind == "gradient"}
        # For each layer, shapes of the float32 values, except parameters, that its products read.
        self.wide: dict[str, set[tuple[int, ...]]] = {}
        # For each result of a widened operation, the dtype of its first argument before the cast.
        self.came_in: dict[str, torch.dtype] = {}

    def rewritten(self) -> Graph:
        """The graph with its casts."""
        leaving: dict[str, str] = {}
        for position, node in enumerate(self.graph.nodes):
            self._add(position, node)
            for value in node.outputs:
                if value is not None and value.name in self.gradients:
                    dtype = self.gradients[value.name]
                    leaving[value.name] = self._cast(value.name, dtype, node)
        outputs = (
            msgspec.structs.replace(item, name=leaving.get(item.name, item.name))
            if item.kind == "gradient"
            else item
            for item in self.graph.outputs
        )
        return msgspec.structs.replace(self.graph, nodes=tuple(self.nodes), outputs=tuple(outputs))

    def _add(self, position: int, node: Node) -> None:
        """Add the node after the casts of its arguments."""
        kind = node.op.split(".")[1]
        if kind in HALVED:
            self._halve(node)
        elif self._is_transposed_for_products(position):
            self._append(self._reading(node, self.half))
        elif kind in WIDENED and node.phase == "forward":
            self._widen(node)
        elif kind in WIDENED_BACKWARD | FROM_RESULT:
            self._widen_backward(node, from_result=kind in FROM_RESULT)
        elif kind in PROMOTED and torch.float32 in map(self._dtype, node.references()):
            self._append(self._reading(node, torch.float32))
        elif kind.endswith("_backward"):
            self._append(self._with_gradient_in(node))
        else:
            self._append(node)

    def _halve(self, node: Node) -> None:
        """Add a product in half precision. The gradient of a float32 value is float32 again."""
        halved = self._reading(node, self.half)
        if node.phase == "forward":
            read = {name for name in node.references() if self._dtype(name) == torch.float32}
            shapes = {tuple(self.tensors[name].shape) for name in read - self.parameters}
            self.wide.setdefault(node.module, set()).update(shapes)
            self._append(halved)
            return
        first = node.outputs[0]
        if node.op == CONVOLUTION_BACKWARD:
            image = node.arguments[1]
            widened = isinstance(image, Ref) and self._dtype(image.name) == torch.float32
        else:
            shapes = self.wide.get(node.module, set())
            widened = (
                first is not None
                and first.shape in shapes
                and not self._is_of_a_parameter(first.name)
            )
        self._append_as(halved, torch.float32 if widened else self.half)

    def _is_of_a_parameter(self, name: str) -> bool:
        """True if the value is a parameter's gradient, or becomes one through views alone."""
        while name not in self.gradients:
            reader = self.links.only_reader(name)
            value = None if reader is None else self.graph.nodes[reader].outputs[0]
            if reader is None or value is None or self.graph.nodes[reader].op not in VIEWS:
                return False
            name = value.name
        return True

    def _widen(self, node: Node) -> None:
        """Add the node in float32, and remember its input's dtype before the cast."""
        first = next(node.references(), None)
        came_in = torch.float32 if first is None else self._dtype(first)
        self._append(self._reading(node, torch.float32))
        names = (value.name for value in node.outputs if value is not None)
        self.came_in |= dict.fromkeys(names, came_in)

    def _widen_backward(self, node: Node, from_result: bool) -> None:
        """Add the node in float32; its gradient gets the dtype of the forward's input."""
        second = node.arguments[1]
        assert isinstance(second, Ref)  # noqa: S101
        own = self._dtype(second.name)
        wanted = self.came_in.get(second.name, own) if from_result else own
        self._append_as(self._reading(node, torch.float32), wanted)

    def _is_transposed_for_products(self, position: int) -> bool:
        """True if the node transposes a parameter and only products read the result. The parameter
        is then cast once, as under autocast, and backward reads it in half precision, too."""
        node = self.graph.nodes[position]
        if node.op != TRANSPOSE or node.phase != "forward":
            return False
        source, value = node.arguments[0], node.outputs[0]
        if not (isinstance(source, Ref) and source.name in self.parameters and value is not None):
            return False
        readers = [self.graph.nodes[reader] for reader in self.links.readers[value.name]]
        products = (r.op == TRANSPOSE or r.op.split(".")[1] in HALVED for r in readers)
        return value.name not in self.links.returned and all(products)

    def _with_gradient_in(self, node: Node) -> Node:
        """The backward node, its gradient cast to the dtype of the forward's input or result."""
        gradient, other = node.arguments[:2]
        if not (isinstance(gradient, Ref) and isinstance(other, Ref)):
            return node
        if not (self._castable(gradient.name) and self._castable(other.name)):
            return node
        cast = self._cast(gradient.name, self._dtype(other.name), node)
        return msgspec.structs.replace(node, arguments=(Ref(name=cast), *node.arguments[1:]))

    def _reading(self, node: Node, dtype: torch.dtype) -> Node:
        """The node with its floating-point arguments cast to that dtype."""

        def scalar(item: Scalar) -> Scalar:
            return Ref(name=self._cast(item.name, dtype, node)) if isinstance(item, Ref) else item

        def argument(given: Argument) -> Argument:
            return tuple(map(scalar, given)) if isinstance(given, tuple) else scalar(given)

        keywords = {name: argument(given) for name, given in node.keywords.items()}
        return msgspec.structs.replace(
            node, arguments=tuple(map(argument, node.arguments)), keywords=keywords
        )

    def _castable(self, name: str) -> bool:
        """True if autocast casts the value: it leaves integers and float64 as they are."""
        return self._dtype(name) in (torch.float32, self.half)

    def _dtype(self, name: str) -> torch.dtype:
        return self.tensors[name].dtype

    def _cast(self, name: str, dtype: torch.dtype, reader: Node) -> str:
        """Name of the value in that dtype; it is cast once, where it is first needed."""
        if not self._castable(name) or self._dtype(name) == dtype:
            return name
        if (name, dtype) not in self.casts:
            value = Value(
                name=self._free(f"{name}_{_text(dtype)}"),
                shape=tuple(self.tensors[name].shape),
                dtype=_text(dtype),
            )
            self.casts[name, dtype] = value.name
            self._append(_cast_node(name, value, dtype, reader))
        return self.casts[name, dtype]

    def _append_as(self, node: Node, wanted: torch.dtype) -> None:
        """Add the node and cast its first result to that dtype; the cast value keeps the name."""
        self._append(node)
        made, value = self.nodes[-1], self.nodes[-1].outputs[0]
        if value is None or not self._castable(value.name) or self._dtype(value.name) == wanted:
            return
        before = msgspec.structs.replace(value, name=self._free(f"{value.name}_{value.dtype}"))
        self.tensors[before.name] = self.tensors[value.name]
        outputs = (before, *made.outputs[1:])
        self.nodes[-1] = msgspec.structs.replace(made, outputs=outputs)
        self._append(_cast_node(before.name, value, wanted, node))

    def _append(self, node: Node) -> None:
        """Add the node and update the dtypes of its results."""
        try:
            found = run_node(node, self.tensors)
        except (RuntimeError, TypeError, ValueError) as error:
            raise NoCasts(node, str(error).strip().partition("\n")[0]) from error
        outputs = tuple(self._outputs(node, found))
        self.nodes.append(msgspec.structs.replace(node, outputs=outputs))

    def _outputs(self, node: Node, found: tuple[Tensor, ...]) -> Iterator[Value | None]:
        for value, tensor in zip(node.outputs, found, strict=True):
            if value is None:
                yield None
                continue
            self.tensors[value.name] = tensor
            yield msgspec.structs.replace(value, dtype=_text(tensor.dtype))

    def _free(self, wanted: str) -> str:
        """The name, with underscores appended while it is taken."""
        while wanted in self.links.values or wanted in self.tensors:
            wanted += "_"
        return wanted


def _cast_node(source: str, value: Value, dtype: torch.dtype, reader: Node) -> Node:
    return Node(
        name=value.name,
        op=CAST,
        arguments=(Ref(name=source),),
        keywords={"dtype": Symbol(kind="dtype", name=_text(dtype))},
        outputs=(value,),
        module=reader.module,
        phase=reader.phase,
    )


def _text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
