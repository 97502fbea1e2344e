"""What `onednn` spares in inference: passes over memory that a primitive beside them can make."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from golow.levels.direct.onednn.bindings.library import Descriptor, channel_block
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.lower.analysis.arithmetic import step_operations
from golow.lower.plan.plan import Step
from golow.records.errors import Unsupported
from support.direct.in_process import assert_right
from support.direct.onednn_in_process import ENGINE, LAYOUTS, Running, compute, lower


def steps(running: Running) -> list[Step]:
    """Those of an iteration."""
    return [step for step in running.built.plan.steps if not step.once]


# ---------------------------------------------------------------- layers that normalise first


class Dense(nn.Module):
    """Two layers of a dense block: norm and relu before the convolution, and every result joined
    to what came before. growth: channels of a layer."""

    def __init__(self, growth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        wide = (32, 32 + growth)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for channels in wide)
        self.convs = nn.ModuleList(nn.Conv2d(n, growth, 3, padding=1) for n in wide)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = torch.cat([x, conv(torch.relu(norm(x)))], 1)
        return x


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("growth", [channel_block().size, 12])
def test_norms_before_convolutions(growth: int, layout: str) -> None:
    """Also where the joined channels fill no whole blocks."""
    torch.manual_seed(0)
    network = lower(Dense(growth), torch.randn(2, 3, 8, 8), "infer")
    assert_right(network, compute(network, lambda _: LAYOUTS[layout]))


def test_joined_blocks_stay_blocks() -> None:
    """Neither a relu of its own nor a reorder between layers."""
    network = lower(Dense(channel_block().size), torch.randn(2, 3, 8, 8), "infer")
    found = [step.operation for step in steps(Running(network, lambda _: LAYOUTS["blocked"]))]
    layer = ["batch_norm_inference", "convolution", "concatenate"]
    assert found == ["convolution", *layer, *layer]


# ---------------------------------------------------------------- rows


class Turned(nn.Module):
    """Linear layers over a batch that was transposed, as in attention that takes the sequence
    first, and one whose weight is a transposed view."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(24, 40), nn.Linear(40, 24, bias=False)
        self.last = nn.Parameter(torch.randn(24, 7))

    def forward(self, x: Tensor) -> Tensor:
        hidden = nn.functional.gelu(self.wide(x.transpose(0, 1)))
        y = self.narrow(hidden).transpose(0, 1) + x
        return nn.functional.linear(y, self.last.T)


class Joined(nn.Module):
    """Two images of whole blocks of channels, joined."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(3, 16, 3), nn.Conv2d(3, 32, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.other(x)], 1)


@pytest.mark.parametrize("way", LAYOUTS)
@pytest.mark.parametrize("images", [1, 3])
def test_images_that_lie_alike_are_joined_by_a_kernel(images: int, way: str) -> None:
    torch.manual_seed(0)
    network = lower(Joined(), torch.randn(images, 3, 9, 8), "infer")
    running = Running(network, lambda _: LAYOUTS[way])
    (joined,) = (step for step in steps(running) if step.operation == "concatenate")
    assert joined.implementation == "generated"
    assert_right(network, compute(network, lambda _: LAYOUTS[way]))


@pytest.mark.parametrize("way", LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 5, 24), (1, 5, 24), (5, 1, 24)])
def test_a_linear_layer_in_three_ways(shape: tuple[int, ...], way: str) -> None:
    """No way copies rows that are in another order."""
    torch.manual_seed(0)
    network = lower(Turned(), torch.randn(*shape), "infer")
    running = Running(network, lambda _: LAYOUTS[way])
    found = steps(running)
    assert [step.operation for step in found] == ["linear", "linear", "fused", "linear"]
    assert_right(network, compute(network, lambda _: LAYOUTS[way]))


class Halved(nn.Module):
    """A product with a number, which no other function joins."""

    def forward(self, x: Tensor) -> Tensor:
        return (0.5 * x).cumsum(-1)


def test_a_product_with_a_number_is_no_linear_layer() -> None:
    """The audit would take it for a product of a matrix with itself."""
    running = Running(lower(Halved(), torch.randn(2, 4096), "infer"))
    first, *_ = steps(running)
    assert first.operation == "binary" and first.implementation != "generated"
    assert step_operations(first) == 0


# ---------------------------------------------------------------- attention


class Heads(nn.Module):
    """Attention with queries, keys and values from one product. scaled: the scores are divided
    after their product, as BERT and GPT-2 do it."""

    def __init__(self, scaled: bool) -> None:
        super().__init__()
        self.joint, self.out, self.scaled = nn.Linear(32, 96), nn.Linear(32, 32), scaled

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.joint(x).reshape(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        if self.scaled:
            scores = query @ key.transpose(-1, -2) / 8**0.5
            found = scores.softmax(-1) @ value
        else:
            found = nn.functional.scaled_dot_product_attention(query, key, value)
        return x + self.out(found.transpose(1, 2).reshape(batch, length, width))


class SequenceFirst(nn.Module):
    """PyTorch's own module, which transposes its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return self.attention(y, y, y, need_weights=False)[0]


