"""What a forward pass changes beside its result: state that no level carries is refused by its
name, inputs and buffers are copied, and the rest is none of golow's business."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from golow.records.errors import GolowError
from golow.records.workload import Mode
from golow.workload.attributes import attributes_of, changed
from golow.workload.forward_changes import watched
from golow.workload.own_copies import work_on_copies
from golow.workload.prepare import Prepared, prepare
from golow.workload.request import Request
from support.models import stateful

both_modes = pytest.mark.parametrize("mode", ["infer", "train"])


def prepared(module: nn.Module, mode: Mode, *inputs: Tensor, loss: object = None) -> Prepared:
    torch.manual_seed(0)
    given = inputs or (torch.randn(8, 5),)
    wanted = loss or "mse_of_outputs"
    request = Request(module, given, mode=mode, loss=wanted if mode == "train" else None)  # type: ignore[arg-type]
    return prepare(request)


# ---------------------------------------------------------------- Python attributes


@both_modes
@pytest.mark.parametrize("kind", stateful.STATEFUL)
def test_state_in_an_attribute_is_refused_by_its_name(kind: type[nn.Module], mode: Mode) -> None:
    with pytest.raises(GolowError, match=r"Python attributes: kept\b") as caught:
        prepared(kind(), mode)
    assert f"a forward pass of {kind.__name__} leaves something for the next one" in str(caught)
    assert "random" not in str(caught.value)


def test_it_is_named_where_it_is_and_with_its_values() -> None:
    with pytest.raises(GolowError, match=r"attributes: 1\.kept \(1, then 2\)"):
        prepared(nn.Sequential(nn.Linear(5, 5), stateful.Counter()), "infer")


@both_modes
@pytest.mark.parametrize("kind", stateful.HARMLESS)
def test_what_depends_on_the_batch_alone_is_accepted(kind: type[nn.Module], mode: Mode) -> None:
    assert prepared(kind(), mode).workload.changed_inputs == ()


def test_a_module_that_cannot_be_copied_is_still_found_out() -> None:
    class Locked(stateful.Counter):
        def __deepcopy__(self, memo: object) -> nn.Module:
            if self.kept:
                raise TypeError("no copies")
            fresh = type(self)()
            fresh.load_state_dict(self.state_dict())
            fresh.__class__ = _Uncopied
            return fresh

    class _Uncopied(stateful.Counter):
        def __deepcopy__(self, memo: object) -> nn.Module:
            raise TypeError("no copies")

    with pytest.raises(GolowError, match="kept"):
        prepared(Locked(), "infer")


def test_attributes_that_hold_no_plain_data_count_as_unchanged() -> None:
    module = stateful.Base(kept=lambda: 1)
    before = attributes_of(module)
    module.kept = open  # another function
    assert changed(before, attributes_of(module)) == ()
    module.kept = torch.zeros(2)
    between = attributes_of(module)
    module.kept[0] = float("nan")
    assert changed(before, between) == changed(between, attributes_of(module)) == ("kept",)
    assert changed(attributes_of(module), attributes_of(module)) == ()
    module.another = 3  # type: ignore[assignment]
    assert "another" in changed(between, attributes_of(module))


def test_a_little_is_allowed_where_sums_come_in_any_order() -> None:
    one, other = ({"kept": torch.tensor([1.0, value])} for value in (3.0, 3.001))
    assert changed(one, other) == ("kept",)
    assert changed(one, other, 1e-3) == ()


# ---------------------------------------------------------------- inputs


@both_modes
@pytest.mark.parametrize(
    ("kind", "count", "places"),
    [(stateful.ReluFirst, 1, (0,)), (stateful.Doubles, 1, (0,)), (stateful.DoublesSecond, 2, (1,))],
)
def test_inputs_changed_in_place_are_known_and_left_as_they_are(
    kind: type[nn.Module], count: int, places: tuple[int, ...], mode: Mode
) -> None:
    given = tuple(torch.randn(8, 5) for _ in range(count))
    before = [tensor.clone() for tensor in given]
    found = prepared(kind(), mode, *given)
    assert found.workload.changed_inputs == places
    assert any("in place: at every level each pass gets a copy" in note for note in found.notes)
    for tensor, batch, was in zip(given, found.batches[0].inputs, before, strict=True):
        assert torch.equal(tensor, was)
        assert torch.equal(batch, was)


def test_a_change_that_changes_nothing_of_this_batch_is_seen() -> None:
    """``ReLU(inplace=True)`` on positive numbers; the next batch may have others."""
    assert prepared(stateful.ReluFirst(), "infer", torch.rand(8, 5)).workload.changed_inputs == (0,)


# ---------------------------------------------------------------- buffers and parameters


@pytest.mark.parametrize(
    ("kind", "name"),
    [(stateful.AssignsBuffer, "average"), (stateful.AssignsInside, "inner.average")],
)
def test_buffers_assigned_anew_are_known(kind: type[nn.Module], name: str) -> None:
    assert prepared(kind(), "train").workload.assigned_buffers == (name,)
    with pytest.raises(GolowError, match=rf"changes its buffers \({name}\)"):
        prepared(kind(), "infer")


def test_a_step_on_copies_is_the_modules_own() -> None:
    """Results, gradients and the buffer, over two steps; and the buffer stays where it is."""
    torch.manual_seed(0)
    own, copied = stateful.AssignsBuffer(), stateful.AssignsBuffer()
    copied.load_state_dict(own.state_dict())
    work_on_copies(copied, (), ("average",))
    memory = copied.average.data_ptr()
    for _ in range(2):
        x = torch.randn(8, 5)
        for module in (own, copied):
            module.zero_grad()
            module(x).square().sum().backward()
        assert torch.equal(own.average, copied.average)
        assert torch.equal(own.layer.weight.grad, copied.layer.weight.grad)
    assert copied.average.data_ptr() == memory
    assert copied.average.abs().sum() > 0


def test_a_pass_that_fails_leaves_the_buffer() -> None:
    module = stateful.AssignsBuffer()
    work_on_copies(module, (), ("average",))
    buffer = module.average
    with pytest.raises(RuntimeError):
        module(torch.randn(2, 3))
    assert module.average is buffer


@both_modes
def test_a_parameter_that_moves_in_the_forward_pass_is_named(mode: Mode) -> None:
    with pytest.raises(GolowError, match=r"changes its parameters \(teacher\.weight, teacher\."):
        prepared(stateful.Teacher(), mode)


# ---------------------------------------------------------------- what is not repeatable otherwise


def test_what_a_module_reads_from_outside_is_no_randomness() -> None:
    with pytest.raises(GolowError, match="look for a global variable") as caught:
        prepared(stateful.ReadsGlobal(), "infer")
    assert "is random" not in str(caught.value)


def noisy(output: Tensor, *targets: Tensor) -> Tensor:
    return (output + torch.normal(0.0, 1.0, output.shape)).square().mean()


def test_a_loss_that_draws_is_named() -> None:
    with pytest.raises(GolowError, match="the loss of LastResult differs from call to call"):
        prepared(stateful.LastResult(), "train", loss=noisy)


def test_draws_are_told_from_what_does_not_draw() -> None:
    class Draws(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.rrelu(x, training=True)

    for module, draws in ((Draws(), True), (nn.ReLU(), False)):
        with watched(module) as found:
            module(torch.randn(3, 5))
        assert found.draws is draws
