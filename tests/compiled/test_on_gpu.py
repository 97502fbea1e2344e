"""`golow.compile` on a GPU: results, streams, graphs of the caller, memory."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import golow
from golow.compiled.compiled_module import CompiledModule
from golow.levels.direct.cudnn.level import probe
from golow.records.errors import GolowError
from support.direct.compiled_modules import X, network

if not torch.cuda.is_available() or not probe().available:
    pytest.skip(probe().missing or "torch sees no GPU", allow_module_level=True)

from cuda.bindings import driver

from golow.levels.nvidia.memory import Region, checked

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def compiled(module: nn.Module, inputs: Any, **options: Any) -> CompiledModule:
    return golow.compile(module, inputs, quiet=True, **options)


def close(found: Tensor, wanted: Tensor, limit: float = 5e-3) -> bool:
    same = found.shape == wanted.shape and found.dtype == wanted.dtype
    return same and torch.allclose(found, wanted.detach(), rtol=limit, atol=limit)


@pytest.fixture(scope="module")
def module() -> nn.Module:
    return network().cuda()


@pytest.fixture(scope="module")
def x() -> Tensor:
    return X.cuda()


@pytest.fixture(scope="module")
def f(module: nn.Module, x: Tensor) -> CompiledModule:
    return compiled(module, x, batch=[1, 2, 4])


class Words(nn.Module):
    """Keyword inputs, nested outputs, integers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = nn.Linear(32, 7)

    def forward(self, ids: Tensor, weights: Tensor) -> dict[str, Any]:
        hidden = self.layer(self.embedding(ids)) * weights[..., None]
        scores = self.head(hidden)
        return {"scores": scores, "best": (scores.argmax(-1), hidden.mean(1))}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(20, 24, num_layers=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0][:, -1]


def test_every_batch_gives_what_the_module_gives(
    f: CompiledModule, module: nn.Module, x: Tensor
) -> None:
    for rows in (1, 2, 3, 4):
        assert close(f(x[:rows] * rows), module(x[:rows] * rows)), rows
    assert f.check(x).matches


def test_keywords_and_nested_outputs() -> None:
    torch.manual_seed(0)
    module = Words().eval().cuda()
    given = {"ids": torch.randint(50, (3, 9)).cuda(), "weights": torch.rand(3, 9).cuda()}
    f = compiled(module, given)
    found, wanted = f(**given), module(**given)
    assert close(found["scores"], wanted["scores"])
    assert torch.equal(found["best"][0], wanted["best"][0])
    assert close(found["best"][1], wanted["best"][1])
    assert f.check(given).matches


def test_a_recurrent_network() -> None:
    torch.manual_seed(0)
    module = Recurrent().eval().cuda()
    x = torch.randn(4, 11, 20).cuda()
    f = compiled(module, x)
    assert close(f(x), module(x))


@pytest.mark.parametrize("precision", ["ieee", "tf32", "bf16", "fp16"])
def test_precisions_return_the_modules_type_and_match(
    module: nn.Module, x: Tensor, precision: str
) -> None:
    f = compiled(module, x, precision=precision)
    assert f(x).dtype == torch.float32
    assert close(f(x), module(x), 5e-2)
    found = f.check(x)
    assert found.matches, str(found)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_a_module_in_half_precision_takes_and_gives_it(half: torch.dtype) -> None:
    module = network().to("cuda", half)
    x = X.to("cuda", half)
    f = compiled(module, x)
    assert f(x).dtype == half
    assert close(f(x), module(x), 5e-2)
    found = f.check(x)
    assert found.matches, str(found)


def test_the_check_sees_wrong_weights(module: nn.Module, x: Tensor) -> None:
    """It compares with the weights that were loaded last."""
    f = compiled(module, x)
    f.state = {name: item * 1.05 for name, item in f.state.items()}
    assert not f.check(x).matches


def test_an_output_is_the_callers(f: CompiledModule, module: nn.Module, x: Tensor) -> None:
    """New inputs each time, freed at once; outputs that are kept."""
    kept = [f(x * k + 1) for k in range(20)]
    for k, found in enumerate(kept):
        assert close(found, module(x * k + 1)), k


def test_out_is_written_in_place_and_allocates_nothing(
    f: CompiledModule, module: nn.Module, x: Tensor
) -> None:
    y = torch.full((4, 5), 7.0, device="cuda")
    f(x, out=y)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    assert f(x, out=y) is y
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    assert close(y, module(x))
    with pytest.raises(GolowError, match="output 0 of out must be a row-major tensor on cuda:0"):
        f(x, out=y.cpu())


