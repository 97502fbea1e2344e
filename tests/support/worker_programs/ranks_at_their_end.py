"""``python ranks_at_their_end.py MEETING RANK RANKS BUNDLE CACHE LAST`` trains at `cudnn` as one
rank and ends the exchange with the others. It prints ``ended``.

LAST: what precedes the end. ``graph``: many launches of the graph, without a pause. ``mixed``:
launches, steps without a graph and copies to the host, as they come in a comparison. ``pointed``: a
step of `golow.compile_step` on tensors at other addresses.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from golow.levels.direct import bundle_arrays
from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.bindings.nccl import Communicator
from golow.levels.direct.cudnn.engines.engines import Engines
from golow.levels.direct.cudnn.level import passes
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.run.execution import Execution
from golow.levels.direct.cudnn.run.training_plan import Scale, TrainingPlans
from golow.levels.direct.ranks.meeting import FolderMeeting
from golow.levels.lowering import lowered
from golow.levels.nvidia.memory import Region
from golow.workload.bundle import Bundle

PLACE, RANK, RANKS, BUNDLE, CACHE, LAST = sys.argv[1:]
LAUNCHES = 300


def main() -> None:
    rank, bundle = int(RANK), Bundle(Path(BUNDLE))
    meeting = FolderMeeting(Path(PLACE), rank, int(RANKS), patience=120)
    gpu = Gpu(Path(CACHE) / "kernels", ordinal=rank)
    ranks = Communicator(meeting, gpu)
    engines = Engines(gpu, Path(CACHE) / "engines", autotune=False)
    graph = lowered("cudnn", bundle, passes)
    batches = bundle_arrays.batches(bundle.of_rank(rank), bundle.workload.batches)
    with bundle_arrays.graph_weights(bundle) as read:
        if LAST == "pointed":
            plans = TrainingPlans(
                engines, bundle.workload.precision, 0, Scale(1.0), lambda: gpu.stream, ranks
            )
            plan = plans.add(graph, read, batches[0], {})
            pairs = [
                (gpu.allocate(a.nbytes), gpu.allocate(b.nbytes))
                for a, b in ((batch["input", "0"], batch["target", "0"]) for batch in batches)
            ]
            loss = Region(4)
            for number in range(LAUNCHES):
                one, other = pairs[number % len(pairs)]
                plan([one.address], [other.address], loss.address)
            ranks.wait(gpu)
            plans.close()
            print("ended", flush=True)
            return
        built = build_plan(graph, engines, TYPES[bundle.workload.precision], len(batches))
        sources = {item.value.name: item for item in graph.inputs}
        execution = Execution(built, gpu, sources, batches, read, ranks=ranks)
    for number in range(LAUNCHES):
        execution.run(number % len(batches))
        if LAST == "mixed" and number % 50 == 0:
            loss = execution.read(built.outputs["loss", "loss"])
            assert np.isfinite(loss).all()
            execution.run_watched(0, lambda position: None)
            execution.run_timed(0)
    ranks.wait(gpu)
    execution.close()
    ranks.close()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
