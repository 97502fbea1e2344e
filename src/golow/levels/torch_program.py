"""What the levels inside PyTorch share: one workload, served from a module made callable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from golow.bundle import Bundle
from golow.record import LayerTime, ModelSource, Unsupported, Workload
from golow.source import build_module, random_layers_off
from golow.worker.protocol import LoadReport

if TYPE_CHECKING:
    from golow.levels.torch_layers import LayerClock

Lowered = Callable[..., Any]


class TorchProgram:
    """A workload run by PyTorch; the level overrides ``lower`` and states its settings here."""

    dtype = torch.float32
    memory_format = torch.contiguous_format
    constant_dropout = False
    builds_on_first_iteration = False
    indivisible = "what it calls is no module whose layers could be watched"

    workload: Workload
    module: nn.Module
    call: Lowered

    def __init__(self) -> None:
        self.notes: list[str] = []

    def lower(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Lowered:
        """The module as this level calls it; eager calls it as it is."""
        return module

    # ------------------------------------------------------------ the protocol's requests

    def load(self, bundle: Path) -> LoadReport:
        """Build the module, give it the bundle's weights, lower it."""
        start = time.perf_counter()
        self._read(Bundle(bundle))
        loaded = time.perf_counter()
        self.call = self.lower(self.module, self.inputs[0])
        if self.builds_on_first_iteration:
            self.iterate()
        built = time.perf_counter()
        # Lowering and building run the module, which moves its running statistics.
        self._reset()
        ready = time.perf_counter()
        # A trace is made at every start, what is compiled is found in a cache the next time.
        build = built - loaded if self.builds_on_first_iteration else 0.0
        phases = {"load": ready - start - build, "build": build}
        return LoadReport(phases=phases, notes=tuple(self.notes))

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run the batches from the bundle's weights, random layers off; write the tensors."""
        with self._random_layers_off():
            # Only now: switching them off may trace the module, which moves its statistics.
            self._reset()
            tensors = (
                self._train_outputs(batches, learning_rate)
                if self.train
                else self._infer_outputs(batches)
            )
        save_file({k: v.detach().contiguous().clone() for k, v in tensors.items()}, file)
        self._reset()

    def iterate(self) -> None:
        """One forward pass or training step on the next batch."""
        index = self._next()
        self._last = self._step(index)[0] if self.train else self._forward(index)

    def last(self) -> float:
        """The loss, or the first element of the first output."""
        return float(pytree.tree_leaves(self._last)[0].flatten()[0])

    def allocated_peak(self) -> int | None:
        """Bytes that one iteration holds at most beyond what was held before it, as the
        allocator reports them to the profiler."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            self.iterate()
        assert recorded.profiler is not None  # noqa: S101
        results = recorded.profiler.kineto_results
        held = peak = 0
        for change in _allocations(results.experimental_event_tree()):
            held += change
            peak = max(peak, held)
        return peak

    def layers(self, iterations: int) -> tuple[LayerTime, ...]:
        """Where the time goes, layer by layer; only where the module is called as it is."""
        if self.call is not self.module:
            raise Unsupported("", self.indivisible)
        from golow.levels.torch_layers import LayerClock

        return LayerClock(self.module, self.optimizer).run(self._iterate_by_layer, iterations)

    # ------------------------------------------------------------ how it is done

    def _read(self, bundle: Bundle) -> None:
        self.workload = bundle.workload
        torch.set_num_threads(self.workload.threads)
        self.train = self.workload.mode == "train"
        self.bundle = bundle
        self.module = _module(self.workload.source, bundle.folder, _load(bundle, "weights"))
        self.module.to(dtype=self.dtype, memory_format=self.memory_format)  # type: ignore[call-overload]
        self.module.train(self.train)
        batches = _load(bundle, "batches")
        count = self.workload.batches
        self.inputs = [self._batch(batches, index, "input") for index in range(count)]
        self.targets = [self._batch(batches, index, "target") for index in range(count)]
        self.loss = _loss(bundle) if self.train else None
        # Not in inference: making one imports torch's compiler, a second that would count as the
        # level's own start.
        self.optimizer = self._sgd() if self.train else None
        self.position = 0

    def _sgd(self) -> torch.optim.SGD:
        settings = self.workload.optimizer
        return torch.optim.SGD(
            self.module.parameters(),
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )

    def _batch(self, tensors: dict[str, Tensor], index: int, kind: str) -> tuple[Tensor, ...]:
        prefix = f"{index}/{kind}/"
        count = sum(name.startswith(prefix) for name in tensors)
        return tuple(self._cast(tensors[f"{prefix}{i}"]).clone() for i in range(count))

    def _cast(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def _reset(self) -> None:
        # Read again instead of kept: a copy of the weights would count as the level's memory.
        self.module.load_state_dict(_load(self.bundle, "weights"))
        self.position = 0
        if self.optimizer is not None:
            self.optimizer.state.clear()
            self.optimizer.param_groups[0]["lr"] = self.workload.optimizer.learning_rate

    def _arranged(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        # Within the iteration: the input arrives in PyTorch's order at every level.
        if self.memory_format is torch.contiguous_format:
            return tensors
        return tuple(
            t.contiguous(memory_format=self.memory_format) if t.dim() == 4 else t for t in tensors
        )

    def _next(self) -> int:
        index = self.position % len(self.inputs)
        self.position += 1
        return index

    def _forward(self, index: int) -> Any:
        with torch.inference_mode():
            return self.call(*self._arranged(self.inputs[index]))

    def _step(self, index: int) -> tuple[Tensor, Any]:
        assert self.loss is not None and self.optimizer is not None  # noqa: S101
        self.optimizer.zero_grad(set_to_none=True)
        output = self.call(*self._arranged(self.inputs[index]))
        loss = self.loss(output, *self.targets[index])
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach(), output

    def _iterate_by_layer(self, clock: LayerClock) -> None:
        """What `iterate` does, telling the clock what begins."""
        index = self._next()
        if not self.train:
            self._last = self._forward(index)
            return
        assert self.loss is not None and self.optimizer is not None  # noqa: S101
        clock.enter_update()
        self.optimizer.zero_grad(set_to_none=True)
        clock.enter_forward()
        loss = self.loss(self.call(*self._arranged(self.inputs[index])), *self.targets[index])
        clock.enter_backward(loss)
        loss.backward()  # type: ignore[no-untyped-call]
        clock.enter_update()
        self.optimizer.step()
        self._last = loss.detach()

    def _infer_outputs(self, batches: list[int]) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for step, index in enumerate(batches):
            for position, leaf in enumerate(pytree.tree_leaves(self._forward(index))):
                tensors[f"{step}/output/{position}"] = leaf.clone()
        return tensors

    def _train_outputs(self, batches: list[int], learning_rate: float) -> dict[str, Tensor]:
        assert self.optimizer is not None  # noqa: S101
        self.optimizer.param_groups[0]["lr"] = learning_rate
        tensors: dict[str, Tensor] = {}
        last = len(batches) - 1
        before = _load(self.bundle, "weights")
        for step, index in enumerate(batches):
            loss, output = self._step(index)
            tensors[f"{step}/loss/loss"] = loss
            for position, leaf in enumerate(pytree.tree_leaves(output)):
                tensors[f"{step}/output/{position}"] = leaf.detach().clone()
            for name, buffer in self.module.named_buffers():
                if name in before and not torch.equal(buffer, self._cast(before[name])):
                    tensors[f"{step}/buffer/{name}"] = buffer.clone()
            for name, parameter in self.module.named_parameters():
                if parameter.grad is None:
                    continue
                if step == 0:
                    tensors[f"0/gradient/{name}"] = parameter.grad.clone()
                if step == last:
                    tensors[f"{step}/parameter/{name}"] = parameter.detach().clone()
                    momentum = self.optimizer.state[parameter].get("momentum_buffer")
                    if momentum is not None:
                        tensors[f"{step}/momentum/{name}"] = momentum.clone()
        return tensors

    @contextmanager
    def _random_layers_off(self) -> Iterator[None]:
        call = self.call
        with random_layers_off(self.module):
            if self.constant_dropout and self.workload.random_layers:
                self.call = self.lower(self.module, self.inputs[0])
            try:
                yield
            finally:
                self.call = call


def _load(bundle: Bundle, name: str) -> dict[str, Tensor]:
    return load_file(bundle.file(f"{name}.safetensors"))


def _module(source: ModelSource, folder: Path, weights: dict[str, Tensor]) -> nn.Module:
    if source.kind != "zoo":
        module = build_module(source, folder)
        module.load_state_dict({k: v.clone() for k, v in weights.items()})
        return module
    # The weights are at hand, so the zoo's modules need not draw random ones first.
    with torch.device("meta"):
        module = build_module(source, folder)
    module.load_state_dict({k: v.clone() for k, v in weights.items()}, assign=True)
    for parameter in module.parameters():
        parameter.requires_grad_(True)
    return module


def _loss(bundle: Bundle) -> Callable[..., Tensor]:
    name = bundle.workload.loss
    found = getattr(nn.functional, name, None)
    path = bundle.file("loss.pkl")
    if path.exists():
        import cloudpickle

        loss: Callable[..., Tensor] = cloudpickle.loads(path.read_bytes())
        return loss
    assert found is not None  # noqa: S101 (workload.py resolved the name)
    return found  # type: ignore[no-any-return]


def _allocations(events: list[Any]) -> Iterator[int]:
    """Signed bytes of every allocation and release, in order of time."""
    found: list[tuple[int, int]] = []
    waiting = list(events)
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        if event.tag == torch._C._profiler._EventType.Allocation:
            found.append((event.start_time_ns, event.extra_fields.alloc_size))
    return (size for _, size in sorted(found, key=lambda pair: pair[0]))
