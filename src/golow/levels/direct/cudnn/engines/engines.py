"""Chooses what executes a convolution or a matrix product: by the vendor's heuristics, or by timing
for the variant ``autotune``. A choice is cached on disk by operation, GPU and library versions,
together with its compiled plan, so that the next start builds nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from golow.levels.direct.cudnn.bindings.cublaslt import Algorithm, CublasLt, Matmul, solved
from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.bindings.frontend import Frontend, Plan
from golow.levels.direct.cudnn.bindings.rnn_api import CudnnError, Network
from golow.levels.direct.cudnn.engines import (
    few_pixel_convolution,
    first_convolution,
    golow_attention,
    golow_convolution,
    golow_recurrence,
    recurrent_engines,
)
from golow.levels.direct.cudnn.engines.golow_convolution import OwnConvolution
from golow.levels.direct.cudnn.engines.golow_recurrence import Shares
from golow.levels.direct.cudnn.engines.golow_recurrence_timing import own_time_of
from golow.levels.direct.cudnn.engines.one_pixel import as_convolution, as_product
from golow.levels.direct.cudnn.engines.own_engine import OwnEngine
from golow.levels.direct.cudnn.problems.epilogue import takes_activation
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.products import (
    AttentionProblem,
    Convolution,
    FirstConvolution,
)
from golow.levels.direct.cudnn.problems.recurrent_network import RecurrentNetwork
from golow.levels.nvidia.memory import Region
from golow.records.record import Record
from golow.storage.cache import read_sealed, write_sealed

# How many plans of each library are timed; the libraries list the expected fastest first.
TIMED = 6
# For operands of at least this size in bytes, cuDNN 9.19's first plan can take three times as long
# as its second (docs/results/h200.md). So a few plans are always timed there.
LARGE_OPERAND, TIMED_IF_LARGE = 2 << 30, 3
# An engine's workspace is at most this many bytes, or twice what it reads and writes if larger.
WORKSPACE_LIMIT = 64 << 20
# Repetitions in one graph, and how often the graph runs; the fastest counts.
REPETITIONS, GRAPHS = 10, 5
# From this many nanoseconds, a single run is exact enough without repetitions.
LONG_NS = 500_000
# An engine is not timed again if its first run takes this many times as long as the best engine so
# far, plus what a launch may add.
HOPELESS, LAUNCH_NS = 2, 20_000
# The first suggestion is distrusted if it takes this many times what the GPU needs without tensor
# cores. cuDNN 9.19 puts its slowest engine first for some pointwise convolutions with two limits:
# one took 5.5 ms of a network that takes 1.6 ms otherwise, on an H100.
DISTRUSTED = 3
# Position of the weight among the operands of a convolution or product. A cold one has a copy for
# each repetition, if all are at most this many bytes; larger ones do not stay in the cache anyway.
WEIGHT, MOST_COPIED = 1, 512 << 20
CHOICE = 3  # which engines are candidates: choices of others are made again
NOISE_BYTES = 1 << 20  # drawn by the host; the device repeats them

Operation = Convolution | Problem | AttentionProblem | FirstConvolution


class Operands(NamedTuple):
    """Temporary memory of an operation: the addresses of its operands in their order, once for each
    copy of a cold weight; of a workspace; and what is written to empty the cache, if anything."""

    addresses: list[list[int]]
    workspace: int
    flushed: Region | None


class Engine(Protocol):
    """Executes one operation. Its operands are in the order that `Convolution` and `Problem`
    document; workspace is in bytes."""

    kind: str
    name: str
    workspace: int

    def run(self, addresses: Sequence[int], workspace: int, side: bool = False) -> None:
        """Enqueue it on the main stream or the side stream."""

    def encode(self) -> bytes:
        """Return what restores the same engine without a search."""


class Stored(Record, frozen=True, kw_only=True):
    """A choice as it is stored on disk."""

    kind: str
    data: bytes
    ns: float | None = None  # of one run, where it was timed


class MatrixEngine:
    """cuBLASLt with one of its algorithms."""

    kind = "cublaslt"

    def __init__(self, matmul: Matmul, algorithm: Algorithm, gpu: Gpu) -> None:
        self._matmul, self._algorithm, self._gpu = matmul, algorithm, gpu
        self.workspace = algorithm.workspace
        self.name = "cublaslt"

    @property
    def chosen(self) -> tuple[Problem, Algorithm]:
        """Description of the problem and the chosen engine."""
        return self._matmul.problem, self._algorithm

    def run(self, addresses: Sequence[int], workspace: int, side: bool = False) -> None:
        """Enqueue it: a, b[, numbers of columns, of rows][, bias][, c] -> d."""
        problem = self._matmul.problem
        a, b, *others, d = addresses
        rest = iter(others)
        columns, rows = (next(rest), next(rest)) if problem.scaled else (0, 0)
        bias = next(rest) if problem.bias or problem.bias_gradient else 0
        c = next(rest) if problem.residual else 0
        stream = self._gpu.side if side else self._gpu.stream
        self._matmul.run(
            self._algorithm, a=a, b=b, c=c, d=d, bias=bias, columns=columns, rows=rows,
            stream=stream, workspace=workspace if self.workspace else 0,
        )  # fmt: skip

    def encode(self) -> bytes:
        """Return the algorithm in the library's own bytes."""
        return msgspec.msgpack.encode(self._algorithm)


