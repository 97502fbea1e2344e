"""`golow lower --show --kernels`: the kernels that `cudnn` generates, as text to read. Nothing here
needs a GPU: plans are built with engines that are asked for and not run."""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.run.kernel_listing import GENERATED, kernel_texts
from golow.levels.direct.cudnn.steps.built_plan import Built, KernelCall
from support.direct.cudnn_plans import built


class Gate(nn.Module):
    """The same group of functions of elements, twice, and one that reads a view."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.first, self.second):
            x = layer(x)
            x = x * torch.sigmoid(x) + torch.exp(x)
        return x.transpose(0, 1) + 1


def plan() -> Built:
    return built(Gate(), "infer", "default", 8, 8)[0]


def test_the_kernels_are_written_out_with_the_graphs_names() -> None:
    made = plan()
    texts = kernel_texts(made)
    assert texts
    whole = "\n".join(texts)
    print(whole)
    first = next(call for call in made.calls if isinstance(call, KernelCall) and call.names)
    assert [name for name, _ in first.names] == ["x0", "t0", "t1", "t2", "y0"]
    for _, name in first.names:
        assert f"// {name}\n" in whole
    assert "golow.activate" in whole
    assert "__global__ void fused(const float* x0_in" in whole
    assert not re.search(r"\b(POINTERS|SIZES|READ|COMPUTE|WRITE|WIDTH)\b", whole)
    assert whole.count("{") == whole.count("}")


def test_layers_that_share_code_are_listed_once() -> None:
    made = plan()
    generated = [
        call.kernel.source
        for call in made.calls
        if isinstance(call, KernelCall) and call.kernel.file in GENERATED
    ]
    assert len(kernel_texts(made)) == len(set(generated)) < len(generated)
    assert any("the same code in steps" in text for text in kernel_texts(made))


def test_names_are_no_part_of_what_is_compiled() -> None:
    for call in plan().calls:
        if isinstance(call, KernelCall):
            assert all(name not in call.kernel.source for _, name in call.names if "=" in name)
