"""A worker's module, which is built without drawing its weights and reads them in their own
precision; and the reference, which is moved without reading them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from golow.levels.generation.double_module import DoubleModule
from golow.records.text import TextWorkload
from golow.records.workload import ModelSource
from golow.worker.text_program import Moved
from golow.workload.generation.sources import PreparedText
from golow.workload.generation.text_bundle import write_text_bundles
from golow.workload.source import build_module
from support.models.text_models import VOCABULARY, OwnStep

SOURCE = ModelSource(kind="zoo", name="llama_tiny")
WORK = TextWorkload(
    model="llama_tiny", source=SOURCE, vocabulary=VOCABULARY, batch=1, prompt=4, tokens=4,
    precision="bf16",
)  # fmt: skip
SHAPES = ((256, 256), (128, 256), (688, 256), (256, 688))  # of its weights


class InFloat32(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers operations that read or write a matrix of float32 outside of the meta device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [item for item in tree_iter((args, kwargs, result)) if isinstance(item, Tensor)]
        is_here = all(item.device.type != "meta" for item in tensors)
        wide = any(item.dtype == torch.float32 and item.shape in SHAPES for item in tensors)
        if is_here and wide and func._opname not in ("empty", "detach"):
            self.found.append(str(func))
        return result


def test_weights_are_neither_drawn_nor_widened(tmp_path: Path) -> None:
    module = build_module(SOURCE).eval().bfloat16()
    (bundle,) = write_text_bundles(PreparedText((WORK,), module), tmp_path)
    with InFloat32() as watched:
        made = bundle.module()
    assert watched.found == []
    assert not any(item.requires_grad for item in made.parameters())
    tokens = torch.arange(12)[None]
    with torch.no_grad():
        assert torch.equal(made(tokens), module(tokens))


def test_names_of_one_weight_are_written_and_read(tmp_path: Path) -> None:
    module = build_module(SOURCE).bfloat16()
    module.lm_head.weight = module.model.embed_tokens.weight
    (bundle,) = write_text_bundles(PreparedText((WORK,), module), tmp_path)
    state = bundle.module().state_dict()
    assert all(torch.equal(state[name], item) for name, item in module.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_reference_is_moved_and_moved_back_without_its_file(dtype: torch.dtype) -> None:
    step, share = OwnStep().to(dtype).requires_grad_(False), 2.0**-9
    given = {name: item.double().clone() for name, item in step.state_dict().items()}
    double = DoubleModule(step)
    own = double.module.state_dict()
    assert {item.dtype for item in own.values()} == {torch.float64}
    for _ in range(2):  # it is moved from what was given, not from where it is
        double.move(Moved(seed=3, share=share))
        own["table"].fill_(1.0)
        ratios = own["embedding.weight"] / given["embedding.weight"]
        assert ratios.unique().tolist() == [1 - share, 1 + share]
    double.move(None)
    double.move(None)
    assert all(torch.equal(own[name], item) for name, item in given.items())
