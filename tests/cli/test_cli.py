"""The command line as a user meets it: what it prints, its exit statuses, its errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from golow import cli
from golow.levels.ladder import LADDER
from golow.models import ZOO

pytestmark = pytest.mark.usefixtures("forked")


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of ``golow ARGUMENTS``."""
    monkeypatch.setattr(sys, "argv", ["golow", *arguments])
    try:
        cli.main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    output = capsys.readouterr()
    return status, output.out, output.err


@pytest.mark.parametrize(
    ("typed", "offered", "place"),
    [
        ("golow compare resn", {"resnet18", "resnet50"}, 2),
        ("golow compare lenet5 --levels eager,compile:m", {"eager,compile:max-autotune"}, 4),
        ("golow train lenet5 --dataset di", {"digits"}, 4),
        ("golow study run lev", {"levental-2020"}, 3),
        ("golow study show lev", {"levental-2020"}, 3),
    ],
)
def test_a_shell_is_offered_the_names(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    offered: set[str],
    place: int,
) -> None:
    environment = {
        "_GOLOW_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": f"{place}",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["golow"])
    with pytest.raises(SystemExit):
        cli.app(prog_name="golow")
    assert offered <= set(capsys.readouterr().out.split())


MISTAKES = [
    (["compare", "resnet51"], "resnet50"),
    (["compare", "lenet5", "--levels", "eagre"], "eager"),
    (["compare", "lenet5", "--levels", "eager:fast"], "channels_last"),
    (["compare", "lenet5", "--mode", "train", "--levels", "compile:freezing"], "infer only"),
    (["compare", "lenet5", "--batch", "0"], "--batch 1"),
    (["compare", "lenet5", "--resolution", "3"], "at least 12"),
    (["compare", "lenet5", "--input", "3xlarge"], "3x224x224"),
    (["compare", "lenet5", "--input", "1x28x28", "--resolution", "28"], "one of them"),
    (["compare", "lenet5", "--mode", "train", "--loss", "hope"], "cross_entropy"),
    (["compare", "lenet5", "--init", "magic"], "kaiming"),
    (["compare", "lenet5", "--weights", "weights.pt"], "safetensors"),
    (["compare", "lenet5", "--worker", "mine"], "NAME=COMMAND"),
    (["compare", "lenet5", "--worker", "mine=./a 'b"], "No closing quotation"),
    (["compare", "lenet5", "--worker", "mine=./no/program"], "./no/program is not a program"),
    (["compare", "lenet5", "--threads", "5000"], "more than"),
    (["compare", "lenet5", "--time-limit", "-1"], "--time-limit 60"),
    (["compare", "lenet5", "--columns", "sped"], "percentiles"),
    (["compare", "lenet5", "--fail-above", "5%"], "--against"),
    (["compare", "lenet5", "--levels", ","], "--levels ',' names nothing"),
    (["generate", "gpt2_small", "--levels", ""], "names nothing"),
    (["compare", "lenet5", "--loss", "mse_loss"], "add --mode train"),
    (["audit", "lenet5", "--learning-rate", "0.1"], "--learning-rate is for training steps"),
    (
        ["emit", "lenet5", "--optimizer", "adam", "--out", "x"],
        "add --mode train, or leave out --opt",
    ),
    (["compare", "lenet5", "--json", "-", "--format", "html"], "a file with --json"),
    (["compare", "lenet5", "--mode", "train", "--optimizer", "lion"], "adamw"),
    (["train", "lenet5", "--dataset", "digits", "--betas", "0.9"], "0.9,0.999"),
    (["compare", "nowhere.py:Net", "--input", "3x8x8"], "no file"),
    (["compare", "no_such_package.models:build", "--input", "3x8x8"], "cannot be imported"),
    (["compare", "lenet5", "--out", "/dev/null/runs"], "--out"),
    (["show", "nowhere"], "there is no file or folder nowhere"),
    (["lower", "lenet6"], "lenet5"),
    (["lower", "lenet5", "--precision", "int8"], "golow quantize MODEL --rule int8"),
    (["lower", "lenet5", "--precision", "int9"], "'int9' is not one of default"),
    (["profile", "lenet5", "--precision", "fp8-weights"], "take that file as --weights"),
    (["train", "lenet5", "--dataset", "digits", "--figures", "/dev/null/f"], "with --figures"),
    (["train", "lenet5", "--dataset", "digits", "--tensorboard", "/dev/null/f"], "--tensorboard"),
    (["generate", "gpt2_small", "--precision", "int8"], "needs samples of text"),
    (["build", "lenet5", "--precision", "int8", "--out", "x.golow"], "--calibrate digits"),
    (["build", "lenet5", "--threads", "0", "--out", "x.golow"], "use --threads 1 or more"),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES])
