"""``golow build`` and ``golow run``, as they are typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from golow.artifact.loading import load_compiled
from support.workers.forked_workers import fork_commands

pytestmark = [pytest.mark.usefixtures("forked_commands"), pytest.mark.slow]


def golow(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "golow", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def built(forked: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("built") / "lenet5.golow"
    with pytest.MonkeyPatch.context() as patch:
        fork_commands(patch)
        answer = golow("build", "lenet5", "--batch", "1,4", "--threads", 1, "--out", file)
    assert answer.returncode == 0, answer.stderr
    assert f"golow run {file} --check --time" in answer.stdout
    return file


def test_a_built_model_runs_on_inputs_from_a_file(built: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3, 1, 28, 28), np.float32)
    save_file({"0": x}, tmp_path / "x.safetensors")
    out = tmp_path / "y.safetensors"
    answer = golow(
        "run", built, "--input", tmp_path / "x.safetensors", "--out", out, "--check", "--time"
    )
    assert answer.returncode == 0, answer.stderr
    assert "per call at batch 3, median of" in answer.stdout
    assert answer.stdout.rstrip().endswith("match")
    assert np.array_equal(load_file(out)["0"], load_compiled(built)(x))


def test_other_weights_do_not_pass_the_check(built: Path, tmp_path: Path) -> None:
    weights = load_compiled(built).manifest.weights
    arrays = {name: np.ones(form.shape, form.dtype) for name, form in weights.items()}
    save_file(arrays, tmp_path / "ones.safetensors")
    answer = golow("run", built, "--weights", tmp_path / "ones.safetensors", "--check")
    assert answer.returncode == 1
    assert "too far\ndiffers" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "FILE"), "there is nothing to do"),
        (("run", "FILE", "--input", "WRONG"), "there is nothing to do"),
        (("run", "FILE", "--out", "y"), "--out needs --input"),
        (("run", "FILE", "--check", "--threads", "1000000000"), "hardware threads"),
        (("run", "FILE", "--input", "WRONG", "--time"), "images\n  name its tensors so, or by"),
        (("run", "FILE", "--input", "none", "--out", "y"), "none cannot be read"),
        (("run", "none", "--check"), "there is no file none"),
        (("run", "WRONG", "--check"), "is not a complete golow artifact"),
        (("build", "lenet5", "--batch", "1,x", "--out", "y"), "is not a list of whole numbers"),
        (("build", "lenet5", "--batch", "0", "--out", "y"), "a batch of 0"),
        (
            ("build", "lenet5", "--level", "eager", "--out", "y"),
            "builds nothing that could be kept\n"
            "  levels are onednn, onnxruntime, openvino, executorch, aotinductor.",
        ),
        (
            ("build", "lenet5", "--level", "openvino", "--batch", "1,2", "--out", "y"),
            "a single size",
        ),
        (("build", "lenet5", "--out", "none/y"), "there is no folder none"),
        (("build", "lenet5", "--precision", "bf16", "--out", "y"), "files for a CPU"),
        (("build", "lenet5", "--level", "cudnn", "--out", "y"), "files for a CPU"),
        # found before the model is built: there is none
        (("build", "none", "--out", "/proc/y"), "/proc/y cannot be written: "),
        (("build", "none", "--level", "aotinductor", "--out", "/proc/y"), "/proc/y cannot be writ"),
        (("emit", "none", "--out", "/proc/y"), "/proc/y cannot be written: "),
        (("emit", "none", "--out", "/proc"), "/proc is not empty and is not a project that"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    built: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    wrong = tmp_path / "wrong.safetensors"
    save_file({"y": np.ones(3)}, wrong)
    names = {"FILE": built, "WRONG": wrong}
    answer = golow(*(names.get(item, item) for item in arguments))
    assert answer.returncode == 2, answer.stdout
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    "level",
    [
        "onnxruntime",
        "openvino",
        pytest.param("aotinductor", marks=pytest.mark.whole_network),
    ],
)
def test_the_model_of_another_runtime_is_kept_and_loads(level: str, tmp_path: Path) -> None:
    pytest.importorskip({"aotinductor": "torch"}.get(level, level))
    out = tmp_path / "kept"
    answer = golow("build", "mlp", "--batch", 2, "--level", level, "--out", out)
    assert answer.returncode == 0, answer.stderr
    program = (out / "load_model.py").read_text()
    assert len(program.splitlines()) <= 7
    (out / "prints.py").write_text(f"{program}print([item.shape for item in outputs])")
    ran = subprocess.run(
        [sys.executable, "prints.py"],  # a new interpreter: the lines import all that they need
        cwd=out,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "2, 10" in ran.stdout
    again = golow("build", "mlp", "--level", level, "--out", out)
    assert (again.returncode, "exists" in again.stderr) == (2, True)
