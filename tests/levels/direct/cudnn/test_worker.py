"""The worker of `cudnn`: the protocol, and no framework in its process. On a GPU only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from golow.levels.direct.cudnn.level import probe
from golow.records.workload import Mode
from support.workers.conversation import Conversation
from support.workers.gpu_subjects import ON_GPU, gpu_subject
from support.workers.workers_kept import kept_loaded

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not probe().available, reason="the level cudnn cannot run here"),
]
WORKERS = [("cudnn", "infer", "ieee"), ("cudnn", "train", "ieee"), ("cudnn", "train", "bf16")]

IMPORTED = """
import sys
from pathlib import Path
from golow.levels.direct.cudnn.run.program import CuDnn
CuDnn(Path({cache!r}), autotune=True).load(Path({bundle!r}))
wrong = [m for m in sys.modules if m.partition(".")[0] in ("torch", "psutil", "scipy")]
assert not wrong, wrong
"""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cudnn")


@pytest.fixture(scope="module")
def conversation(
    request: pytest.FixtureRequest, workshop: Path
) -> Iterator[Callable[[], Conversation]]:
    with kept_loaded(gpu_subject(workshop, *request.param)) as loaded:
        yield loaded


@pytest.mark.parametrize("conversation", WORKERS, indirect=True, ids="-".join)
@pytest.mark.parametrize("check", ON_GPU, ids=lambda check: check.__name__)
def test_a_worker_conforms(
    conversation: Callable[[], Conversation], check: Callable[[Conversation], None]
) -> None:
    check(conversation())


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_there_is_no_torch_in_the_worker(mode: Mode, workshop: Path) -> None:
    """Neither as a Python module, while engines are built and timed too, nor as a library."""
    subject = gpu_subject(workshop, "cudnn", mode, "ieee")
    code = IMPORTED.format(cache=subject.command[-1], bundle=str(subject.bundle.folder))
    environment = {**os.environ, **subject.environment}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    with Conversation(subject) as worker:
        worker.load()
        worker.time(2, 0)
        maps = Path(f"/proc/{worker.process.pid}/maps").read_text()
    assert "libcudnn" in maps
    assert not [word for word in ("libtorch", "libc10", "/torch/lib") if word in maps]
