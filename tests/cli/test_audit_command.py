"""``golow audit`` as a user meets it: a whole audit, faults of alternatives, mistakes, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import golow
from golow import cli
from golow.levels.choices import all_choices, allocator
from golow.programs.auditing import candidates, store
from golow.programs.auditing.audit_record import AuditedLevel, Price
from golow.programs.auditing.observer import SilentAudit
from golow.records.errors import GolowError
from golow.report.audit.progress import AuditProgressDisplay
from support.command import Ended
from support.command import golow as command_here
from support.processes import all_gone, family
from support.workers.forked_workers import ForkServer, forked_workers

pytestmark = pytest.mark.slow

AUDIT = ("mlp", "--mode", "train", "--batch", "2", "--threads", "1", "--levels", "eager")
# In inference a worker imports less, and has no optimizer.
SMALL = ("mlp", "--batch", "2", "--threads", "1", "--levels", "eager,torchscript")
FEW = ("allocator", "optimizer_kernels")  # so that these tests stay quick when choices are added
GOLOW = f"""
from golow.programs.auditing import candidates
every = candidates.all_choices()
candidates.all_choices = lambda: [choice for choice in every if choice.name in {FEW}]
from golow.__main__ import main
main()
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", GOLOW, *arguments]


def run(folder: Path, *arguments: str) -> Ended:
    few = [choice for choice in all_choices() if choice.name in FEW]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "all_choices", lambda: few)
        return command_here(*arguments, folder=folder)


# ---------------------------------------------------------------- a whole audit


@pytest.fixture(scope="module")
def written(
    fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Ended]:
    """The folder of an audit's record, and what the command said."""
    folder = tmp_path_factory.mktemp("audit")
    options = ("--seconds", "0.2", "--quick", "--apply", "best", "--json", "a.json")
    with forked_workers(fork_server):
        done = run(folder, "audit", *AUDIT, *options)
    assert done.status == 0, done.error
    [saved] = (folder / "runs").iterdir()
    return saved, done


def test_an_audit_is_shown_and_saved(
    written: tuple[Path, Ended],
) -> None:
    folder, done = written
    found = store.load(folder)
    [level] = found.levels
    values = {one.choice: one.value for one in level.in_force}
    assert values["allocator"] == allocator.RETURNS
    assert {"malloc_keep", "fused_sgd"} <= {price.alternative for price in level.prices}
    assert all(price.verdict == "match" for price in level.prices if price.choice == "allocator")
    assert found.quick and not found.interrupted
    for price in level.prices:
        assert price.choice in done.output and f"+{price.alternative}" in done.output
    assert max(map(len, done.output.splitlines())) <= 100
    assert f"record: {Path('runs') / folder.name}" in done.output
    names = {file.name for file in folder.iterdir()}
    assert {"audit.json", "choices.csv", "effects.svg", "000-eager.json"} <= names
    whole = json.loads((folder.parent.parent / "a.json").read_bytes())
    assert whole["levels"][0]["run"]["level"] == "eager"


def test_progress_has_stages_and_the_time_that_is_left(
    written: tuple[Path, Ended],
) -> None:
    _, done = written
    assert "eager (1 of 1): reading the settings in effect" in done.error
    assert "about " in done.error and " left" in done.error


def test_show_prints_the_same_tables(
    written: tuple[Path, Ended],
) -> None:
    folder, done = written
    shown = run(folder, "show", str(folder))
    assert shown.status == 0, shown.error
    lines = [line for line in done.output.splitlines() if not line.startswith("record: ")]
    assert [line for line in lines if not line.startswith("There is no best")] == (
        shown.output.splitlines()
    )


# ---------------------------------------------------------------- alternatives with a fault

HOOKS = {
    "a crash": "import os\nos.abort()\n",
    "no memory": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\n",
}