class Engines:
    """Chooses and caches the engines of one GPU. cache: folder for the choices. times: whether it
    times them. files: where the choices are that were requested."""

    def __init__(self, gpu: Gpu, cache: Path, autotune: bool) -> None:
        self.gpu, self._cache, self.times = gpu, cache, autotune
        self.frontend, self.lt = Frontend(gpu), CublasLt()
        self._chosen: dict[Operation, Engine | None] = {}
        self._ns: dict[Operation, float] = {}
        # Operations that were timed in this process: nanoseconds of each engine, alone.
        self.timed: dict[Operation, dict[Engine, float]] = {}
        self._networks: dict[RecurrentNetwork, Network] = {}
        self.built = 0
        self.files: set[Path] = set()
        self.notes: list[str] = []  # damaged entries of the cache

    def choose(self, operation: Operation) -> Engine | None:
        """Return the engine for the operation; None if nothing can compute it."""
        if operation not in self._chosen:
            self._chosen[operation] = self._restore(operation) or self._search(operation)
        return self._chosen[operation]

    def time_of(self, operation: Operation) -> float:
        """Return the nanoseconds of the operation's engine: infinity if nothing can compute it or
        it was not timed."""
        self.choose(operation)
        return self._ns.get(operation, float("inf"))

    def recurrent(self, problem: RecurrentNetwork) -> Network:
        """Return the recurrent network with its algorithm. Raises `CudnnError` if the library does
        not have it."""
        if problem not in self._networks:
            self._networks[problem] = self._network(problem)
        return self._networks[problem]

    def own_recurrence(self, problem: RecurrentNetwork) -> Shares | None:
        """Return how golow's own kernel shares the layers' units, where it is faster than the
        library; None where it is not, or there is none."""
        found = golow_recurrence.takes(problem, self.gpu.properties()["numSms"])
        if found is None:
            return None
        file = self._file_of(("own", problem), found.forward.units)
        if (data := read_sealed(file, self.notes)) is None:
            data = b"own" if self._is_own_faster(problem, found) else b"library"
            write_sealed(file, data)
        return found if data == b"own" else None

    def _is_own_faster(self, problem: RecurrentNetwork, found: Shares) -> bool:
        self.built += 1
        try:
            library = recurrent_engines.time_of(self.recurrent(problem), self.gpu)
        except CudnnError:
            return True
        return own_time_of(problem, found, self) < library

    def _network(self, problem: RecurrentNetwork) -> Network:
        handle, file = self.frontend.handle, self._file_of(problem)
        if (data := read_sealed(file, self.notes)) is not None:
            return recurrent_engines.restored(problem, handle, data)
        self.built += 1
        network = recurrent_engines.chosen(problem, self.gpu, handle)
        write_sealed(file, network.algorithm.encode())
        return network

    def _search(self, operation: Operation) -> Engine | None:
        self.built += 1
        most = self._plans_to_time(operation)
        if most > 1:
            engine = self._pick_fastest(operation, list(self._candidates(operation, most)))
        else:
            engine = self._trusted(operation)
        if engine is not None:
            self.keep(operation, engine)
        return engine

    def keep(self, operation: Operation, engine: Engine) -> None:
        """Choose this engine for the operation from now on, in later processes, too."""
        self._chosen[operation] = engine
        stored = Stored(kind=engine.kind, data=engine.encode(), ns=self._ns.get(operation))
        write_sealed(self._file(operation), msgspec.msgpack.encode(stored))

    # ------------------------------------------------------------ candidates

    def _plans_to_time(self, operation: Operation) -> int:
        """Return how many plans of each library are timed; 1 if their order is trusted."""
        if self.times:
            return TIMED
        return TIMED_IF_LARGE if max(operation.operand_bytes) >= LARGE_OPERAND else 1

    def _trusted(self, operation: Operation) -> Engine | None:
        """Return the first suggestion, unless one run of it is far too slow: then the fastest."""
        suggested = next(self._candidates(operation, 1), None)
        if suggested is None or isinstance(suggested, OwnConvolution):
            return suggested
        sensible = self.gpu.plain_ns(sum(operation.operand_bytes), operation.flops)
        with self._operands(operation, [suggested]) as operands:
            time = self._time(suggested, operands, 0.0)
        if time <= DISTRUSTED * sensible + LAUNCH_NS:
            return suggested
        return self._pick_fastest(operation, [suggested, *self._candidates(operation, TIMED)])

    def _candidates(self, operation: Operation, most: int) -> Iterator[Engine]:
        """Yield the engines that can compute it, in order of preference if nothing is timed."""
        if isinstance(operation, Problem):
            yield from self._products(operation, most)
            if self.times and (same := as_convolution(operation)) is not None:
                yield from few_pixel_convolution.small_engines(same, self.gpu)
            return
        if isinstance(operation, AttentionProblem):
            library = operation.by_library
            if library:
                yield from self.frontend.plans(operation, most, workspace_limit(operation))
            if self.times or not library:
                yield from golow_attention.own_attention(operation, self.gpu, most)
            return
        if isinstance(operation, FirstConvolution):
            yield from first_convolution.first_engines(operation, self.gpu, most)
            return
        yield from golow_convolution.own_engines(operation, self.gpu, most)
        if operation.activation is not None or operation.of_ranges:
            if self.times and not operation.of_ranges:
                if takes_activation(operation.activation):
                    yield from self.frontend.plans(operation, most, workspace_limit(operation))
                yield from few_pixel_convolution.small_engines(operation, self.gpu)
            return
        yield from self.frontend.plans(operation, most, workspace_limit(operation))
        if self.times:  # no heuristic ranks these
            yield from few_pixel_convolution.small_engines(operation, self.gpu)
        if (problem := as_product(operation)) is not None:
            yield from self._products(problem, most)

    def _products(self, problem: Problem, most: int) -> Iterator[Engine]:
        for matmul, algorithm in solved(self.lt, problem, workspace_limit(problem), most):
            yield MatrixEngine(matmul, algorithm, self.gpu)

    def _pick_fastest(self, operation: Operation, candidates: list[Engine]) -> Engine | None:
        """Time the candidates on temporary memory."""
        if not candidates:
            return None
        timed: dict[Engine, float] = {}
        with self._operands(operation, candidates) as operands:
            self._compile(candidates, operands)
            for engine in candidates:
                fastest = min(timed.values(), default=float("inf"))
                timed[engine] = self._time(engine, operands, fastest)
        best = min(candidates, key=lambda engine: timed[engine])
        self.timed[operation], self._ns[operation] = timed, timed[best]
        return best

    def _compile(self, candidates: Sequence[Engine], operands: Operands) -> None:
        """Compile the kernels of all candidates at once. One whose kernels fail fails again when it
        is timed."""
        own = [engine for engine in candidates if isinstance(engine, OwnEngine)]
        addresses, workspace = operands.addresses[0], operands.workspace
        with suppress(RuntimeError):
            self.gpu.compile(
                kernel for engine in own for kernel, _ in engine.launches(addresses, workspace)
            )

    @contextmanager
    def _operands(self, operation: Operation, engines: Sequence[Engine]) -> Iterator[Operands]:
        """Temporary memory for the operands, full of numbers, and for a workspace."""
        sizes = operation.operand_bytes
        cold = isinstance(operation, Convolution | Problem) and operation.cold
        copies = REPETITIONS if cold and REPETITIONS * sizes[WEIGHT] <= MOST_COPIED else 1
        regions = [Region(size) for size in sizes]
        weights = [Region(sizes[WEIGHT]) for _ in range(copies - 1)]
        workspace = Region(max(engine.workspace for engine in engines))
        for region, size in zip(regions, sizes, strict=True):
            if size:  # a position without bytes stays 0
                self._fill(region)
        for region in weights:
            self._fill(region)
        first_convolution = [region.address for region in regions]
        others = [
            [first_convolution[0], other.address, *first_convolution[WEIGHT + 1 :]]
            for other in weights
        ]
        flushed = Region(2 * self.gpu.cache_bytes) if others else None
        yield Operands([first_convolution, *others], workspace.address, flushed)

    def _fill(self, region: Region) -> None:
        """Fill the region with numbers that are positive, below 1 and not NaN in every type. The
        host draws some of the bytes, and the device repeats them."""
        filled = min(region.size, NOISE_BYTES)
        noise = np.random.default_rng(0).integers(0x38, 0x3C, filled, dtype=np.uint8)
        self.gpu.upload(region.address, noise)
        while filled < region.size:
            more = min(filled, region.size - filled)
            self.gpu.copy(region.address + filled, region.address, more)
            filled += more

    def _time(self, engine: Engine, operands: Operands, fastest: float) -> float:
        """Return nanoseconds per run: a rough value if another engine was far faster, infinity if
        the engine fails."""

        def once() -> None:
            engine.run(operands.addresses[0], operands.workspace)

        def repeat() -> None:
            for addresses, _ in zip(cycle(operands.addresses), range(REPETITIONS), strict=False):
                engine.run(addresses, operands.workspace)

        def flush() -> None:
            if operands.flushed is not None:
                self.gpu.fill(operands.flushed.address, operands.flushed.size)

        try:
            once()  # loads its kernels
            time = self.gpu.time(once, 1)
            if time > HOPELESS * fastest + LAUNCH_NS:
                return time
            if time > LONG_NS:
                return min(time, self.gpu.time(once, GRAPHS - 1))
            return self.gpu.time(repeat, GRAPHS, flush) / REPETITIONS
        except RuntimeError:
            return float("inf")

    # ------------------------------------------------------------ on disk

    def _file(self, operation: Operation) -> Path:
        return self._file_of(operation, self._plans_to_time(operation), workspace_limit(operation))

    def _file_of(self, operation: object, *how: int) -> Path:
        key = (
            CHOICE, repr(operation), *how, self.gpu.name, self.frontend.version, self.lt.version,
        )  # fmt: skip
        file = self._cache / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.engine"
        self.files.add(file)
        return file

    def _restore(self, operation: Operation) -> Engine | None:
        data = read_sealed(self._file(operation), self.notes)
        if data is None:
            return None
        stored = msgspec.msgpack.decode(data, type=Stored)
        if stored.ns is not None:
            self._ns[operation] = stored.ns
        if stored.kind == OwnConvolution.kind and isinstance(operation, Convolution):
            return golow_convolution.restore(operation, self.gpu, stored.data)
        same = as_convolution(operation) if isinstance(operation, Problem) else operation
        if stored.kind == few_pixel_convolution.SmallConvolution.kind and isinstance(
            same, Convolution
        ):
            return few_pixel_convolution.restore(same, self.gpu, stored.data)
        if isinstance(operation, FirstConvolution):
            return first_convolution.restore(operation, self.gpu, stored.data)
        own_kind = golow_attention.OwnAttention.kind
        if stored.kind == own_kind and isinstance(operation, AttentionProblem):
            return golow_attention.restore(operation, self.gpu, stored.data)
        if stored.kind == Plan.kind and not isinstance(operation, Problem):
            return self.frontend.restore(operation, stored.data)
        problem = as_product(operation) if isinstance(operation, Convolution) else operation
        if not isinstance(problem, Problem):
            return None
        algorithm = msgspec.msgpack.decode(stored.data, type=Algorithm)
        return MatrixEngine(Matmul(self.lt, problem), algorithm, self.gpu)


def workspace_limit(operation: Operation) -> int:
    """Return the bytes of workspace that an engine for the operation may use."""
    return max(WORKSPACE_LIMIT, 2 * sum(operation.operand_bytes))