def needs_no_copies() -> bool:
    """True if this CPU's products take the same code for interleaved heads."""
    whole = Descriptor.strided((2, 4, 5, 8), (480, 8, 96, 1))
    turned = Descriptor.strided((2, 4, 8, 5), (480, 8, 1, 96))
    target = Descriptor.plain((2, 4, 5, 5))
    plain = Descriptor.plain(whole.shape), Descriptor.plain(turned.shape)
    made = [
        Primitive(ENGINE, "matmul", a, b, None, target).implementation
        for a, b in ((whole, turned), plain)
    ]
    return made[0] == made[1]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("scaled", [False, True])
def test_attention_copies_nothing(scaled: bool, batch: int) -> None:
    """Heads are read and written where they are stored, and the scale is part of a product."""
    torch.manual_seed(0)
    network = lower(Heads(scaled), torch.randn(batch, 5, 32), "infer")
    assert_right(network, compute(network))
    found = [step.operation for step in steps(Running(network))]
    if needs_no_copies():
        assert found == ["linear", "matrix_product", "softmax", "matrix_product", "linear"]


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3])
def test_attention_with_the_sequence_first(batch: int) -> None:
    torch.manual_seed(0)
    network = lower(SequenceFirst(), torch.randn(batch, 5, 32), "infer")
    assert_right(network, compute(network))


# ---------------------------------------------------------------- views


class Sliced(nn.Module):
    """Ranges of ranges, read at once, later, as parts of a joined value and as the result."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        one, other = x.chunk(2, 1)
        inner = one[:, 1:3, 1:]
        turned = inner.transpose(1, 2).reshape(len(x), -1)
        joined = torch.cat([other, one * 2], 1)
        return turned + 1, joined, inner, other.permute(2, 0, 1)[1:4].flatten(1), x[1:]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("stem", [False, True])
def test_slices_are_right(stem: bool, layout: str) -> None:
    """Of an input and of a result, in any layout."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 16, 1), nn.Flatten(2), Sliced()) if stem else Sliced()
    shape = (2, 3, 4, 4) if stem else (2, 8, 6)
    network = lower(module, torch.randn(*shape), "infer")
    found = Running(network, lambda _: LAYOUTS[layout])
    for index in range(2):
        found.point_at(index)
        inputs = network.prepared.batches[index].inputs
        wanted = network.prepared.module(*inputs)
        results = found.step()
        for position, right in enumerate(wanted):
            error = np.abs(results[f"output/{position}"] - right.detach().numpy()).max()
            assert error < 1e-5, position


