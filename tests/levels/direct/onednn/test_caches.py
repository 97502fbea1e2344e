"""Steps with a cache at `onednn`: the generated kernels on every arrangement against float64, whole
plans operation by operation, and where a cache is written."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.bindings.constants import ANY
from golow.levels.direct.onednn.kernels import cached_attention as kernels
from golow.levels.direct.onednn.kernels import flash_attention
from golow.levels.direct.onednn.kernels.cache_rows import cache_rows
from golow.levels.direct.onednn.kernels.flash_attention import Placed, Scores
from golow.levels.direct.onednn.level import probe
from golow.levels.direct.onednn.passes import INFERENCE
from golow.lower.capture.capture import capture_step
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.operators.cache_update import CacheUpdate
from golow.lower.operators.cached_attention import CachedAttention
from support.examples import examples
from support.models.cached_steps import CachedStep, Sizes

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)
if find_compiler() is None:
    pytest.skip("there is no C++ compiler", allow_module_level=True)

from golow.levels.direct.onednn.planning import build_plan
from golow.levels.direct.onednn.run.execution import Execution
from golow.levels.direct.onednn.steps.built_plan import Built, Switches
from support.direct.onednn_in_process import ENGINE, workshop
from support.direct.onednn_kernels import run
from support.direct.step_checks import steps_check

STALE = float(np.float32(7e30))  # of a row that was not written: any weight of it shows


def placed(array: np.ndarray) -> Placed:
    return Placed(array.shape, [step // 4 for step in array.strides])


# ---------------------------------------------------------------- kernels


@examples(80)
@given(
    shape=st.tuples(*(st.integers(1, 3) for _ in range(2)), st.integers(1, 9), st.integers(1, 40)),
    axis=st.integers(0, 3),
    more=st.integers(0, 5),
    own=st.booleans(),
    data=st.data(),
)
def test_rows_are_written_where_they_belong_and_nothing_else(
    shape: tuple[int, ...], axis: int, more: int, own: bool, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(4)))
    several = shape[0] if own and axis else 1
    position = data.draw(st.lists(st.integers(0, more), min_size=several, max_size=several))
    random = np.random.default_rng(0)
    stored = random.standard_normal([shape[k] for k in order]).astype(np.float32)
    rows = stored.transpose(np.argsort(order))
    whole = tuple(n + more * (k == axis) for k, n in enumerate(shape))
    cache = random.standard_normal(whole).astype(np.float32)
    place, x = torch.tensor(position), torch.from_numpy(cache.copy())
    expected = CacheUpdate.meaning(x, torch.from_numpy(rows.copy()), place, axis)
    kernel = cache_rows("float32", shape, placed(rows).steps, whole, axis, several)
    run(kernel, rows, np.array(position), cache)
    np.testing.assert_array_equal(cache, expected)


@pytest.mark.parametrize("position", [-5, 40])
def test_a_position_outside_of_the_cache_writes_no_other_memory(position: int) -> None:
    memory = np.zeros((3, 4, 8), np.float32)
    rows = np.ones((1, 2, 8), np.float32)
    kernel = cache_rows("float32", (1, 2, 8), (16, 8, 1), (1, 4, 8), 1)
    run(kernel, rows, np.array(position), memory[1:2])
    assert not memory[0].any()
    assert not memory[2].any()


@st.composite
def cached(draw: st.DrawFn) -> tuple[list[np.ndarray], list[int], int]:
    """Query, key and value caches, a position or one for each text, and a window; rows that do not
    exist, or are behind the window of all rows, are stale."""
    images, groups, sharing = (draw(st.integers(1, 3)) for _ in range(3))
    rows = draw(st.sampled_from([1, 1, 2, 5, 7, 8, 17, 70]))
    longest = rows + draw(st.sampled_from([0, 3, 60, 64, 300, 700]))
    inner, width = draw(st.integers(1, 70)), draw(st.integers(1, 140))
    several = images if draw(st.booleans()) else 1
    drawn = st.lists(st.integers(0, longest - rows), min_size=several, max_size=several)
    positions = draw(drawn)
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    shapes = (
        (images, groups * sharing, rows, inner),
        (images, groups, longest, inner),
        (images, groups, longest, width),
    )
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    window = draw(st.sampled_from([0, 0, 1, 5, 64, 100]))
    for cache in arrays[1:]:
        for text in range(images):
            position = positions[text % several]
            cache[text, :, position + rows :] = STALE
            cache[text, :, : max(position + 1 - window, 0) if window else 0] = STALE
    return arrays, positions, window


def attend(
    arrays: list[np.ndarray], position: int | list[int], window: int = 0, narrow: bool = False
) -> np.ndarray:
    """Run the kernels as the level chooses them."""
    query, _, value = arrays
    output = np.full((*query.shape[:3], value.shape[3]), np.nan, np.float32)
    places = [placed(array) for array in (*arrays, output)]
    at = np.array(position)
    own = at.size > 1
    if query.shape[2] >= 8 and not window:
        scores = Scores(None, causal=True, scale=0.3)
        kernel = flash_attention.attention(places, scores, False, cached=True, own_positions=own)
        run(of_width(kernel, narrow), *arrays, at, output)
        return output
    kernel = of_width(kernels.few_rows(places, 0.3, window, own), narrow)
    if kernels.splits_of(places[1]) == 1:
        run(kernel, *arrays, at, output)
        return output
    found = np.full(kernels.parts_shape(places[0], places[1], value.shape[3]), np.nan, np.float32)
    run(kernel, *arrays, at, found)
    run(kernels.joined(places[0], places[1], places[3]), found, output)
    return output


def of_width(kernel: Any, narrow: bool) -> Any:
    """The kernel with this machine's vectors, or with those of a machine without AVX-512."""
    return kernel._replace(code=f"#undef __AVX512F__\n{kernel.code}") if narrow else kernel


