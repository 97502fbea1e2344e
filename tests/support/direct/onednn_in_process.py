"""The level `onednn` in the test's own process: `compute` builds and runs the real plan."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from torch import Tensor, nn

from golow.levels.compiler import find_compiler
from golow.levels.direct.bundle_arrays import STATE
from golow.levels.direct.onednn.bindings.constants import ANY, CHANNELS_LAST
from golow.levels.direct.onednn.bindings.library import Engine, channel_block
from golow.levels.direct.onednn.passes import passes as onednn_passes
from golow.levels.direct.onednn.planning import build_plan
from golow.levels.direct.onednn.recurrences import keep_faster_recurrences
from golow.levels.direct.onednn.run.execution import Execution
from golow.levels.direct.onednn.run.kernel_compilation import Workshop
from golow.levels.direct.onednn.steps.built_plan import Built, Switches
from golow.lower.ir.graph import Pass
from golow.records.workload import KEPT, Mode, Optimizer, Workload
from golow.storage.cache import open_cache
from support.direct import in_process
from support.direct.in_process import OPTIMIZER, STEPS, Network, Tensors, clipped
from support.direct.step_checks import steps_check

Chooser = Callable[[int], int]

ENGINE = Engine()
LAYOUTS = {"any": ANY, "channels_last": CHANNELS_LAST, "blocked": channel_block().tag}


def lower(
    module: nn.Module,
    inputs: Tensor | tuple[Tensor, ...],
    mode: Mode,
    optimizer: Optimizer = OPTIMIZER,
    loss: str = "cross_entropy",
    recurrences: Pass = keep_faster_recurrences,
) -> Network:
    """A workload as the level lowers it. recurrences: the pass for recurrent layers."""

    def passes(workload: Workload) -> tuple[Pass, ...]:
        level = onednn_passes(workload)
        return tuple(recurrences if run is keep_faster_recurrences else run for run in level)

    return in_process.lower(module, inputs, mode, optimizer, loss, passes=passes)


@cache
def workshop() -> Workshop:
    """A compiler with golow's own cache."""
    compiler = find_compiler()
    assert compiler is not None
    return Workshop(compiler, open_cache() / "onednn")


@cache
def quick_workshop() -> Workshop:
    """The same compiler, which optimises little: that takes half the time. It still makes
    vectors of the loops that a kernel declares to be some, so that a wrong declaration is seen."""
    made = workshop()
    assert made.compiler is not None
    first, *others = made.compiler.command
    # Kernels use no C++ library, which would take most of the linker's time.
    quick = "-O1 -fstrict-aliasing -nodefaultlibs -lm -lgcc -lc"
    command = ("sh", "-c", f'exec "$0" "$@" {quick}', first, *others)
    return Workshop(made.compiler._replace(command=command), made.cache)


class Running:
    """The plan of a network, loaded with its weights."""

    def __init__(
        self, network: Network, layout_of: Chooser = lambda _: ANY, generates: bool = True
    ) -> None:
        self.network = network
        self.switches = Switches(0)
        self.switches.dropout = False
        self.state = {
            name: tensor.detach().numpy().copy()
            for name, tensor in network.prepared.module.state_dict().items()
        }
        self.built: Built = build_plan(network.graph, ENGINE, layout_of, self.switches, generates)
        self.execution = Execution(self.built, ENGINE, self._weight, quick_workshop())
        self._held: list[np.ndarray] = []  # the execution keeps addresses only
        self.fill_state()

    def _weight(self, kind: str, target: str) -> np.ndarray:
        if kind == "constant":
            return self.network.constants[target].detach().numpy()
        return self.state[target]

    def fill_state(self) -> None:
        """Weights; the learning rate with its sign turned: see optimizer_updates.py."""
        rate = self.network.prepared.workload.optimizer.learning_rate
        for (kind, target), tensor in self.built.inputs.items():
            if kind == "learning_rate":
                self.execution.write(tensor, np.array([-rate], np.float32))
            elif kind in KEPT:
                self.execution.write(tensor, np.zeros(tensor.shape, np.float32))
            elif self.network.trains and kind in ("parameter", "buffer"):
                self.execution.write(tensor, self._weight(kind, target))

    def point_at(self, index: int) -> None:
        """Use this batch from now on."""
        batch = self.network.prepared.batches[index]
        for kind, tensors in (("input", batch.inputs), ("target", batch.targets)):
            for position, tensor in enumerate(tensors):
                array = tensor.contiguous().numpy()
                self._held.append(array)
                self.execution.pointing({(kind, str(position)): array})()

    def step(self) -> Tensors:
        """Run an iteration; every end of the graph, taken when it was made, because its memory
        may hold something else a step later."""
        at: dict[int, list[tuple[str, str]]] = {}
        for key, (_, made_at) in self.built.outputs.items():
            if key[0] in ("output", "loss", "gradient", "clip_factor"):
                at.setdefault(made_at, []).append(key)
        found: Tensors = {}

        def take(position: int) -> None:
            for key in at.get(position, ()):
                found["/".join(key)] = self.execution.read(self.built.outputs[key][0])

        self.execution.run_watched(take)
        take(-1)
        for key in self.built.outputs:
            if key[0] in STATE:
                found["/".join(key)] = self.execution.read(self.built.inputs[key])
        return clipped(found)


def compute(
    network: Network, layout_of: Chooser = lambda _: ANY, generates: bool = True
) -> Tensors:
    """What the level gives in `STEPS` iterations, by ``STEP/KIND/TARGET``. generates: with kernels
    of its own, otherwise as without a compiler. Each operation of the first is right by itself."""
    running = Running(network, layout_of, generates)
    assert_steps(running)
    found: Tensors = {}
    for step in range(STEPS):
        running.point_at(step)
        found |= {f"{step}/{name}": array for name, array in running.step().items()}
    return found


def assert_steps(running: Running) -> None:
    """Every operation of an iteration is right by itself; the state is then as it was before."""
    running.point_at(0)
    found = steps_check(running.network, running.execution, running.execution.run_watched)
    running.fill_state()
    assert not found.failed, "; ".join(item.words for item in found.wrong)
