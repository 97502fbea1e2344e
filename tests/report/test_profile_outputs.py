"""What a profile is written as: the command's files, the record, and tables."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from golow.levels import ladder
from golow.lower.analysis.arithmetic import LayerWork
from golow.measure.peak import Peak
from golow.programs.profiling import memory, store
from golow.programs.profiling.copies import CopyTime
from golow.programs.profiling.kernels import GpuSummary, KernelTime
from golow.programs.profiling.memory import Block, MemoryProfile
from golow.programs.profiling.operators import OperatorTime
from golow.programs.profiling.profile_record import Finding, LevelProfile, Profile
from golow.programs.profiling.summary import ROLES, Part
from golow.programs.profiling.timeline import TIMELINE
from golow.records.comparison import LayerTime
from golow.records.errors import GolowError
from golow.report.profiling.export import TABLES, Row, write_tables
from golow.storage.spreadsheet import FORMULA, to_csv
from support.command import golow
from support.examples import examples
from support.places import ROOT
from support.records.profiles import PROFILES, gpu_profiles, level, profile
from support.workers.forked_workers import fork_commands

pytestmark = [pytest.mark.usefixtures("forked"), pytest.mark.slow]

PAGE = ROOT / "docs" / "use" / "profile_export.md"
GPU = gpu_profiles()

# ---------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with ``out``, and what the command printed."""
    folder = tmp_path_factory.mktemp("written")
    vendor = ladder.choose("onednn", "infer").level.probe().available
    done = run(
        *("profile", "mlp", "--batch", "4", "--steps", "2", "--time-limit", "0.3", "--top", "2"),
        *("--threads", "1", "--levels", "eager,onednn" if vendor else "eager"),
        *("--save", "out"),
        folder=folder,
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_a_saved_profile_has_record_tables_figures_and_traces(written: tuple[Path, str]) -> None:
    folder, printed = written
    [found] = store.load(folder / "out")
    names = {file.name for file in (folder / "out").iterdir()}
    assert names == {
        "profile.json",
        *(f"{name}.csv" for name in ("summary", "operators", "kernels", "layers")),
        *(f"{name}.svg" for name in ("summary", "operators", "layers", "roofline")),
        *(f"memory-{one.level}.svg" for one in found.levels),
        *("arena-onednn.svg" for one in found.levels if one.level == "onednn"),
        *(one.trace for one in found.levels),
        TIMELINE,
    }
    assert "profile: out" in printed and "note" not in printed
    assert found.environment is not None and found.environment.versions["torch"]
    for one in found.levels:
        assert one.worst is not None and one.worst.passed
    rows = list(csv.DictReader((folder / "out" / "operators.csv").open(newline="")))
    assert len(rows) == sum(len(one.operators) for one in found.levels)
    assert float(rows[0]["self_host_seconds"]) == found.levels[0].operators[0].self_host


def test_show_divides_a_saved_profile_as_asked(written: tuple[Path, str]) -> None:
    folder, _ = written
    shown = golow("show", "out", "--by", "layer", folder=folder)
    assert shown.status == 0 and "By layer" in shown.output
    shown = golow("show", "out", "--sort", "calls", "--top", "1", folder=folder)
    [found] = store.load(folder / "out")
    more = len(found.levels[0].operators) - 1
    assert shown.status == 0 and f"and {more} more" in shown.output
    wrong = golow("show", "out", "--by", "beauty", folder=folder)
    assert wrong.status == 2 and "profiles have no view 'beauty'" in wrong.error


def test_without_matplotlib_the_rest_is_written_and_a_line_says_what_to_install(
    tmp_path: Path,
) -> None:
    done = run(
        *("profile", "mlp", "--batch", "1", "--steps", "1", "--time-limit", "0.1"),
        *("--threads", "1", "--levels", "eager", "--save", "out"),
        folder=tmp_path,
        without="matplotlib",
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'golow[figures]'" in done.stdout
    assert (tmp_path / "out" / "summary.csv").is_file()
    assert not list((tmp_path / "out").glob("*.svg"))


def run(*arguments: str, folder: Path, without: str = "") -> subprocess.CompletedProcess[str]:
    """golow in that folder; without: a package that it cannot find."""
    code = "import sys, importlib.util as util; found = util.find_spec; "
    code += f"util.find_spec = lambda name, *more: None if name == {without!r} else "
    code += "found(name, *more); from golow.__main__ import main; main()"
    start = ["-c", code] if without else ["-m", "golow"]
    with pytest.MonkeyPatch.context() as patch:
        fork_commands(patch)
        return subprocess.run(
            [sys.executable, *start, *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )


# ---------------------------------------------------------------- the record


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PROFILES)
def test_what_is_saved_is_read_back(tmp_path: Path, profiles: Sequence[Profile]) -> None:
    store.save(tuple(profiles), tmp_path)
    assert store.load(tmp_path) == store.load(tmp_path / "profile.json") == tuple(profiles)


def test_a_record_of_an_earlier_golow_is_read(tmp_path: Path) -> None:
    """Before there was a machine in it."""
    store.save((profile([level()]),), tmp_path)
    tree = msgspec.json.decode((tmp_path / "profile.json").read_bytes())
    del tree["profiles"][0]["environment"], tree["profiles"][0]["levels"][0]["worst"]
    (tmp_path / "profile.json").write_bytes(msgspec.json.encode(tree))
    [found] = store.load(tmp_path)
    assert found.environment is None


def test_the_path_of_a_layer_is_never_empty(tmp_path: Path) -> None:
    """What the model's own forward does outside its children has the path ``""``."""
    made = profile([level(layers={"": 0.02, "conv": 0.01}, kernels={"gemm": 0.03})])
    assert made.levels[0].kernels[0].layer == ""
    write_tables([made], tmp_path)
    for name, layers in (("layers", ["(top)", "conv"]), ("kernels", ["(top)"])):
        rows = csv.DictReader(io.StringIO((tmp_path / f"{name}.csv").read_text()))
        assert [row["layer"] for row in rows] == layers


def broken() -> Iterator[tuple[str, str]]:
    """A changed place of the record, as JSON path and value, and what is said of it."""
    yield '"format_version":1', '"format_version":2'
    yield '"format_version":1', '"format_version":"one"'
    yield '"profiles":[', '"profiles":{"a":'
    yield '"level":"eager"', '"level":"\\u001b[31m"'
    yield '"level":"eager"', '"level":""'
    yield '"ns":[20000000,20000000,20000000]', '"ns":[]'
    yield '"ns":[20000000,20000000,20000000]', '"ns":[1.5,2,3]'
    yield '"modules":["conv"]', '"modules":[]'
    yield '"calls":3,', '"calls":0,'
    yield '"profiled":0.04', '"profiled":null'
    yield '"seconds":0.03', '"seconds":"long"'
    yield '"seconds":0.03', '"seconds":1e999'
    yield '"verdict":"match"', '"verdict":7'


@pytest.mark.parametrize(("old", "new"), list(broken()))
def test_what_is_no_profile_is_refused(old: str, new: str, tmp_path: Path) -> None:
    made = profile([level(layers={"conv": 0.02}, kernels={"gemm": 0.03})])
    store.save((made,), tmp_path)
    file = tmp_path / "profile.json"
    text = msgspec.json.format(file.read_bytes(), indent=-1).decode()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(GolowError, match=r"profile\.json"):
        store.load(tmp_path)


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_truncated_profile_is_refused(tmp_path: Path, data: st.DataObject) -> None:
    store.save((profile([level()]),), tmp_path)
    file = tmp_path / "profile.json"
    whole = file.read_bytes()
    file.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 3))])
    with pytest.raises(GolowError, match=r"profile\.json"):
        store.load(tmp_path)