def test_inputs_of_any_layout_are_read(f: CompiledModule, module: nn.Module, x: Tensor) -> None:
    turned = x.to(memory_format=torch.channels_last)
    assert close(f(turned), module(turned))
    wide = torch.cat([x, x], dim=3)[..., 3:15]
    assert close(f(wide), module(wide))


def test_texts_of_any_length_run_padded() -> None:
    torch.manual_seed(0)
    module = Words().eval().cuda()
    ids, weights = torch.randint(50, (4, 12)).cuda(), torch.rand(4, 12).cuda() + 0.5

    class Causal(nn.Module):
        """Its attention reads no later token, so that padding changes nothing."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, ids: Tensor, weights: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
            hidden = self.inner.layer(self.inner.embedding(ids), src_mask=mask, is_causal=True)
            return self.inner.head(hidden * weights[..., None])

    causal = Causal().eval()
    f = compiled(causal, {"ids": ids, "weights": weights}, batch=[1, 4], sequence=[6, 12])
    for rows, length in ((1, 6), (3, 5), (4, 12), (2, 9)):
        given = {"ids": ids[:rows, :length], "weights": weights[:rows, :length]}
        assert close(f(**given), causal(**given)), (rows, length)


def test_an_input_that_the_module_changes_is_changed() -> None:
    module = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3)).eval().cuda()
    x = torch.randn(4, 6, device="cuda")
    f = compiled(module, x.clone())
    ours, eagers = x.clone(), x.clone()
    assert close(f(ours), module(eagers))
    assert torch.equal(ours, eagers)


def test_what_is_borrowed_is_written_again(f: CompiledModule, module: nn.Module, x: Tensor) -> None:
    first = f(x, borrow=True)
    second = f(x * 2, borrow=True)
    assert second.data_ptr() == first.data_ptr()
    assert close(second, module(x * 2))


def test_what_is_elsewhere_is_refused(f: CompiledModule, module: nn.Module, x: Tensor) -> None:
    with pytest.raises(GolowError, match="input 0 is on cpu; this was compiled for cuda:0"):
        f(x.cpu())
    with pytest.raises(GolowError, match="is on cpu; this was compiled for cuda:0"):
        compiled(module, x.cpu())
    with pytest.raises(GolowError, match="the module is on cuda:0, which onednn does not support"):
        compiled(module, x, level="onednn")
    with pytest.raises(GolowError, match="the module is on cpu, which cudnn does not support"):
        compiled(network(), X, level="cudnn")


class Gate:
    """Keeps streams waiting until it is opened, or for half a minute."""

    def __init__(self) -> None:
        self._word = torch.zeros(1, dtype=torch.int32, device="cuda")
        self._beside = torch.cuda.Stream()
        torch.cuda.synchronize()
        self._late = threading.Timer(30.0, self.open)
        self._late.start()

    def close(self, stream: torch.cuda.Stream) -> None:
        answer = driver.cuStreamWaitValue32(stream.cuda_stream, self._word.data_ptr(), 1, 0)
        checked(answer, "cuStreamWaitValue32")

    def open(self) -> None:
        self._late.cancel()
        where = self._beside.cuda_stream, self._word.data_ptr()
        checked(driver.cuStreamWriteValue32(*where, 1, 0), "cuStreamWriteValue32")


def test_it_runs_behind_what_is_on_the_callers_stream_and_waits_for_nothing_else(
    f: CompiledModule, module: nn.Module, x: Tensor
) -> None:
    wanted, own, late = module(x * 2), f.context(), torch.zeros_like(x)
    own(x)
    other, done, elsewhere = torch.cuda.Stream(), torch.cuda.Event(), torch.cuda.Event()
    legacy, gate = Gate(), Gate()
    legacy.close(torch.cuda.default_stream())
    elsewhere.record(torch.cuda.default_stream())
    with torch.cuda.stream(other):
        gate.close(other)
        late.copy_(x * 2)
        found = own(late)
        done.record()
        waited = done.query()
        gate.open()
        done.synchronize()
    behind = elsewhere.query()
    legacy.open()
    assert not waited, "the call waited for its stream"
    assert not behind, "the call waited for the legacy stream"
    assert close(found, wanted)


def test_contexts_run_in_streams_and_threads_of_their_own(
    f: CompiledModule, module: nn.Module, x: Tensor
) -> None:
    wanted = [module(x * k).detach() for k in range(4)]
    wrong: list[int] = []

    def work(call: Callable[[Tensor], Tensor], k: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            found = [call(x * k) for _ in range(50)]
            torch.cuda.current_stream().synchronize()
        wrong.extend(k for item in found if not close(item, wanted[k]))

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(f.context(), k)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_sizes_of_one_context_follow_one_another_in_any_streams(
    f: CompiledModule, module: nn.Module, x: Tensor
) -> None:
    """They share an arena."""
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    found = []
    for k in range(60):
        with torch.cuda.stream(streams[k % 3]):
            found.append(f(x[: 1 + k % 4] * k))
    torch.cuda.synchronize()
    for k, item in enumerate(found):
        assert close(item, module(x[: 1 + k % 4] * k)), k


def test_it_is_captured_into_the_callers_graph(
    f: CompiledModule, module: nn.Module, x: Tensor
) -> None:
    own, given = f.context(), x.clone()
    own(given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        shifted = given * 2 + 1
        found = own(shifted) * 3
    for k in range(3):
        given.copy_(x * k)
        graph.replay()
        assert close(found, module(x * k * 2 + 1) * 3), k
        assert close(own(x - k), module(x - k)), "a plain call in between"


def test_other_weights_are_loaded_in_place(module: nn.Module, x: Tensor) -> None:
    f = compiled(module, x, batch=[2, 4])
    memory, other = f.memory(), network(seed=1).cuda()
    f.load_state_dict(other.state_dict())
    assert close(f(x), other(x))
    assert close(f(x[:1]), other(x[:1]))
    assert f.memory() == memory
    f.load_state_dict({name: item.cpu() for name, item in module.state_dict().items()})
    assert close(f(x), module(x))


def test_sizes_share_their_weights(x: Tensor) -> None:
    torch.manual_seed(0)
    wide = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 256, 3), nn.ReLU(), nn.Conv2d(256, 64, 3)
    )
    wide = wide.eval().cuda()
    one, all_ = compiled(wide, x, batch=[4]), compiled(wide, x, batch=[1, 2, 3, 4])
    assert all_.memory()["weights"] <= 1.1 * one.memory()["weights"]
    for rows in (1, 3):
        assert close(all_(x[:rows]), wide(x[:rows]))


def held() -> tuple[int, int, int, int]:
    """Device memory of golow and of torch in bytes, open files, threads. Others may use the GPU."""
    gc.collect()
    regions = sum(item.size for item in gc.get_objects() if isinstance(item, Region))
    files = len(list(Path("/proc/self/fd").iterdir()))
    return regions, torch.cuda.memory_allocated(), files, threading.active_count()


def test_many_calls_leave_nothing_behind_and_give_the_same_bits(
    f: CompiledModule, x: Tensor
) -> None:
    first = f(x)
    for k in range(100):
        f(x[: 1 + k % 4])
    before = held()
    for k in range(10_000):
        f(x[: 1 + k % 4])
    torch.cuda.synchronize()
    assert held() == before
    assert torch.equal(f(x), first)


def test_what_is_closed_gives_its_memory_back() -> None:
    torch.manual_seed(0)
    large = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096)).eval().cuda()
    x = torch.randn(64, 4096).cuda()
    before = held()[0]
    f = compiled(large, x, batch=[8, 64])
    f(x)
    assert held()[0] >= before + 2 * 4 * 4096**2
    f.close()
    assert held()[0] == before


def test_without_room_nothing_stays_allocated() -> None:
    torch.manual_seed(0)
    large = nn.Sequential(nn.Linear(8192, 8192), nn.ReLU(), nn.Linear(8192, 8192)).eval().cuda()
    x = torch.randn(64, 8192).cuda()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    filler = torch.empty(free - (256 << 20), dtype=torch.uint8, device="cuda")
    left, _ = torch.cuda.mem_get_info()
    with pytest.raises(GolowError, match="not enough memory on the GPU"):
        compiled(large, x)
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] >= left - (48 << 20)  # libraries loaded on first use
    del filler
    torch.cuda.empty_cache()
    assert close(compiled(large, x)(x), large(x))


def test_a_graph_that_would_keep_an_address_is_not_run(
    module: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would read the first call's input forever."""
    from golow.levels.direct.cudnn.bindings import pointed_graph

    monkeypatch.setattr(pointed_graph, "_slots", lambda value, spans: iter(()))
    with pytest.raises(LookupError, match="no kernel of the graph"):
        compiled(module, x)
