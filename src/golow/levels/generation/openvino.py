"""``openvino``: the model with its cache as OpenVINO state, as OpenVINO GenAI runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from golow.levels.generation.program import TextProgram
from golow.levels.peers.openvino import SETTINGS, converter_reason, import_openvino
from golow.models.gpt2 import Gpt2
from golow.records.errors import Unsupported
from golow.workload.generation.carried_caches import (
    CarriedCaches,
    CarriedGpt2,
    CarriedHuggingFace,
)
from golow.workload.generation.step_modules import is_huggingface
from golow.workload.generation.text_bundle import TextBundle

NEW, BEFORE = 2, 3  # tokens of the traced example
# By default the runtime keeps 8 bits of keys and values, and rounds activations to 8 bits.
FLOAT32 = {"KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
ONE_LENGTH = "takes only texts of the same length here"


class Stateful:
    """Generates text with one inference request, which keeps keys and values."""

    def __init__(self, carried: CarriedCaches, batch: int, threads: int) -> None:
        openvino = import_openvino()
        settings = SETTINGS | FLOAT32 | {"INFERENCE_NUM_THREADS": str(threads)}
        model = stateful_model(carried, batch)
        self._request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
        self._texts = np.arange(batch, dtype=np.int32)

    def prefill(self, tokens: Tensor) -> Tensor:
        """Return logits after the first tokens of texts."""
        self._request.reset_state()
        return self.step(tokens, 0)

    def prefill_apart(self, texts: Sequence[Tensor]) -> Tensor:
        """Raise `Unsupported`: the cache has one position for all texts."""
        raise Unsupported("openvino", ONE_LENGTH)

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Return logits after the next tokens, in memory that the next step overwrites."""
        given = [tokens.numpy(), np.array([position]), self._texts]
        self._request.infer(given, share_inputs=True, share_outputs=True)
        return torch.from_numpy(self._request.output_tensors[0].data)


def stateful_model(carried: CarriedCaches, batch: int) -> Any:
    """Return the OpenVINO model whose caches are its state, initially empty."""
    openvino = import_openvino()
    from openvino import opset13

    shapes = [(batch, heads, -1, size) for heads, size in carried.shapes()]
    past = [torch.zeros(batch, heads, BEFORE, size) for heads, size in carried.shapes()]
    tokens = torch.zeros(batch, NEW, dtype=torch.long)
    example = (tokens, torch.tensor([BEFORE]), torch.arange(batch, dtype=torch.int32), *past)
    try:
        model = openvino.convert_model(
            carried, example_input=example, input=[(batch, -1), (1,), (batch,), *shapes]
        )
    except Exception as error:  # the converter raises whatever tracing raised
        raise Unsupported("openvino", converter_reason(error)) from error
    _become_state(model, len(example) - len(past))
    for node in model.get_ops():
        if node.get_type_name() == "ReadValue":
            shape = [max(0, size.min_length) for size in node.get_output_partial_shape(0)]
            empty = opset13.constant(np.zeros(shape, dtype=np.float32))
            node.set_arguments([empty.output(0)])
    model.validate_nodes_and_infer_types()
    return model


def _become_state(model: Any, first: int) -> None:
    """Replace each input from this one on, and its output, by a state variable."""
    from openvino._offline_transformations import apply_make_stateful_transformation

    names = {}
    for place, (past, present) in enumerate(
        zip(model.inputs[first:], model.outputs[1:], strict=True)
    ):
        past.get_tensor().set_names({f"past_{place}"})
        present.get_tensor().set_names({f"present_{place}"})
        names[f"past_{place}"] = f"present_{place}"
    model.validate_nodes_and_infer_types()
    apply_make_stateful_transformation(model, names)


def stateful(bundle: TextBundle) -> Stateful:
    """Return the generator for this model. Raises `Unsupported` for a user's step module and for
    weights that are not float32."""
    module: nn.Module = bundle.module()
    workload = bundle.workload
    if workload.precision != "default":
        raise Unsupported("openvino", f"runs float32 here, not {workload.precision}")
    if len(set(workload.prompts)) > 1:
        raise Unsupported("openvino", ONE_LENGTH)
    if workload.encoder:
        raise Unsupported("openvino", "golow gives it no model with an encoder")
    if isinstance(module, Gpt2):
        return Stateful(CarriedGpt2(module), workload.batch, workload.threads)
    if is_huggingface(module):
        return Stateful(CarriedHuggingFace(module), workload.batch, workload.threads)
    raise Unsupported("openvino", "a step module has its own caches: see eager:static")


def program(variant: str) -> TextProgram:
    """The worker's side."""
    return TextProgram(stateful)
