"""The weights of a compiled module: its own, exchanged, shared by its sizes, and checked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.compiled.compiled_module import CompiledModule
from golow.levels.direct.onednn.level import probe
from golow.records.errors import GolowError
from support.direct.compiled_modules import X, close, compiled, network

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)


def test_weights_are_its_own_until_others_are_loaded() -> None:
    module = network()
    f = compiled(module, X, batch=[2, 4])
    other = f.context()
    before = f(X)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1.5)
    assert torch.equal(f(X), before)
    f.load_state_dict(module.state_dict())
    for call in (f, other):
        assert close(call(X), module(X))
        assert close(call(X[:2]), module(X[:2]))
    assert f.check(X).matches


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(functional.gelu(self.table(tokens)))


def test_a_tied_weight_is_loaded_for_both() -> None:
    module = Tied().eval()
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    f = compiled(module, tokens, batch=[1, 2])
    assert close(f(tokens), module(tokens))
    changed = Tied().eval()
    f.load_state_dict(changed.state_dict())
    assert close(f(tokens), changed(tokens))


def wide(bias: float | None = None) -> nn.Module:
    """A network most of whose memory are weights; its biases may all be equal."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.ReLU(), *(nn.Conv2d(64, 64, 3, padding=1) for _ in range(4)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64),
    )  # fmt: skip
    for layer in module:
        if bias is not None and hasattr(layer, "bias"):
            nn.init.constant_(layer.bias, bias)
    return module.eval()


def test_sizes_share_their_weights() -> None:
    """But for products, whose weights are stored otherwise for one row than for several."""
    alone = compiled(wide(), X, batch=[4]).memory()["weights"]
    assert alone >= 4 * sum(p.numel() for p in wide().parameters())
    assert compiled(wide(), X, batch=[1, 2, 3, 4]).memory()["weights"] <= 1.1 * alone


def test_weights_that_were_equal_are_not_the_same() -> None:
    """Biases of one size and one value, in several layers and plans; then they differ."""
    f = compiled(wide(bias=0.0), X, batch=[1, 2, 4])
    other = wide()
    f.load_state_dict(other.state_dict())
    for rows in (1, 2, 4):
        assert close(f(X[:rows]), other(X[:rows]))


def test_the_weights_of_another_module_are_refused_and_nothing_changes(f: CompiledModule) -> None:
    before = f(X)
    state = network(1).state_dict()
    with pytest.raises(GolowError, match=r"8.weight is \[3, 64\] .* the module's is \[5, 64\]"):
        f.load_state_dict({**state, "8.weight": torch.randn(3, 64)})
    with pytest.raises(GolowError, match=r"8.bias is missing"):
        f.load_state_dict({k: v for k, v in state.items() if k != "8.bias"})
    with pytest.raises(GolowError, match=r"head.weight is not the module's"):
        f.load_state_dict({**state, "head.weight": torch.randn(1)})
    assert torch.equal(f(X), before)


def test_a_wrong_weight_is_found_by_the_check() -> None:
    """The plan has other weights than the module: one element of one."""
    module = network()
    f = compiled(module, X)
    state = {name: item.clone() for name, item in module.state_dict().items()}
    state["0.weight"][0, 0, 0, 0] += 0.1
    f.load_state_dict(state)
    f.state = module.state_dict()  # what the plan should have
    found = f.check(X)
    assert not found.matches
    assert "too far" in str(found)


def test_plan_and_memory_are_told(f: CompiledModule) -> None:
    assert "convolution" in f.plan()
    assert f.plan(1) != f.plan(4)
    memory = f.memory()
    weights = sum(p.numel() for p in network().parameters()) * 4
    assert memory["weights"] >= weights
    assert memory["iteration"] > X.numel()


def test_states_in_other_types_are_taken_as_pytorch_takes_them() -> None:
    module, other = network(), network(seed=1)
    f = compiled(module, X)
    state = {
        name: item.bfloat16() if item.is_floating_point() else item
        for name, item in other.state_dict().items()
    }
    f.load_state_dict(state)
    module.load_state_dict(state)
    assert close(f(X), module(X))


def test_of_tied_weights_the_last_name_counts() -> None:
    torch.manual_seed(0)
    module, ids = Tied().eval(), torch.arange(6).view(2, 3)
    f = compiled(module, ids)
    state = {name: torch.randn(item.shape) for name, item in module.state_dict().items()}
    f.load_state_dict(state)
    module.load_state_dict(state)
    assert close(f(ids), module(ids))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (torch.empty(5, 64, device="meta"), "on the meta device"),
        (torch.zeros(5, 64).numpy(), "ndarray"),
        (None, "NoneType"),
        (torch.zeros(5, 64, dtype=torch.int64), "is int64"),
    ],
)
def test_what_holds_no_weights_is_named(f: CompiledModule, given: object, words: str) -> None:
    state = network().state_dict() | {"8.weight": given}
    with pytest.raises(GolowError, match=f"8.weight .*{words}"):
        f.load_state_dict(state)


def test_the_check_is_of_the_weights_that_the_plan_has() -> None:
    """What the caller does with the module meanwhile does not change it, or is named."""
    module = network()
    f = compiled(module, X)
    module.train().half()
    assert f.check(X).matches
    module = network()
    f = compiled(module, X)
    with torch.no_grad():
        module[0].weight.mul_(1.5)
    with pytest.raises(GolowError, match=r"0\.weight was written since the plan took it"):
        f.check(X)
    f.load_state_dict(module.state_dict())
    assert f.check(X).matches


class Versioned(nn.Linear):
    """A layer whose state dict has something besides tensors."""

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 2}

    def set_extra_state(self, state: dict[str, int]) -> None:
        assert state == {"version": 2}


def test_the_check_needs_only_the_tensors_of_a_state_dict() -> None:
    module, x = Versioned(4, 4).eval(), torch.randn(2, 4)
    f = compiled(module, x)
    f.load_state_dict(module.state_dict())
    assert f.check(x).matches