@examples(120)
@given(drawn=cached(), narrow=st.booleans())
def test_attention_over_what_exists_is_right(
    drawn: tuple[list[np.ndarray], list[int], int], narrow: bool
) -> None:
    arrays, position, window = drawn
    double = [torch.from_numpy(array).double() for array in arrays]
    for cache in double[1:]:
        cache[cache == STALE] = 0
    expected = CachedAttention.meaning(*double, torch.tensor(position), 0.3, window)
    found = attend(arrays, position, window, narrow)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("off", [-1, 1])
def test_a_position_off_by_one_shows(rows: int, off: int) -> None:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((1, 2, n, 16)).astype(np.float32) for n in (rows, 40, 40)]
    double = [torch.from_numpy(array).double() for array in arrays]
    expected = CachedAttention.meaning(*double, torch.tensor(20), 0.3)
    assert np.abs(attend(arrays, 20) - expected.numpy()).max() < 1e-5
    assert np.abs(attend(arrays, 20 + off) - expected.numpy()).max() > 1e-2


# ---------------------------------------------------------------- plans


class Planned:
    """The plan of a step for some new tokens, with the module's weights and caches."""

    def __init__(
        self, step: nn.Module, tokens: Tensor, position: int | list[list[int]], generates: bool
    ) -> None:
        sample = tokens, torch.tensor(position)
        captured = capture_step("step", step, sample)
        graph = captured.graph
        for change in (*CLEAN_UP, *INFERENCE):
            graph = change(graph)
        self.step, self.constants = step, captured.constants
        self.built: Built = build_plan(graph, ENGINE, lambda _: ANY, Switches(0), generates)
        self.execution = Execution(self.built, ENGINE, self._read, workshop())
        self.given = tokens.numpy().copy(), np.array(position)
        self.execution.pointing({("input", str(k)): a for k, a in enumerate(self.given)})()
        self.fill()
        batch = SimpleNamespace(inputs=sample, targets=())
        optimizer = SimpleNamespace(learning_rate=0.0)
        self.prepared = SimpleNamespace(
            batches=[batch], module=step, workload=SimpleNamespace(optimizer=optimizer)
        )

    def _read(self, kind: str, target: str) -> np.ndarray:
        found = self.constants[target] if kind == "constant" else self.step.state_dict()[target]
        return found.detach().numpy()

    def fill(self) -> None:
        """Give the caches the module's content."""
        for (kind, target), tensor in self.built.inputs.items():
            if kind == "buffer":
                self.execution.write(tensor, self._read(kind, target))

    def run(self) -> np.ndarray:
        """The logits."""
        self.execution.run()
        return self.execution.read(self.built.outputs["output", "0"][0])

    def cache(self, name: str) -> np.ndarray:
        return self.execution.read(self.built.inputs["buffer", name])

    @property
    def operations(self) -> list[str]:
        return [step.operation for step in self.built.plan.steps if not step.once]