@pytest.mark.parametrize("data", [b"", b"\0" * 9, b"[]", b"{}", b'{"profiles": []}', b"\xff\xfe"])
def test_a_foreign_file_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_bytes(data)
    with pytest.raises(GolowError, match=r"profile\.json"):
        store.load(tmp_path)


def test_a_folder_without_a_profile_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(GolowError, match="there is no profile in") as told:
        store.load(tmp_path)
    assert "--save" in told.value.hint


RECORDS = (
    *(Profile, LevelProfile, Part, GpuSummary, OperatorTime, KernelTime, LayerTime),
    *(LayerWork, Peak, MemoryProfile, Block, memory.Peak, CopyTime, Finding),
)


@pytest.mark.parametrize("kind", RECORDS)
def test_the_page_names_every_field_of_the_record(kind: type[msgspec.Struct]) -> None:
    section = PAGE.read_text().split("### `profile.json`")[1]
    rows = [set(re.findall(r"`(\w+)`", line)) for line in section.splitlines()]
    assert any(set(kind.__struct_fields__) <= row for row in rows)


# ---------------------------------------------------------------- tables


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_the_page_describes_every_column_in_order() -> None:
    page = PAGE.read_text()
    assert columns(page.split("### Tables")[1].split("####")[0]) == list(Row.__struct_fields__)
    for name, (kind, _) in TABLES.items():
        section = page.split(f"#### `{name}.csv`")[1].split("\n#")[0]
        own = [field for field in kind.__struct_fields__ if field not in Row.__struct_fields__]
        assert columns(section) == own


