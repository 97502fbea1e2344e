"""Hostile inputs: golow answers each with a message, soon, in little memory, and runs no code from
data. `benchmarks/hostile_inputs.py` takes thousands of them; here are a few of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.case import Case, Outcome, faults
from hostile.datasets import write_published
from hostile.kinds import KINDS, run_kind
from hostile.records import comparison_tree, write
from hostile.runner import Runner, warm_runner

SEED, SECONDS = 7, 20.0


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with warm_runner(tmp_path_factory.mktemp("cache")) as process:
        yield process


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_input_gets_a_message(kind: str, runner: Runner, tmp_path: Path) -> None:
    numbers = range(1 if kind == "comparing" else 3)
    for taken in run_kind(kind, numbers, SEED, runner, tmp_path, SECONDS):
        assert not taken.faults, (taken.name, taken.case, taken.outcome.error[-2000:])


# ---------------------------------------------------------------- planted faults


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("1 / 0", "a traceback"),
        ("import sys; sys.exit(2)", "no message"),
        ("import sys; print('all is well'); sys.exit(0)", "status 0, not 2"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "status -9, not 2"),
        ("print('\\x1b[31mred'); raise SystemExit(2)", "raw control characters"),
        ("open('code-ran', 'w')", "it ran code from the file"),
        ("open('a.html', 'w').write('<script>alert(1)')", "unescaped HTML in a.html"),
        ("kept = bytearray(5 << 30)", "a traceback"),
    ],
)
def test_a_planted_fault_is_found(code: str, fault: str, runner: Runner, tmp_path: Path) -> None:
    case = Case(title="planted", folder=str(tmp_path), code=code)
    found = faults(case, runner.run(case, SECONDS))
    assert any(fault in words for words in found), found


@pytest.mark.slow
def test_a_planted_hang_is_found(runner: Runner, tmp_path: Path) -> None:
    case = Case(title="hangs", folder=str(tmp_path), code="import time; time.sleep(60)")
    assert faults(case, runner.run(case, seconds=1.0)) == ["it hangs: not done after 1 s"]


@pytest.mark.slow
def test_a_command_with_a_planted_fault_is_found(runner: Runner, tmp_path: Path) -> None:
    """The same command: first it works, then a function under it fails."""
    command = "import sys, golow.cli\nsys.argv = ['golow', 'show', '.']\ngolow.cli.main()\n"
    plant = "from golow.report import record_kinds\nrecord_kinds.no_record = None\n"
    case = Case(title="as it is", folder=str(tmp_path), code=command)
    planted = Case(title="planted", folder=str(tmp_path), code=plant + command)
    assert faults(case, runner.run(case)) == []
    assert "a traceback" in faults(planted, runner.run(planted))


def test_too_much_memory_is_found(tmp_path: Path) -> None:
    case = Case(title="large", folder=str(tmp_path))
    outcome = Outcome(status=2, seconds=1.0, peak_bytes=5 << 30, output="", error="golow: no")
    assert faults(case, outcome) == ["5.0 GiB of memory"]


# ---------------------------------------------------------------- own words

FOLDER = "is a folder, not a file"
NOT_UTF8 = "is not UTF-8 text: byte 0xff in line 2"
STREAM = "- means standard output, but this option writes files"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("show folder", f"folder/comparison.json {FOLDER}"),
        ("train --resume training", f"training/plan.json {FOLDER}"),
        ("study run folder.toml", f"folder.toml {FOLDER}"),
        ("lower folder.py:Net --input 8", f"folder.py {FOLDER}"),
        ("lower folder.pt2 --input 8", f"folder.pt2 {FOLDER}"),
        ("emit mlp --out project --weights folder.safetensors", f"folder.safetensors {FOLDER}"),
        ("compare mlp --json folder", f"folder {FOLDER}"),
        ("compare mlp --json nowhere/file", "there is no folder nowhere"),
        ("study export study --to folder", f"folder {FOLDER}"),
        ("data verify voc2012 --data-root latin.py", "latin.py is a file, not a folder"),
        ("train mlp --dataset folder:latin.py", "latin.py is not a folder"),
        ("show latin", f"latin/comparison.json {NOT_UTF8}"),
        ("train --resume plan", f"plan/plan.json {NOT_UTF8}"),
        ("study run latin.toml", f"latin.toml {NOT_UTF8}"),
        ("lower latin.py:Net --input 8", f"latin.py {NOT_UTF8}"),
        ("compare mlp --out -", f"--out {STREAM}"),
        ("emit mlp --out -", f"--out {STREAM}"),
        ("train mlp --dataset digits --out -", f"--out {STREAM}"),
        ("train mlp --dataset digits --figures -", f"--figures {STREAM}"),
        ("train mlp --dataset digits --tensorboard -", f"--tensorboard {STREAM}"),
        ("study run quick --out -", f"--out {STREAM}"),
        ("study export study --to -", f"--to {STREAM}"),
        ("study figures study --out -", f"--out {STREAM}"),
        ("compare mlp -o -", "No such option: -o"),
        ("emit mlp --out /dev/null/x", "/dev/null/x cannot be written: Not a directory"),
    ],
)
def test_own_words(arguments: str, words: str, runner: Runner, tmp_path: Path) -> None:
    for name in ("folder/comparison.json", "training/plan.json", "folder.toml", "folder.py"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("folder.pt2", "folder.safetensors", "latin", "plan", "study"):
        (tmp_path / name).mkdir()
    for name in ("latin/comparison.json", "plan/plan.json", "latin.toml", "latin.py"):
        (tmp_path / name).write_bytes(b'{"a":\n"\xff"}')
    (tmp_path / "study" / "study.toml").write_text("")
    case = Case(title="", folder=str(tmp_path), arguments=tuple(arguments.split()), says=words)
    outcome = runner.run(case)
    assert faults(case, outcome) == [], outcome.error


@pytest.mark.parametrize("name", ["mnist", "cifar10", "stl10", "voc2012"])
@pytest.mark.parametrize("command", ["train mlp --resolution 8 --dataset", "data verify"])
def test_a_data_set_without_permission(
    command: str, name: str, runner: Runner, tmp_path: Path
) -> None:
    """The user may not look into the publisher's folder."""
    write_published(name, tmp_path)
    inside = next(path for path in tmp_path.iterdir() if path.is_dir())
    deepest = inside / "raw" if name == "mnist" else inside
    deepest.chmod(0)
    case = Case(
        title="",
        folder=str(tmp_path),
        arguments=(*command.split(), name, "--data-root", "."),
        says="Permission denied",
        without_power=True,
    )
    outcome = runner.run(case)
    deepest.chmod(0o755)
    assert faults(case, outcome) == [], outcome.error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--time-limit inf", "a time limit of inf s is not allowed"),
        ("--interval nan", "an interval of nan is not allowed"),
        ("--weight-decay 1e400", "--weight-decay inf is not a finite number"),
    ],
)
def test_a_comparison_takes_finite_numbers(
    option: str, words: str, runner: Runner, tmp_path: Path
) -> None:
    arguments = ("compare", "mlp", "--mode", "train", *option.split())
    case = Case(title="", folder=str(tmp_path), arguments=arguments, says=words)
    outcome = runner.run(case)
    assert faults(case, outcome) == [], outcome.error


@pytest.mark.slow
def test_a_name_in_a_record_cannot_steer_the_terminal(runner: Runner, tmp_path: Path) -> None:
    whole = comparison_tree(True)
    index = whole["comparison.json"].replace(b'"resnet50"', b'"\\u001b[31mresnet50"')
    assert index != whole["comparison.json"]
    write(whole | {"comparison.json": index}, tmp_path / "it")
    case = Case(title="", folder=str(tmp_path), arguments=("show", "it"), statuses=(0,))
    outcome = runner.run(case)
    assert faults(case, outcome) == []
    assert "\\x1b[31mresnet50, inference" in outcome.output


def test_no_case_leaves_a_process(runner: Runner, tmp_path: Path) -> None:
    code = "import os, time\nif not os.fork(): time.sleep(60)\nprint('left'); raise SystemExit(2)"
    case = Case(title="forks", folder=str(tmp_path), code=code)
    assert faults(case, runner.run(case)) == []
    running = Path("/proc").glob("[0-9]*/cwd")
    assert not [link for link in running if _leads_to(link, tmp_path)]


def _leads_to(link: Path, folder: Path) -> bool:
    try:
        return link.readlink() == folder
    except OSError:
        return False