@pytest.fixture(params=HOOKS)
def faulty(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `malloc_keep` does to its worker from now on, when its Python starts."""
    few = [one for one in all_choices() if one.name in ("allocator", "memory_format")]
    monkeypatch.setattr(candidates, "all_choices", lambda: few)
    (tmp_path / "sitecustomize.py").write_text(HOOKS[request.param])
    path = os.pathsep.join([str(tmp_path), str(Path(golow.__file__).parent.parent)])
    monkeypatch.setitem(allocator.KEEP, "PYTHONPATH", path)
    return str(request.param)


@pytest.mark.usefixtures("forked")
def test_a_fault_of_an_alternative_is_its_row(
    faulty: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = golow.audit(
        "mlp",
        levels=["eager"],
        batch=2,
        threads=1,
        quick=True,
        seconds=0.05,
    )
    [level] = result.audit.levels
    assert level.run.check.verdict == "match" and level.run.time is not None
    broken = the_price(level)
    assert broken.run.check.verdict == "failed" and broken.run.check.reason
    assert broken.effect is None and broken.finding == "unclear"
    others = [price for price in level.prices if price.verdict == "match"]
    assert others and all(price.run.time is not None for price in others)
    result.table()
    assert "malloc_keep: failed: " in capsys.readouterr().out


def the_price(level: AuditedLevel) -> Price:
    return next(price for price in level.prices if price.alternative == "malloc_keep")


# ---------------------------------------------------------------- an error later on


class Failing(SilentAudit):
    """An observer whose disk is full when the second level begins."""

    def stage(self, text: str) -> None:
        if text.startswith("torchscript (2 of 2)"):
            raise GolowError("the disk is full", "free some space.")


@pytest.mark.usefixtures("forked")
def test_an_error_at_the_second_level_shows_and_saves_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AuditProgressDisplay, "stage", Failing().stage)
    monkeypatch.setattr(candidates, "all_choices", list)
    monkeypatch.setattr("golow.commands.keeping.find_spec", lambda _: None)  # draws no figures
    ended = command_here("audit", *SMALL, "--quick", "--seconds", "0.05", folder=tmp_path)
    assert ended.status == 2
    assert "golow: the disk is full" in ended.error and "\neager: " in ended.output
    [folder] = (tmp_path / "runs").iterdir()
    assert f"record: runs/{folder.name}" in ended.output
    assert [level.level for level in store.load(folder).levels] == ["eager"]


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mlp", "--levels", "eagre"), "did you mean eager"),
        (("mlp", "--levels", "eager+nothing"), "has no choice 'nothing'"),
        (("mlp", "--levels", ""), "names nothing"),
        (("mlp", "--seconds", "-1"), "use --seconds 5 or so."),
        (("mlp", "--seconds", "nan"), "use --seconds 5 or so."),
        (("mlp", "--apply", "worst"), "use --apply best."),
        (("mlpp",), "did you mean mlp"),
        (("mlp", "--out", "/dev/null/runs"), "--out"),
        (("mlp", "--json", "nowhere/a.json"), "there is no folder nowhere"),
        (("mlp", "--json", "/proc/a.json"), "/proc/a.json cannot be written"),
        (("mlp", "--report", "/proc/a/b.html"), "/proc/a/b.html cannot be written"),
        (("mlp", "--report", "/proc"), "name a file in it: /proc/report.html"),
    ],
)
def test_a_mistake_is_explained(
    arguments: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["golow", "audit", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert said in capsys.readouterr().err


# ---------------------------------------------------------------- Ctrl-C


@pytest.mark.usefixtures("forked_commands")
@pytest.mark.parametrize(
    ("at", "kept"),
    [("eager (1 of 2): reading", []), ("torchscript (2 of 2)", ["eager"])],
    ids=["before the first race", "after the first level"],
)
def test_an_interrupt_shows_and_saves_what_is_there(
    at: str, kept: list[str], tmp_path: Path
) -> None:
    arguments = command("audit", *SMALL, "--quick", "--seconds", "0.2")
    with subprocess.Popen(
        arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if line.startswith(at):
                break
        workers = family(child.pid)
        child.send_signal(signal.SIGINT)
        output, error = child.communicate(timeout=120)
    assert child.returncode == 130, error
    assert "golow: interrupted" in error
    assert all_gone(*workers)
    if not kept:
        assert not output and not [*tmp_path.glob("runs/*")]
        return
    assert "interrupted: partial results" in output and "\neager: " in output
    [folder] = (tmp_path / "runs").iterdir()
    found = store.load(folder)
    assert found.interrupted and [level.level for level in found.levels] == kept


class Impatient(SilentAudit):
    """Ctrl-C after two rounds of the first race."""

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        if rounds == 2:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("forked")
def test_an_interrupt_in_the_first_race_keeps_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [choice for choice in all_choices() if choice.name in FEW]
    monkeypatch.setattr(candidates, "all_choices", lambda: few)
    with pytest.raises(golow.AuditInterrupted) as stopped:
        golow.audit("mlp", batch=2, threads=1, levels=["eager"], quick=True, observer=Impatient())
    [level] = stopped.value.result.audit.levels
    assert level.run.time is not None
    assert level.prices and all(price.finding == "unclear" for price in level.prices)