def test_a_mistake_is_explained(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, error = run(monkeypatch, capsys, *arguments)
    assert status == 2
    assert said in error
    assert "Traceback" not in error


def test_a_model_file_that_fails_shows_its_own_lines_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mynet.py"
    file.write_text("import torch\n\nwidth = 1 / 0\n")
    monkeypatch.chdir(tmp_path)
    status, _, error = run(monkeypatch, capsys, "compare", f"{file}:Net", "--input", "3x8x8")
    assert status == 2
    assert "width = 1 / 0" in error
    assert "ZeroDivisionError" in error
    assert "golow/source.py" not in error


@pytest.mark.slow
@pytest.mark.parametrize("command", ["levels", "models"])
def test_lists_answer_without_torch(command: str) -> None:
    code = f"import sys; sys.argv = ['golow', '{command}']\nfrom golow.cli import app\n"
    code += "try: app()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = [level.name for level in LADDER] if command == "levels" else list(ZOO)
    assert all(name in done.stdout for name in names)
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_the_doctor_names_every_level_and_the_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, output, _ = run(monkeypatch, capsys, "doctor")
    assert status == 0
    assert all(level.name in output for level in LADDER)
    assert "CPU" in output


def test_the_doctor_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its brackets, which a console may take for markup."""
    monkeypatch.setattr("golow.levels.direct.onednn.level.PACKAGE", "no-such-package")
    monkeypatch.setenv("COLUMNS", "40")
    status, output, _ = run(monkeypatch, capsys, "doctor")
    assert status == 0
    assert any(line.endswith("pip install 'golow[onednn]'") for line in output.splitlines())


@pytest.mark.parametrize(
    ("typed", "fact", "hint"),
    [
        (("run", "missing.golow"), "there is no file missing.golow", "golow build MODEL"),
        (("compare", "lenet5", "--life-rounds", "2"), "--life-rounds", "add --life"),
        (("compare", "mlp", "--interval", "5"), "an interval of 5.0", "--interval 0.02 for 2%"),
        (("study", "run", "levental-2020", "--jobs", "0"), "--jobs 0", "--jobs 1"),
        (("study", "run", "small", "--budget", "nan"), "--budget nan is not", "--budget 600"),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is_begun(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    typed: tuple[str, ...],
    fact: str,
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, error = run(monkeypatch, capsys, *typed)
    assert status == 2
    assert fact in error and hint in error
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


WITHOUT = "import sys; sys.modules[{name!r}] = None; from golow.__main__ import main; main()"


@pytest.mark.parametrize(("name", "status"), [("psutil", 2), ("golow.measure", 1)])
def test_a_missing_dependency_is_named_and_another_module_is_a_failure(
    name: str, status: int
) -> None:
    """As where only the packages of `golow run` are installed."""
    command = [sys.executable, "-c", WITHOUT.format(name=name), "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == status
    assert ("psutil is not installed" in done.stderr) == (status == 2)
    assert ("Traceback" in done.stderr) == (status == 1)


def test_the_doctor_says_how_to_install_a_missing_compiler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    status, output, _ = run(monkeypatch, capsys, "doctor")
    assert status == 0
    assert "apt-get install g++" in " ".join(output.split())


def test_lower_prints_the_graph_after_every_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, output, _ = run(monkeypatch, capsys, "lower", "lenet5", "--show")
    assert status == 0
    for stage in ("capture", "drop_identities", "eliminate_dead_code"):
        assert f"# after {stage}:" in output
    assert "conv1 = aten.conv2d.default(input_0" in output


@pytest.mark.slow
def test_compare_writes_json_alone_to_standard_output_and_keeps_the_record(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    arguments = ["lenet5", "--levels", "eager,torchscript", "--time-limit", "1", "--threads", "1"]
    monkeypatch.setattr(
        sys, "argv", ["golow", "compare", *arguments, "--out", str(tmp_path), "--json", "-"]
    )
    with pytest.raises(SystemExit) as end:
        cli.main()
    output = capfdbinary.readouterr()
    assert end.value.code == 0
    told = json.loads(output.out)
    assert [r["level"] for r in told["runs"]] == ["eager", "torchscript"]
    assert {r["check"]["verdict"] for r in told["runs"]} == {"match"}
    assert told["runs"][0]["conditions"]["threads"] == 1
    shown = output.err.decode()
    assert "over eager" in shown
    assert max(len(line) for line in shown.splitlines() if "torchscript" in line) <= 100
    [folder] = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert {p.name for p in folder.iterdir()} == {
        "comparison.json",
        "eager.json",
        "torchscript.json",
        "runs.csv",
    }
    monkeypatch.setattr(sys, "argv", ["golow", "show", str(folder)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    assert b"torchscript" in capfdbinary.readouterr().out


def test_a_current_folder_that_was_removed_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = f"import os; os.rmdir({str(gone)!r}); from golow.__main__ import main; main()"
    command = [sys.executable, "-c", code, "lower", "lenet5"]
    done = subprocess.run(command, cwd=gone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "golow: the current folder was removed\n  change to another: cd ~\n"
