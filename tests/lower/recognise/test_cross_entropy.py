"""Cross-entropy as one operator in each direction: where it is recognised and where not, its
kernels against float64, and whole plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn.operators import cross_entropy as kernels
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.lower.ir.graph import Graph
from golow.lower.ir.operator import Operator
from golow.lower.ir.verify import interpret, verify
from golow.lower.operators.cross_entropy import CrossEntropy, CrossEntropyBackward
from golow.lower.operators.nll_loss import NllLoss, NllLossBackward
from golow.lower.operators.softmax import Softmax, SoftmaxBackward
from golow.lower.recognise.cross_entropy import name_cross_entropy
from golow.workload.losses import token_cross_entropy
from support.direct.cuda_host import run
from support.direct.cudnn_plans import AskedEngines, assert_sound
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import ROUNDING, torch_type
from support.examples import examples
from support.graphs.lowering import Case, assert_close, count, record, records
from support.graphs.written_graphs import Written, add, numbers, one, ref
from support.models.tiny_models import built, inputs_of

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

Loss = Callable[[Tensor, Tensor], Tensor]
CLASSES = 5


def lowered(loss: Loss, targets: Tensor | None = None, module: nn.Module | None = None) -> Graph:
    """The training step of a linear layer, or of this module, with that loss. Every stage of the
    passes computes the same, as `Case` checks."""
    torch.manual_seed(0)
    case = Case(
        module or nn.Linear(4, CLASSES), torch.randn(6, 4), mode="train", loss=loss, targets=targets
    )
    return case.lowered("cudnn")


# ---------------------------------------------------------------- where it is recognised

ONE: dict[str, Loss] = {
    "mean": functional.cross_entropy,
    "sum": lambda x, t: functional.cross_entropy(x, t, reduction="sum"),
    "ignored": lambda x, t: functional.cross_entropy(x, t, ignore_index=1),
    "in two steps": lambda x, t: functional.nll_loss(x.log_softmax(-1), t),
    "in float32": lambda x, t: functional.cross_entropy(x.float(), t),
    "with a part": lambda x, t: functional.cross_entropy(x[1:], t[1:]),
    "scaled": lambda x, t: 3 * functional.cross_entropy(x, t),
    "with a penalty": lambda x, t: functional.cross_entropy(x, t) + x.square().mean(),
}


@pytest.mark.parametrize("name", ONE)
def test_it_is_one_operator_in_each_direction(name: str) -> None:
    graph = lowered(ONE[name])
    loss, backward = record(graph, CrossEntropy), record(graph, CrossEntropyBackward)
    assert loss.reduction == backward.reduction == ("sum" if name == "sum" else "mean")
    assert loss.ignored == backward.ignored == (1 if name == "ignored" else -100)
    assert loss.x == backward.x
    for kind in (Softmax, SoftmaxBackward, NllLoss, NllLossBackward):
        assert not count(graph, kind)


def of_two(x: Tensor, t: Tensor) -> Tensor:
    logs = x.log_softmax(-1)
    return functional.nll_loss(logs, t) + functional.nll_loss(logs, t, reduction="sum")


# What reads the logarithms elsewhere, or has weights or no sum.
LEFT: dict[str, Loss] = {
    "logarithms read elsewhere": lambda x, t: (
        functional.nll_loss(logs := x.log_softmax(1), t) + logs.mean()
    ),
    "two losses of the same": of_two,
    "class weights": lambda x, t: functional.cross_entropy(x, t, torch.arange(1.0, CLASSES + 1)),
    "label smoothing": lambda x, t: functional.cross_entropy(x, t, label_smoothing=0.1),
    "one loss for each row": lambda x, t: functional.cross_entropy(x, t, reduction="none").max(),
    "softmax over rows": lambda x, t: functional.nll_loss(x.log_softmax(0), t),
    "softmax": lambda x, t: functional.nll_loss(x.softmax(1), t),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_something_else_stays(name: str) -> None:
    graph = lowered(LEFT[name])
    assert not count(graph, CrossEntropy) and not count(graph, CrossEntropyBackward)


def test_logarithms_that_a_model_returns_stay() -> None:
    module = nn.Sequential(nn.Linear(4, CLASSES), nn.LogSoftmax(1))
    graph = lowered(functional.nll_loss, module=module)
    assert count(graph, NllLoss) == 1 and not count(graph, CrossEntropy)


def test_each_of_two_losses_is_one() -> None:
    graph = lowered(
        lambda x, t: functional.cross_entropy(x, t) + functional.cross_entropy(2 * x, t)
    )
    assert count(graph, CrossEntropy) == count(graph, CrossEntropyBackward) == 2


def test_onednn_keeps_what_it_has() -> None:
    case = Case(nn.Linear(4, CLASSES), torch.randn(6, 4), mode="train")
    graph = case.lowered("onednn")
    assert count(graph, NllLoss) == 1 and not count(graph, CrossEntropy)


LOSS = NllLoss(logs=ref("logs"), target=ref("target"), reduction="mean", ignored=-100)
OF_LOGS = NllLossBackward(
    gradient=ref("share"), logs=ref("logs"), target=ref("target"), reduction="mean",
    ignored=-100, total_weight=ref("loss_1"),
)  # fmt: skip
OF_SCORES = SoftmaxBackward(gradient=ref("of_logs"), result=ref("logs"), axis=1, log=True)
GIVEN = {
    "x": numbers(3, 4), "target": torch.tensor([0, 3, 1]), "other": torch.tensor([1, 1, 1]),
    "weight": torch.tensor(2.0, dtype=torch.float64), "share": torch.tensor(1.0).double(),
    "elsewhere": numbers(3, 4),
}  # fmt: skip


def named(
    *changes: tuple[str, Operator], returned: tuple[str, ...] = ("loss", "of_scores")
) -> Graph:
    """A loss written by hand, with some of its operators replaced, after the pass."""
    nodes: dict[str, Operator] = {
        "logs": Softmax(x=ref("x"), axis=1, log=True),
        "loss": LOSS, "of_logs": OF_LOGS, "of_scores": OF_SCORES,
    } | dict(changes)  # fmt: skip
    before = Written(GIVEN, list(nodes.items()), *returned)
    graph = verify(name_cross_entropy(before.graph))
    assert_close(interpret(graph, GIVEN), interpret(before.graph, GIVEN), "pass")
    return graph


def test_a_loss_written_by_hand() -> None:
    assert count(named(), CrossEntropyBackward) == 1


CHANGED: dict[str, tuple[str, Operator]] = {
    "another reduction": ("of_logs", msgspec.structs.replace(OF_LOGS, reduction="sum")),
    "another class ignored": ("of_logs", msgspec.structs.replace(OF_LOGS, ignored=1)),
    "other targets": ("of_logs", msgspec.structs.replace(OF_LOGS, target=ref("other"))),
    "another weight": ("of_logs", msgspec.structs.replace(OF_LOGS, total_weight=ref("weight"))),
    "another gradient": (
        "of_scores",
        msgspec.structs.replace(OF_SCORES, gradient=ref("elsewhere")),
    ),
    "no logarithm": ("of_scores", msgspec.structs.replace(OF_SCORES, log=False)),
    "another reader": ("sum", add("logs", "elsewhere")),
    "another reader of the gradient": ("sum", add("of_logs", "elsewhere")),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_gradient_of_something_else_stays(name: str) -> None:
    changed = CHANGED[name][0]
    returned = ("loss", "of_scores", *(("of_logs", "sum") if changed in ("sum",) else ()))
    graph = named(CHANGED[name], returned=returned)
    assert not count(graph, CrossEntropy) and count(graph, NllLoss) == 1


def test_a_loss_without_a_gradient_keeps_nothing_for_it() -> None:
    before = Written(
        GIVEN, [("logs", Softmax(x=ref("x"), axis=1, log=True)), one("loss", LOSS)], "loss"
    )
    graph = verify(name_cross_entropy(before.graph))
    (node,) = graph.nodes
    assert CrossEntropy.of(node) is not None and node.outputs[2:] == (None, None)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt2", "llama", "lstm", "gnmt"])
def test_the_text_models_of_the_zoo_have_it(family: str) -> None:
    inputs = inputs_of(family)
    targets = torch.randint(0, 50, inputs[-1].shape)
    case = Case(built(family), *inputs, mode="train", loss=token_cross_entropy, targets=targets)
    graph = case.after(*case.direct_passes()["cudnn"])
    assert count(graph, CrossEntropy) == count(graph, CrossEntropyBackward) == 1
    assert not [item for item in records(graph, Softmax) if item.log]


# ---------------------------------------------------------------- kernels


def launched(kernel: Kernel, *tensors: Tensor) -> None:
    run(kernel, [tensor.view(-1).view(torch.uint8).numpy() for tensor in tensors])


def empty(*shape: int, dtype: str = "float32") -> Tensor:
    return torch.full(shape, torch.nan).to(torch_type(dtype))


class Launched:
    """The kernels on rows with gaps, which hold NaN. in_place: the gradient over the scores."""

    def __init__(
        self, x: Tensor, target: Tensor, gap: int, mean: bool, ignored: int, share: float,
        result: str, in_place: bool = False,
    ) -> None:  # fmt: skip
        rows, columns = x.shape
        pitch, dtype = columns + gap, str(x.dtype).removeprefix("torch.")
        held = empty(rows, pitch, dtype=dtype)
        held[:, :columns] = x
        self.largest, self.logarithm = empty(rows), empty(rows)
        self.loss, self.total = empty(1), empty(1)
        launched(
            kernels.rows_kernel(dtype, rows, columns, pitch), held, self.largest, self.logarithm
        )
        launched(
            kernels.loss_kernel(dtype, rows, columns, pitch, mean, ignored),
            held, target, self.largest, self.logarithm, self.loss, self.total,
        )  # fmt: skip
        dx = held if in_place else empty(rows, pitch, dtype=result)
        launched(
            kernels.backward_kernel((dtype, result), rows, columns, (pitch, pitch), mean, ignored),
            torch.tensor([share]), held, target, self.largest, self.logarithm, self.total, dx,
        )  # fmt: skip
        assert dx[:, columns:].isnan().all()
        self.dx = dx[:, :columns]


def expected(
    x: Tensor, target: Tensor, mean: bool, ignored: int, share: float
) -> tuple[Tensor, Tensor]:
    exact = x.double().requires_grad_()
    reduction = "mean" if mean else "sum"
    loss = functional.cross_entropy(exact, target, ignore_index=ignored, reduction=reduction)
    (dx,) = torch.autograd.grad(loss * share, exact)
    return loss.detach(), dx


# Lengths of rows: one class, less than a vector, odd ones, of a warp, of 128 and of 512 threads.
COLUMNS = st.sampled_from([1, 5, 10, 96, 129, 1000, 2311, 4104])


@pytest.mark.slow
@examples(40)
@given(
    rows=st.integers(1, 6), columns=COLUMNS, gaps=st.booleans(), mean=st.booleans(),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]), offset=st.sampled_from([0, 500]),
    ignored=st.sampled_from([-100, 0]), in_place=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_kernels_against_float64(
    rows: int, columns: int, gaps: bool, mean: bool, dtype: str, offset: int, ignored: int,
    in_place: bool, seed: int,
) -> None:  # fmt: skip
    torch.manual_seed(seed)
    x = (offset + 4 * torch.randn(rows, columns)).to(torch_type(dtype))
    target = torch.randint(columns, (rows,))
    target[torch.rand(rows) < 0.3] = ignored
    counted = int((target != ignored).sum())
    result = dtype if in_place else "bfloat16"
    found = Launched(x, target, -columns % 8 if gaps else 0, mean, ignored, 3.0, result, in_place)
    loss, dx = expected(x, target, mean, ignored, 3.0)
    assert found.total.item() == counted
    torch.testing.assert_close(
        found.loss.double(), loss.reshape(1), rtol=2.0**-20, atol=1e-6, equal_nan=True
    )
    if counted:
        limit = 4 * max(ROUNDING[result], 2.0**-19)
        scale = 3.0 / (counted if mean else 1)
        smallest = 2.0**-24 if result == "float16" else 1e-9  # of a half's numbers
        torch.testing.assert_close(
            found.dx.double(), dx, rtol=limit, atol=scale * 2.0**-21 + smallest
        )
    assert not found.dx[target == ignored].any()


def test_targets_that_are_no_class() -> None:
    """The loss is NaN, nothing is read or written elsewhere, and the row has no gradient."""
    x = torch.randn(3, 10)
    for wrong in (-1, 10, 2**40):
        found = Launched(x, torch.tensor([1, wrong, 2]), 2, True, -100, 1.0, "float32")
        assert found.loss.isnan() and found.total.item() == 3
        assert not found.dx[1].any() and found.dx[[0, 2]].isfinite().all()


def test_a_mean_of_nothing_is_nan() -> None:
    found = Launched(torch.randn(3, 10), torch.full((3,), -100), 0, True, -100, 1.0, "float32")
    assert found.loss.isnan() and found.total.item() == 0 and not found.dx.any()
    found = Launched(torch.randn(3, 10), torch.full((3,), -100), 0, False, -100, 1.0, "float32")
    assert found.loss.item() == 0


def test_infinities_and_nan() -> None:
    """As in PyTorch; classes that are masked out have no share, also where a thread has no
    other."""
    x = torch.randn(5, 300)
    x[0, :290], x[1, 3], x[2, 7], x[3] = -torch.inf, torch.nan, torch.inf, -torch.inf
    target = torch.tensor([295, 0, 7, 0, 4])
    for row in range(5):
        one, chosen = x[row : row + 1], target[row : row + 1]
        found = Launched(one, chosen, 4, True, -100, 1.0, "float32")
        loss, dx = expected(one, chosen, True, -100, 1.0)
        torch.testing.assert_close(found.loss.double(), loss.reshape(1), equal_nan=True)
        torch.testing.assert_close(found.dx.double(), dx, equal_nan=True)


@pytest.mark.slow
def test_losses_are_added_in_float64() -> None:
    """Of 3,000 rows, a large one among them."""
    x = torch.randn(3000, 4)
    x[17, 0] = 3e7
    target = torch.full((3000,), 1)
    found = Launched(x, target, 0, False, -100, 1.0, "float32")
    loss, _ = expected(x, target, False, -100, 1.0)
    torch.testing.assert_close(found.loss.double(), loss.reshape(1), rtol=2.0**-23, atol=0)


def test_rows_that_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 10 elements every 8"):
        kernels.rows_kernel("float32", 2, 10, 8)


def test_they_compile() -> None:
    for dtype, pitch in (("bfloat16", 50264), ("float16", 50257), ("float32", 50260)):
        assert_compile(
            [
                kernels.rows_kernel(dtype, 5, 50257, pitch),
                kernels.loss_kernel(dtype, 5, 50257, pitch, True),
                kernels.backward_kernel((dtype, "bfloat16"), 5, 50257, (pitch, 50264), True),
            ]
        )


# ---------------------------------------------------------------- plans


@pytest.mark.parametrize("precision", ["default", "bf16", "fp16"])
def test_nothing_of_the_scores_size_is_float32(precision: str) -> None:
    """Of a classifier: two kernels forward, one backward. In half precision neither scores nor
    gradient are converted."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1000))
    graph = Case(module, torch.randn(4, 6), mode="train").lowered("cudnn")
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES[precision], 1)  # type: ignore[index]
    assert_sound(made)
    operations = [step.operation for step in made.plan.steps]
    assert operations.count("cross_entropy") == 2
    assert operations.count("cross_entropy_backward") == 1
    wide = [o for step in made.plan.steps for o in step.writes if o.shape == (4, 1000)]
    dtype = {"default": "float32", "bf16": "bfloat16", "fp16": "float16"}[precision]
    assert {operand.layout for operand in wide} == {dtype} and len(wide) == 2


class OwnLoss(nn.Module):
    """Returns its loss alone, so that nothing reads the scores in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 40)

    def forward(self, x: Tensor) -> Tensor:
        return functional.cross_entropy(self.layer(x), torch.arange(len(x)))


@pytest.mark.parametrize("kept", [False, True])
def test_the_gradient_lies_over_scores_that_nobody_reads_again(kept: bool) -> None:
    module = nn.Linear(8, 40) if kept else OwnLoss()
    loss = functional.cross_entropy if kept else lambda output, target: output
    graph = Case(module, torch.randn(4, 8), mode="train", loss=loss).lowered("cudnn")
    made = build_plan(graph, cast("Engines", AskedEngines()), TYPES["bf16"], 1)
    assert_sound(made)
    (step,) = (s for s in made.plan.steps if s.operation == "cross_entropy_backward")
    scores = next(o.buffer for o in step.reads if o.shape == (4, 40))
    assert (step.writes[0].buffer == scores) == (not kept)
