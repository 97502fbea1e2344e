"""How much of a step's communication is exposed at `cudnn`, by the limit of NCCL's thread blocks?

    python benchmarks/exposed_communication.py [MODEL [BATCH [PRECISION [GPUS]]]]

Milliseconds of a step as one CUDA graph, on every GPU at once: with all reductions, and of the same
plan without them. What is left is exposed. For several limits of NCCL's thread blocks; the median
of seven rounds of 50 launches, of the slowest rank. By default resnet50 at batch 64 in bf16 on two.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

BLOCKS = (4, 8, 16, 32)
LAUNCHES, ROUNDS = 50, 7
DEFAULTS = ("resnet50", "64", "bf16", "2")


def main(arguments: Sequence[str]) -> int:
    model, batch, precision, gpus = (*arguments, *DEFAULTS[len(arguments) :])
    with tempfile.TemporaryDirectory(prefix="golow-exposed-") as name:
        folder = Path(name)
        (folder / "meeting").mkdir(mode=0o700)
        prepare(model, int(batch), precision, int(gpus), folder / "bundle")
        command = (sys.executable, __file__, "--rank", str(folder), gpus)
        ranks = [subprocess.Popen((*command, str(rank))) for rank in range(int(gpus))]
        return max(rank.wait() for rank in ranks)


def prepare(model: str, batch: int, precision: str, gpus: int, folder: Path) -> None:
    """Write the bundle of the training, with its graph."""
    from golow.lower.ir.clean_up import CLEAN_UP
    from golow.lower.ir.pass_runner import apply
    from golow.workload.bundle import write_bundle
    from golow.workload.graph_capture import capture
    from golow.workload.prepare import prepare as prepared
    from golow.workload.request import Request

    request = Request(
        model, mode="train", batch=batch, device="cuda", precision=precision, ranks=gpus
    )  # type: ignore[arg-type]
    workload = prepared(request)
    bundle, workload = write_bundle(workload, folder)
    captured = capture(workload)
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)


def run_rank(folder: Path, gpus: int, rank: int) -> None:
    """Time the step as one of the ranks; rank 0 prints."""
    from golow.levels.direct import bundle_arrays
    from golow.levels.direct.cudnn.bindings.device import Gpu
    from golow.levels.direct.cudnn.bindings.nccl import Communicator
    from golow.levels.direct.cudnn.engines.engines import Engines
    from golow.levels.direct.cudnn.level import passes
    from golow.levels.direct.cudnn.planning import build_plan
    from golow.levels.direct.cudnn.problems.precision import TYPES
    from golow.levels.direct.cudnn.run.execution import Execution
    from golow.levels.direct.cudnn.steps.built_plan import AverageCall
    from golow.levels.direct.ranks.meeting import FolderMeeting
    from golow.levels.direct.ranks.shared_memory import Barrier
    from golow.levels.lowering import lowered
    from golow.storage.cache import open_cache
    from golow.workload.bundle import Bundle

    bundle = Bundle(folder / "bundle")
    meeting = FolderMeeting(folder / "meeting", rank, gpus)
    barrier, home = Barrier(meeting), open_cache() / "cudnn"
    gpu = Gpu(home / "kernels", ordinal=rank)
    engines = Engines(gpu, home / "engines", autotune=False)
    graph, types = lowered("cudnn", bundle, passes), TYPES[bundle.workload.precision]
    batches = bundle_arrays.batches(bundle.of_rank(rank), bundle.workload.batches)
    sources = {item.value.name: item for item in graph.inputs}
    built = build_plan(graph, engines, types, len(batches))

    class Without(Execution):
        def enqueue(self, exchanges: bool = True) -> None:
            super().enqueue(exchanges=False)

    def timed(execution: Execution) -> float:
        execution.run(0)
        found = []
        for _ in range(ROUNDS):
            gpu.synchronize()
            barrier()
            start = time.perf_counter()
            for number in range(LAUNCHES):
                execution.run(number % len(batches))
            gpu.synchronize()
            taken = f"{(time.perf_counter() - start) / LAUNCHES * 1e3}".encode()
            every = meeting.everyone(meeting.numbered("taken"), taken)
            found.append(max(map(float, every)))
        execution.close()
        return median(found)

    def loaded(kind: type[Execution], ranks: Communicator) -> Execution:
        with bundle_arrays.graph_weights(bundle) as read:
            made = kind(built, gpu, sources, batches, read, ranks=ranks)
            for (of, target), tensor in built.inputs.items():
                if of in ("parameter", "buffer"):
                    made.write(tensor, read(of, target))
        made.renew_copies()
        return made

    for blocks in BLOCKS:
        ranks = Communicator(meeting, gpu, blocks)
        alone, together = timed(loaded(Without, ranks)), timed(loaded(Execution, ranks))
        ranks.close()
        if rank == 0:
            buckets = sum(isinstance(call, AverageCall) for call in built.calls)
            print(
                f"{bundle.workload.model}, {blocks} blocks, {buckets} buckets: {together:.3f} ms, "
                f"{alone:.3f} ms without, {1 - alone / together:.1%} exposed",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        run_rank(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main(sys.argv[1:]))
