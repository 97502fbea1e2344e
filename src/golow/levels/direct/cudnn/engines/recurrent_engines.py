"""Chooses which of cuDNN's algorithms computes a recurrent network, by timing: the library has no
heuristic for it. One layer of 128 units over 35 steps takes half the time with another algorithm
than the standard one, and one of 1024 units longer with each of the others
(docs/notes/cudnn.md)."""

from __future__ import annotations

from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.bindings.rnn_api import ALGORITHMS, CudnnError, Network
from golow.levels.direct.cudnn.problems.recurrent_network import (
    NetworkEngine,
    Operand,
    RecurrentNetwork,
)
from golow.levels.nvidia.memory import Region

# How often a network runs in one graph, and the graph runs; the fastest counts.
REPETITIONS, GRAPHS = 3, 4


def restored(problem: RecurrentNetwork, handle: int, algorithm: bytes) -> Network:
    """The network with the algorithm that an earlier process chose."""
    return Network(handle, problem, algorithm.decode())


def chosen(problem: RecurrentNetwork, gpu: Gpu, handle: int) -> Network:
    """The network with the algorithm that is fastest. Raises `CudnnError` if none runs."""
    found: list[tuple[float, Network]] = []
    errors: list[CudnnError] = []
    for algorithm in ALGORITHMS:
        try:
            network = Network(handle, problem, algorithm)
            found.append((time_of(network, gpu), network))
        except CudnnError as error:  # it does not have these sizes
            errors.append(error)
    if not found:
        raise errors[0]
    return min(found, key=lambda pair: pair[0])[1]


def time_of(network: Network, gpu: Gpu) -> float:
    """Nanoseconds of the network on temporary memory: forward, and backward if it trains."""
    problem = network.problem
    read: list[Operand] = ["weights", "x", "hidden"]
    read += ["cell"] if problem.kind == "lstm" else []
    forward: list[Operand] = [*read, "y"]
    engines = [forward]
    if problem.trains:
        forward.append("reserve")
        engines.append([*forward, "gradient", "x_gradient", "weight_gradients"])
    regions = {name: Region(network.operand_bytes(name)) for name in engines[-1]}
    workspace = Region(network.workspace)

    def run() -> None:
        for _ in range(REPETITIONS):
            for position, operands in enumerate(engines):
                engine = NetworkEngine(network, gpu, operands, backward=position == 1)
                engine.run([regions[name].address for name in operands], workspace.address)

    run()
    gpu.synchronize()
    return gpu.time(run, GRAPHS) / REPETITIONS