def filled(step: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    for buffer in step.buffers():
        buffer.normal_()
    return step.eval()


@examples(24, same=True, phases=[Phase.generate])
@given(
    batch=st.integers(1, 2),
    groups=st.integers(1, 3),
    sharing=st.integers(1, 2),
    width=st.sampled_from([4, 16, 20]),
    count=st.sampled_from([1, 2, 9]),
    places=st.lists(st.integers(0, 11), min_size=2, max_size=2),
    own=st.booleans(),
    generates=st.booleans(),
    write=st.sampled_from(["copy", "put"]),
    mask=st.sampled_from(["plain", "window"]),
)
def test_every_operation_of_a_step_is_right(
    batch: int, groups: int, sharing: int, width: int, count: int, places: list[int], own: bool,
    generates: bool, write: Any, mask: Any,
) -> None:  # fmt: skip
    torch.manual_seed(0)
    sizes = Sizes(batch, groups, sharing, width, longest=20)
    step = filled(CachedStep(sizes, write, mask))
    tokens = torch.randint(31, (batch, count))
    own = own and batch > 1 and write == "copy"
    position: Any = [[place] for place in places] if own else places[0]
    planned = Planned(step, tokens, position, generates)
    network: Any = planned
    found = steps_check(network, planned.execution, planned.execution.run_watched)
    assert not found.failed, "; ".join(item.words for item in found.wrong)
    planned.fill()
    double = copy.deepcopy(step).double()
    with torch.no_grad():
        expected = double(tokens, torch.tensor(position))
    np.testing.assert_allclose(planned.run(), expected, rtol=1e-4, atol=1e-4)
    for name, buffer in double.named_buffers():
        np.testing.assert_allclose(planned.cache(name), buffer, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("generates", [True, False])
@pytest.mark.parametrize("count", [1, 9])
def test_nothing_but_the_new_rows_is_written_or_copied(count: int, generates: bool) -> None:
    step = filled(CachedStep(Sizes(longest=300)))
    planned = Planned(step, torch.zeros(2, count, dtype=torch.int64), 5, generates)
    plan, cache = planned.built.plan, step.get_buffer("layers.0.keys").nbytes
    assert plan.sizes["state"] == 4 * cache
    touching = [
        step
        for step in plan.steps
        if any(plan.buffers[o.buffer].place == "state" for o in (*step.reads, *step.writes))
    ]
    assert [s.operation for s in touching] == 2 * [
        "cache_update", "cache_update", "cached_attention"
    ]  # fmt: skip
    if generates:
        rows = cache // 300 * count
        assert [o.bytes for s in touching for o in s.writes if s.operation == "cache_update"] == (
            4 * [rows]
        )
        assert plan.sizes["arena"] < cache


class Compared(nn.Module):
    """Returns what a cache held before, beside what it holds now, after two updates."""

    kept: Tensor

    def __init__(self, late: bool) -> None:
        super().__init__()
        self.late = late
        self.register_buffer("kept", torch.zeros(2, 6, 4))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        before = self.kept.clone()
        first = before.sum(2) * 2
        self.kept.index_copy_(1, position + torch.arange(2), x)
        self.kept.index_copy_(1, position + torch.arange(1), x[:, 1:] * 3)
        return self.kept.sum(2) + (before.sum(2) * 2 if self.late else first)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("generates", [True, False])
def test_old_content_that_is_read_later_is_kept(late: bool, generates: bool) -> None:
    step, x = filled(Compared(late)), torch.randn(2, 2, 4)
    planned = Planned(step, x, 3, generates)
    kept = step.get_buffer("kept").clone()
    expected = step(x, torch.tensor(3))
    now = step.get_buffer("kept").clone()
    step.get_buffer("kept").copy_(kept)
    planned.fill()
    np.testing.assert_allclose(planned.run(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(planned.cache("kept"), now)
