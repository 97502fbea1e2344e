"""Every file in examples/ is run, as a user runs it, in a process of its own."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from golow.models.resnet import resnet18
from support.one_run import program_cache
from support.places import ROOT, WORKERS
from support.processes import on_one_core

EXAMPLES = ROOT / "examples"

SCRIPTS = ("compare_in_a_notebook.py", "own_model.py", "own_training_loss.py")
BLOCKS = "blocks.py"
SERVER = "serve_resnet.py"
STEP = "train_step.py"
OWN_RUNTIME = ("own_runtime/README.md", "own_runtime/linear.py")
OLDER = ("mxnet_worker.py", "chainer_worker.py")
OLDER_FRAMEWORKS = {
    f"older_frameworks/{name}" for name in ("README.md", "graph_program.py", *OLDER)
}
ENVIRONMENTS = "GOLOW_OLDER_FRAMEWORKS"


@on_one_core()
def run(command: Sequence[str | Path], folder: Path) -> str:
    """What the command prints to standard output; it must end well."""
    # The golow of this environment, also where it is not on the path.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PATH": path, "GOLOW_CACHE": str(program_cache(folder.parent))},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def verdict(level: str, printed: str) -> str:
    """The level's verdict in the table."""
    found = re.search(rf"^ {level} +(\w+) ", printed, re.MULTILINE)
    assert found, printed
    return found.group(1)


def test_every_example_is_run() -> None:
    files = {
        str(file.relative_to(EXAMPLES))
        for file in EXAMPLES.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert files == {*SCRIPTS, *OWN_RUNTIME, *OLDER_FRAMEWORKS, BLOCKS, SERVER, STEP}


@pytest.mark.whole_network
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs(name: str, tmp_path: Path) -> None:
    printed = run([sys.executable, EXAMPLES / name], tmp_path)
    assert verdict("eager", printed) == verdict("torchscript", printed) == "match"


@pytest.mark.slow
def test_a_network_is_trained_in_a_loop_of_its_own(tmp_path: Path) -> None:
    printed = run([sys.executable, EXAMPLES / STEP], tmp_path)
    losses = [float(text) for text in re.findall(r"loss (\d\.\d+),", printed)]
    assert len(losses) == 6
    assert losses[-1] < losses[0] / 2
    last = re.search(r"PyTorch went on at a loss of (\d\.\d+)", printed)
    assert last
    assert float(last.group(1)) < losses[-1] * 1.2


@pytest.mark.whole_network
@pytest.mark.parametrize(
    ("block", "size"), [("ConvNeXtBlock", "96x8x8"), ("TransformerBlock", "5x192")]
)
def test_a_block_is_compared(block: str, size: str, tmp_path: Path) -> None:
    model = f"{EXAMPLES / BLOCKS}:{block}"
    options = [
        "--input",
        size,
        "--batch",
        "2",
        "--levels",
        "eager,torchscript",
        "--time-limit",
        "1",
    ]
    printed = run(["golow", "compare", model, *options], tmp_path)
    assert verdict("eager", printed) == verdict("torchscript", printed) == "match"


@pytest.mark.slow
def test_the_own_runtime_runs_as_its_page_says(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path / "examples" / "own_runtime"
    shutil.copytree(EXAMPLES / "own_runtime", folder)
    shutil.copytree(WORKERS, tmp_path / WORKERS.relative_to(ROOT))
    page = (folder / "README.md").read_text()
    [commands] = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    printed = run(["bash", "-euo", "pipefail", "-c", commands], folder)
    assert verdict("tiny", printed) == "match"


@pytest.mark.whole_network
@pytest.mark.skipif(ENVIRONMENTS not in os.environ, reason="no environments of older frameworks")
@pytest.mark.parametrize("model", ["alexnet", "vgg19", "resnet50", "mobilenet_v1"])
def test_older_frameworks_train_the_same_networks(model: str, tmp_path: Path) -> None:
    options: list[str] = []
    for file in OLDER:
        name = file.partition("_")[0]
        python = Path(os.environ[ENVIRONMENTS], f"{name}-env", "bin", "python").absolute()
        worker = EXAMPLES / "older_frameworks" / file
        options += ["--worker", f"{name}=env PYTHONPATH={ROOT / 'src'} {python} {worker}"]
    size = ["--batch", "2", "--resolution", "64", "--time-limit", "1"]
    levels = ["--mode", "train", "--levels", "eager,libtorch"]
    printed = run(["golow", "compare", model, *levels, *size, *options], tmp_path)
    assert verdict("mxnet", printed) == verdict("chainer", printed) == "match"


@pytest.mark.slow
def test_the_server_answers_several_at_once_and_says_what_does_not_fit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, example = resnet18().eval(), torch.randn(8, 3, 64, 64)
    pictures = example.numpy()
    command = [sys.executable, str(EXAMPLES / SERVER), "--port", "0"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "GOLOW_CACHE": str(program_cache(tmp_path.parent))},
    ) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().split()[0]
            with ThreadPoolExecutor(4) as threads:
                parts = [pictures[k : k + 1 + k % 5] for k in range(4)]
                answers = list(threads.map(partial(asked, address), parts))
            for part, answer in zip(parts, answers, strict=True):
                wanted = module(torch.from_numpy(part)).argmax(1).tolist()
                assert answer == (200, {"classes": wanted})
            status, said = asked(address, pictures[:, :2])
            assert status == 400
            assert "input 0 is 8x2x64x64; this was compiled for batches" in said["error"]
        finally:
            server.send_signal(signal.SIGINT)
        assert server.communicate(timeout=30)[0] == "ended\n"
    assert server.returncode == 0


def asked(address: str, array: np.ndarray) -> tuple[int, Any]:
    """The server's status and answer for an array."""
    written = io.BytesIO()
    np.save(written, array)
    request = urllib.request.Request(address, data=written.getvalue())  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
