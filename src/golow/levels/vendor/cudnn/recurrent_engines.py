"""Chooses which of cuDNN's algorithms computes a recurrent network: by PyTorch's rule, or by timing
for the variant ``autotune``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from golow.levels.nvidia.memory import Region
from golow.levels.vendor.cudnn.device import Gpu
from golow.levels.vendor.cudnn.recurrent import NetworkEngine, Operand, RecurrentNetwork
from golow.levels.vendor.cudnn.rnn_api import ALGORITHMS, CudnnError, Network

STANDARD, PERSISTENT = "standard", "persist_static"
# How often a network runs in one graph, and the graph runs; the fastest counts.
REPETITIONS, GRAPHS = 3, 4
# PyTorch's rule for the persistent algorithm (aten/src/ATen/native/cudnn/RNN.cpp,
# use_persist_common_heuristics and use_persist_device_heuristics): one layer in one direction of
# float16, with sizes that are multiples of this one, and at most this wide.
MULTIPLE, WIDEST = 128, 1024


def restored(problem: RecurrentNetwork, handle: int, algorithm: bytes) -> Network:
    """The network with the algorithm that an earlier process chose."""
    return Network(handle, problem, algorithm.decode())


def chosen(problem: RecurrentNetwork, gpu: Gpu, handle: int, times: bool) -> Network:
    """The network with the algorithm that is fastest, or the first of the rule that runs. Raises
    `CudnnError` if the standard algorithm does not run."""
    best, fastest = None, float("inf")
    for network in _candidates(problem, handle, tuple(ALGORITHMS) if times else by_rule(problem)):
        try:
            time = _time(network, gpu, REPETITIONS if times else 1)
        except CudnnError:
            if network.algorithm == STANDARD:
                raise
            continue
        if not times:
            return network
        if time < fastest:
            best, fastest = network, time
    return cast(Network, best)


def by_rule(problem: RecurrentNetwork) -> tuple[str, ...]:
    """Algorithms in the order in which they are tried."""
    sizes = (problem.hidden, problem.inputs)
    single = problem.layers == problem.sides == 1 and not problem.projected
    fits = problem.hidden <= WIDEST and not any(size % MULTIPLE for size in sizes)
    if problem.dtype == "float16" and single and fits:
        return PERSISTENT, STANDARD
    return (STANDARD,)


def _candidates(
    problem: RecurrentNetwork, handle: int, algorithms: Sequence[str]
) -> Iterator[Network]:
    for algorithm in algorithms:
        try:
            yield Network(handle, problem, algorithm)
        except CudnnError:
            if algorithm == STANDARD:
                raise


def _time(network: Network, gpu: Gpu, repetitions: int) -> float:
    """Nanoseconds of a run on temporary memory: forward, and backward if it trains."""
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
        for _ in range(repetitions):
            for position, operands in enumerate(engines):
                engine = NetworkEngine(network, gpu, operands, backward=position == 1)
                engine.run([regions[name].address for name in operands], workspace.address)

    run()
    gpu.synchronize()
    return gpu.time(run, GRAPHS) / repetitions if repetitions > 1 else 0.0