class Shuffled(nn.Module):
    """Channels of two convolutions in turn, of which one half goes on, as in ShuffleNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(3, channels, 1), nn.Conv2d(3, channels, 1)
        self.last = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        joined = torch.cat([self.one(x), self.other(x)], 1)
        shuffled = joined.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
        kept, on = shuffled.chunk(2, 1)
        return torch.cat([kept, self.last(on)], 1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [10, 9])  # 9: a half ends between two that are in turn
def test_shuffled_channels(channels: int, layout: str) -> None:
    torch.manual_seed(0)
    network = lower(Shuffled(channels), torch.randn(2, 3, 4, 4), "infer")
    assert_right(network, compute(network, lambda _: LAYOUTS[layout]))
    found = [s.operation for s in steps(Running(network, lambda _: LAYOUTS[layout]))]
    if layout == "channels_last" and channels % 2 == 0:  # each half is copied once
        assert sum(operation in ("slice", "reorder") for operation in found[1:]) == 2


# ---------------------------------------------------------------- means over images


class Means(nn.Module):
    """With and without the axes that are left."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3)) + (x - x.mean((2, 3), keepdim=True)).relu().mean((-1, -2))


@pytest.mark.parametrize("channels", [3, 16])
def test_a_mean_over_an_image_is_a_pooling(channels: int) -> None:
    torch.manual_seed(0)
    network = lower(Means(), torch.randn(2, channels, 9, 5), "infer")
    found = [step.operation for step in steps(Running(network))]
    assert found.count("adaptive_average_pool") == 2  # two of the three means are one
    assert "reduce" not in found
    assert_right(network, compute(network))


# ---------------------------------------------------------------- operands that are repeated


class Biased(nn.Module):
    """A bias for each channel of an image, and a mask between the axes of scores."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.mask = nn.Parameter(torch.randn(4, 1, 16, 16))

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x)
        return y.reshape(len(x), 4, 4, 16, 16) + self.mask


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_operand_is_repeated_by_reference_code(layout: str) -> None:
    torch.manual_seed(0)
    network = lower(Biased(), torch.randn(2, 16, 8, 8), "infer")
    alone = steps(Running(network, lambda _: LAYOUTS[layout], generates=False))
    assert len([step for step in alone if step.operation == "binary"]) == 2
    for found in (alone, steps(Running(network, lambda _: LAYOUTS[layout]))):
        by = {step.implementation for step in found}
        assert "numpy" not in by
        assert not any(name.startswith("ref") for name in by)
    for generates in (False, True):
        assert_right(network, compute(network, lambda _: LAYOUTS[layout], generates))


# ---------------------------------------------------------------- outputs that compute nothing


PASSING: dict[str, Callable[[Tensor], Tensor]] = {
    "flattened": lambda x: x.flatten(1),
    "transposed": lambda x: x.transpose(1, 2),
    "sliced": lambda x: x[:, 1:],
}


class Passing(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return PASSING[self.name](x)


@pytest.mark.parametrize("name", PASSING)
def test_an_output_may_be_a_view_of_an_input(name: str) -> None:
    network = lower(Passing(name), torch.randn(2, 3, 4), "infer")
    assert_right(network, compute(network))


def test_a_model_that_computes_nothing_is_refused() -> None:
    network = lower(nn.Identity(), torch.randn(2, 3), "infer")
    with pytest.raises(Unsupported, match="computes nothing"):
        Running(network)


# ---------------------------------------------------------------- results that no input moves


class Constant(nn.Module):
    """A result of the input, and one of weights alone, which a step makes while loading."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.zeros(2, 3)
        y.view(-1)[2:][0] = 5.0
        return self.layer(x), y + self.layer.weight.sum()


@pytest.mark.slow
def test_a_result_that_no_input_moves_is_there() -> None:
    module = Constant()
    found = compute(lower(module, torch.randn(2, 4), "infer"))
    wanted = np.full((2, 3), float(module.layer.weight.sum()))
    wanted.flat[2] += 5
    np.testing.assert_allclose(found["0/output/1"], wanted, rtol=1e-5)
