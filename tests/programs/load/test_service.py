"""A service that is loaded from outside by HTTP: the server of the example, and servers of these
tests that answer in the other form, or wrongly."""

from __future__ import annotations

import io
import json
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import golow
from golow.models.resnet import resnet18
from golow.programs.load.proof import Proof
from golow.programs.load.samples import Samples, samples_of
from golow.programs.load.service import CLASS, OUTPUT, Service
from golow.programs.load.service_address import require_url
from golow.programs.load.service_answers import ServiceProof
from golow.records.errors import GolowError
from golow.storage.scratch import scratch_folder
from golow.workload.bundle import write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.command import golow as command
from support.places import ROOT

pytestmark = pytest.mark.usefixtures("forked")

LONG = 10.0  # seconds


class Handler(BaseHTTPRequestHandler):
    """Answers with the first number of each row as its class, or with twice the rows as an array;
    a negative number is an error."""

    def do_POST(self) -> None:
        rows = np.load(io.BytesIO(self.rfile.read(int(self.headers["Content-Length"]))))
        bad, data = bool((rows < 0).any()), io.BytesIO()
        if self.path == "/rows":
            np.save(data, 2 * rows)
        else:
            classes = {"classes": rows[:, 0].astype(int).tolist()}
            data.write(json.dumps({"error": "bad"} if bad else classes).encode())
        self.send_response(400 if bad else 200)
        self.send_header("Content-Length", str(len(data.getvalue())))
        self.end_headers()
        self.wfile.write(data.getvalue())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Staying(Handler):
    """Keeps connections open, but for every other request, before which it closes them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        super().do_POST()
        self.close_connection = True  # without telling


@contextmanager
def serving(handler: type[Handler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


ROWS = Samples([torch.tensor([[3.0, 1.0], [5.0, 1.0], [7.0, 1.0], [-1.0, 1.0]])])


@pytest.mark.parametrize("handler", [Handler, Staying])
def test_each_sample_is_answered_with_its_class(handler: type[Handler]) -> None:
    with serving(handler) as url:
        service = Service(url, LONG, ROWS, ())
        service.warm_up()
        for _ in range(2):
            found = service.run(service.assemble([2, 0]))
            assert service.answers(found, [2, 0]) == [
                CLASS + struct.pack("<q", 7),
                CLASS + struct.pack("<q", 3),
            ]
        with pytest.raises(ValueError, match="the service answered 400"):
            service.run(service.assemble([3]))


def test_each_sample_is_answered_with_its_row() -> None:
    with serving(Handler) as url:
        service = Service(f"{url}/rows", LONG, ROWS, ())
        found = service.run(service.assemble([1]))
    assert service.answers(found, [1]) == [OUTPUT + np.array([10.0, 2.0], np.float32).tobytes()]
    with pytest.raises(ValueError, match="answered 1 of 2 samples"):
        service.answers(found, [1, 2])


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://host", "http://", "http://host:port"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(GolowError, match="is not the address of a service"):
        require_url(address)


def test_a_wrong_or_missing_answer_is_found(tmp_path: Path) -> None:
    bundle, _ = write_bundle(prepare(Request("mlp", batch=4)), tmp_path / "bundle")
    samples = samples_of(bundle)
    with scratch_folder() as folder, torch.inference_mode():
        proof = Proof(bundle, folder)
        judge = ServiceProof(proof)
        classes = [proof.classes_of(index)[0] for index in range(judge.count)]
        right = [(n, CLASS + struct.pack("<q", one)) for n, one in enumerate(classes)]
        assert judge.judge(right).verdict == "match"
        assert "missing" in judge.judge(right[:-1]).reason
        wrong = (1, CLASS + struct.pack("<q", classes[1] + 1))
        assert "sample 1 is of class" in judge.judge([right[0], wrong, *right[2:]]).reason
        from golow.levels.torch import bundle as torch_bundle

        rows = torch_bundle.module(bundle)(*samples.tensors)
        outputs = [(n, OUTPUT + row.numpy().tobytes()) for n, row in enumerate(rows)]
        assert judge.judge(outputs).verdict == "match"
        outputs[3] = (3, outputs[4][1])
        assert judge.judge(outputs).verdict == "differs"


@pytest.mark.slow
def test_a_service_that_is_not_there_is_told(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_loadgen", reason="needs MLPerf's LoadGen")
    with serving(Handler) as url:
        gone = url  # nothing listens there any more, below
    ended = command("load", "mlp", "--url", gone, "--rate", "5", folder=tmp_path)
    assert ended.status == 1
    assert "does not answer: Connection refused" in " ".join(ended.output.split())
    ended = command("load", "mlp", "--url", "somewhere", "--rate", "5", folder=tmp_path)
    assert ended.status == 2
    assert "--url http://localhost:8000" in ended.error


@pytest.mark.slow
def test_the_server_of_the_example_is_loaded_beside_the_same_plan(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_loadgen", reason="needs MLPerf's LoadGen")
    server, weights = ROOT / "examples" / "serve_resnet.py", tmp_path / "weights.safetensors"
    save_file(resnet18().state_dict(), weights)
    with subprocess.Popen(
        [sys.executable, "-u", str(server), "--port", "0", "--weights", str(weights)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://\S+", process.stdout.readline())
            assert address
            found = golow.load_test(
                "resnet18",
                resolution=64,
                weights=weights,
                levels=["direct"],
                url=address[0],
                scenarios=["single-stream", "server"],
                rates=[10],
                max_batch=2,
                contexts=2,
                seconds=0.5,
                repeats=1,
                threads=1,
                quiet=True,
            ).test
        finally:
            process.kill()
    assert [level.label for level in found.levels] == ["onednn x2", "http x2"]
    for level in found.levels:
        assert level.check.verdict == "match", level.check.reason
        assert not level.failed, [run.reason for run in level.runs]
        assert all(run.latencies for run in level.runs)
    assert any("the service at http://127.0.0.1" in note for note in found.levels[1].notes)
