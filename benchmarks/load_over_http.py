"""What does HTTP cost under load? `examples/serve_resnet.py` from outside, beside the same plan
without a network.

    python benchmarks/load_over_http.py --rate 20,50 --latency 100 --seconds 10 --out runs
    golow show runs/ID

Two levels of one load test: ``http`` is the server, started as its page says; each request is a
POST. ``onednn`` is `golow load`'s own process with the same network, contexts and threads, and
without batches, since the server makes none. LoadGen's requests have the same moments for both.
Every answer of the server is checked first: the class must be that of the model in float64.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from safetensors.numpy import load_file

from golow.programs.load import served_level
from golow.records.comparison import Check

SERVER = Path(__file__).resolve().parents[1] / "examples" / "serve_resnet.py"
FORWARD = "--forward"  # the option with which this file is the process of the level `http`


class Posting:
    """A context that posts each sample to the server, and answers with its class."""

    def __init__(self, url: str, samples: np.ndarray[Any, Any]) -> None:
        self._address, self._samples = urlsplit(url), samples

    def bucket(self, size: int) -> int:
        """The server gets as many pictures as came."""
        return size

    def assemble(self, indices: Sequence[int]) -> bytes:
        """The body of the request: an array in NumPy's format."""
        body = io.BytesIO()
        np.save(body, self._samples[list(indices)])
        return body.getvalue()

    def run(self, batch: bytes) -> list[int]:
        """The classes. Raises ValueError for an answer that is an error."""
        connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port)
        try:
            connection.request("POST", "/", batch)
            answer = connection.getresponse()
            content = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise ValueError(f"the server answered {answer.status}: {content}")
        return [int(one) for one in content["classes"]]

    def answers(self, outputs: list[int], size: int) -> list[bytes]:
        """The bytes of each class."""
        return [struct.pack("<q", one) for one in outputs[:size]]


class Classes:
    """Judges the server's answers. classes: the right ones, by sample."""

    def __init__(self, classes: Sequence[int]) -> None:
        self._classes, self.count = classes, len(classes)

    def judge(self, answers: Sequence[tuple[int, bytes]]) -> Check:
        """As `golow.programs.load.proof.Proof`: each answer must be there, and right."""
        if missing := set(range(self.count)) - {index for index, _ in answers}:
            return Check(verdict="differs", reason=f"{len(missing)} answers are missing")
        return self.judge_some(answers)

    def judge_some(self, answers: Sequence[tuple[int, bytes]]) -> Check:
        """The verdict on these answers alone."""
        for index, content in answers:
            (found,) = struct.unpack("<q", content)
            if found != self._classes[index]:
                wanted = self._classes[index]
                reason = f"sample {index} is of class {found}, not {wanted}"
                return Check(verdict="differs", reason=reason)
        return Check(verdict="match")


def forward(url: str) -> None:
    """Be the process of the level ``http``."""

    def contexts(asked: served_level.LoadRequest) -> list[Posting]:
        tensors = load_file(Path(asked.bundle) / "batches.safetensors")
        names = sorted(name for name in tensors if name.endswith("/input/0"))
        samples = np.concatenate([tensors[name] for name in names])
        return [Posting(url, samples) for _ in range(asked.contexts)]

    served_level.main(contexts)


@contextmanager
def serving(contexts: int) -> Iterator[str]:
    """The server of the example, on a free port; yields its address."""
    command = [sys.executable, "-u", str(SERVER), "--port", "0", "--contexts", str(contexts)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            found = re.search(r"http://\S+", process.stdout.readline() if process.stdout else "")
            if found is None:
                raise SystemExit(f"{SERVER.name} did not start")
            yield found[0]
        finally:
            process.kill()


def classes_of(bundle: Any) -> list[int]:
    """The classes of the samples by the server's model in float64."""
    import torch

    from golow.models.resnet import resnet18
    from golow.programs.load.contexts import samples_of

    (samples,) = samples_of(bundle)
    torch.manual_seed(0)  # as the server makes it, which draws its example first
    torch.randn(8, *samples.shape[1:])
    model = resnet18().eval().double()
    with torch.inference_mode():
        found: list[int] = model(samples.double()).argmax(1).tolist()
    return found


def measure(options: argparse.Namespace) -> Path:
    """Load the server and the plan in turn; returns the folder of the record."""
    from golow.observer import Silent
    from golow.programs.load import store
    from golow.programs.load.cores import divided
    from golow.programs.load.level_under_load import Place
    from golow.programs.load.load import loaded, recorded
    from golow.programs.load.load_record import LoadPlan
    from golow.programs.load.proof import Proof
    from golow.programs.load.settings import require_loadgen
    from golow.programs.load.tested_level import TestedLevel
    from golow.report.load.table import render
    from golow.storage.cache import open_cache
    from golow.storage.scratch import scratch_folder
    from golow.worker.time_limits import Limits
    from golow.workload.bundle import write_bundle
    from golow.workload.prepare import prepare
    from golow.workload.request import Request

    require_loadgen()
    created = datetime.now(UTC)
    plan = LoadPlan(
        scenarios=("single-stream", "server"),
        latency=options.latency / 1e3,
        percentile=options.percentile / 100,
        rates=tuple(float(rate) for rate in options.rate.split(",")),
        most=1,
        delay=0.0,
        buckets=(1,),
        contexts=options.contexts,
        seconds=options.seconds,
        repeats=options.repeats,
    )
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        prepared = prepare(Request("resnet18", resolution=64, batch=8, threads=1))
        bundle, prepared = write_bundle(prepared, folder / "bundle")
        proof = Proof(bundle, folder)
        cores = divided(sorted(os.sched_getaffinity(0)), options.contexts)
        place = Place(bundle, folder, plan, cores, proof.count, open_cache(None), Limits(), None)
        url = stack.enter_context(serving(options.contexts))
        outside = place._replace(command=(sys.executable, __file__, FORWARD, url))
        server: Any = Classes(classes_of(bundle))
        levels = [
            stack.enter_context(TestedLevel("onednn", place, proof)),
            stack.enter_context(TestedLevel("http", outside, server)),
        ]
        interrupted = loaded(levels, plan, Silent())
        found = recorded(prepared, place, levels, created, interrupted)
        render(found)
        return store.save(found, Path(options.out))


def main() -> None:
    """Measure, or be the process of a level."""
    if sys.argv[1:2] == [FORWARD]:
        forward(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", default="20,50", help="requests a second, with commas")
    parser.add_argument("--latency", type=float, default=100.0, help="milliseconds to hold")
    parser.add_argument("--percentile", type=float, default=99.0)
    parser.add_argument("--contexts", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", default="runs", help="folder of the record")
    print(f"record: {measure(parser.parse_args())}")


if __name__ == "__main__":
    main()