def columns(section: str) -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def test_a_row_a_precision_level_and_item(tmp_path: Path) -> None:
    files = {file.stem: read(file) for file in write_tables(GPU, tmp_path)}
    assert {name: len(rows) for name, rows in files.items()} == {
        "summary": 2 * (3 * len(ROLES) + 1),
        "operators": 2 * 3 * 12,
        "kernels": 2 * 3 * 14,
        "layers": 2 * 3 * 60,
    }
    first = files["summary"][0]
    assert (first["model"], first["precision"], first["level"]) == ("resnet50", "default", "eager")
    assert (first["role"], first["step_seconds"]) == ("kernel", "0.012")
    assert float(first["role_share"]) == pytest.approx(0.5)
    assert float(first["tensor_cores_share"]) == 0.1
    [lost] = [
        row for row in files["summary"] if row["verdict"] == "failed" and row["precision"] == "bf16"
    ]
    assert (lost["role"], lost["reason"]) == ("", "it died: signal 11")
    layer = files["layers"][0]
    assert (layer["layer"], layer["phase"], layer["seconds"]) == (
        "layer1.0.conv",
        "forward",
        "0.001",
    )
    assert files["kernels"][0]["kernel"] == "sm90_xmma_gemm_0"


def test_where_an_operator_a_kernel_and_a_layer_come_from_is_in_the_tables(tmp_path: Path) -> None:
    made = level(operators={"conv": 0.1}, kernels={"gemm": 0.1}, layers={"fc": 0.1})
    replace = msgspec.structs.replace
    made = replace(
        made,
        operators=(replace(made.operators[0], sites=("net.py:7", "net.py:9")),),
        kernels=(replace(made.kernels[0], layer="fc", phase="backward"),),
        layers=(replace(made.layers[0], kernels=1.5), made.layers[0]),
    )
    files = {file.stem: read(file) for file in write_tables([profile([made])], tmp_path)}
    assert files["operators"][0]["sites"] == "net.py:7 net.py:9"
    assert (files["kernels"][0]["layer"], files["kernels"][0]["phase"]) == ("fc", "backward")
    assert [row["kernels"] for row in files["layers"]] == ["1.5", ""]


def test_tables_without_rows_have_their_header(tmp_path: Path) -> None:
    for file in write_tables([profile([])], tmp_path):
        assert file.read_text().split(",")[0] == "model"
        assert read(file) == []


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PROFILES)
def test_no_table_has_a_formula(tmp_path: Path, profiles: Sequence[Profile]) -> None:
    for file in write_tables(profiles, tmp_path):
        for row in read(file):
            for value in row.values():
                assert not value.startswith(FORMULA)


@given(st.text())
def test_a_text_stays_the_same_behind_an_apostrophe(value: str) -> None:
    rows = [{"name": value, "number": -1.5}]
    [line] = csv.DictReader(io.StringIO(to_csv(rows), newline=""))
    assert line["number"] == "-1.5"  # a number is no formula
    assert line["name"] == (f"'{value}" if value.startswith(FORMULA) else value)
