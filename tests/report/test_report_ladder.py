"""The ladder of the page: what the pointer shows of a level, energy, words that filter it, and
lines to paste that do what they say."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.ladder import LADDER
from golow.records.comparison import Block, Comparison, Quantity, Run
from golow.report.page import comparison
from golow.report.page.file import write_page
from golow.report.page.getting import getting
from golow.report.page.level import peek
from support.command import golow
from support.examples import examples
from support.pages.browser import Browser
from support.pages.pages import COMPARED, EVIL, TAG, in_a_browser, level, violations
from support.records import audits


def ladder(compared: Comparison) -> dict[str, Any]:
    return comparison.sections(compared, "r0")[1]["blocks"][0]


def titles(compared: Comparison) -> list[str]:
    return [one["title"] for one in ladder(compared)["columns"]]


def with_blocks(run: Run, blocks: tuple[Block, ...]) -> Run:
    return msgspec.structs.replace(run, blocks=blocks)


# ---------------------------------------------------------------- energy


def test_energy_has_a_column_where_any_level_has_it() -> None:
    assert "energy" not in titles(COMPARED)
    spent = Quantity(name="energy", unit="J", value=0.123)
    runs = (COMPARED.runs[0], msgspec.structs.replace(COMPARED.runs[1], device=(spent,)))
    shown = msgspec.structs.replace(COMPARED, runs=runs)
    column = titles(shown).index("energy")
    rows = ladder(shown)["rows"]
    assert [row[column]["text"] for row in rows] == ["-", "123 mJ"]
    assert rows[1][column]["order"] == 0.123


def test_a_gpu_has_its_artifacts_too() -> None:
    life = (Quantity(name="artifact", unit="B", value=2.0**20),)
    run = msgspec.structs.replace(audits.run("libtorch", device="cuda"), life=life)
    shown = msgspec.structs.replace(COMPARED, workload=run.workload, runs=(run,))
    assert {"artifact", "host enqueues in"} <= set(titles(shown))


# ---------------------------------------------------------------- blocks over time


def test_a_block_is_marked_by_what_happened_to_it() -> None:
    blocks = tuple(
        Block(round=n, position=0, host_ns=(100, 200, 300), contended=n == 1, throttled=n in (1, 2))
        for n in range(4)
    )
    said, charts = peek(with_blocks(level("eager", 1.0), blocks))
    assert "12 iterations in 4 blocks, 1 disturbed, 2 throttled" in said["text"]
    [line] = charts["blocks"][-1]["lines"]
    assert line["marked"] == {"1": "disturbed and throttled", "2": "throttled"}
    assert line["points"][0] == [1.0, 200 / 1e6]
    assert line["band"][0] == [1.0, 150 / 1e6, 250 / 1e6]


times = st.lists(st.integers(1, 1 << 40), max_size=8)


@examples(60)
@given(st.lists(times, max_size=30))
def test_a_distribution_has_every_iteration_once(blocks: list[list[int]]) -> None:
    found = tuple(Block(round=n, position=0, host_ns=tuple(ns)) for n, ns in enumerate(blocks))
    everything = sorted(ns for one in blocks for ns in one)
    charts = peek(with_blocks(level("x", 1.0), found))[1]["blocks"]
    shown = {one["title"][:10]: one for one in charts}
    if len(everything) < 2:
        assert "Iterations" not in shown
        return
    left_out = len(everything) // 100 if len(everything) >= 100 else 0
    kept = everything[: len(everything) - left_out]
    if kept[0] == kept[-1]:
        return
    [line] = shown["Iterations"]["lines"]
    assert sum(y for _, y in line["points"]) / 2 == len(kept)
    assert line["points"][0][0] == kept[0] / 1e6
    assert line["points"][-1][0] == kept[-1] / 1e6


# ---------------------------------------------------------------- how to get it


PEERS = {level.name for level in LADDER if level.exports}
"""Other runtimes; those that have lines are run below."""


def lines_of(name: str, workload: Any = None) -> str:
    found = getting(workload or audits.workload(model="lenet5"), name)
    return "\n".join(one["text"] for one in found if one["kind"] == "code")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, batch: Tensor) -> Tensor:
        return torch.relu(self.two(self.one(batch)))


@pytest.mark.parametrize(
    "name",
    [
        "eager:channels_last",
        "torchscript",
        pytest.param("aotinductor", marks=pytest.mark.whole_network),
        pytest.param("compile", marks=pytest.mark.whole_network),
        pytest.param("compile:freezing", marks=pytest.mark.whole_network),
    ],
)
def test_the_lines_to_paste_run_and_compute_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(2, 3, 8, 8)
    names = {"torch": torch, "model": model, "x": x}
    with torch.inference_mode():
        expected = model(x)
        exec(lines_of(name), names)  # noqa: S102  # golow's own lines
        torch.testing.assert_close(names["model"](names["x"]), expected)


FOUND: dict[str, Callable[[dict[str, Any]], Any]] = {
    "onnxruntime": lambda names: names["result"][0],
    "openvino": lambda names: names["model"]((names["x"].numpy(),))[0],
    "executorch": lambda names: names["result"],
    "tvm": lambda names: names["result"].numpy(),
    "iree": lambda names: names["result"].to_host(),
}
"""The output, after the lines for a runtime."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_the_lines_for_other_runtimes_run_and_compute_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(2, 3, 8, 8)
    names: dict[str, Any] = {"torch": torch, "model": model, "x": x}
    with torch.no_grad(), redirect_stdout(io.StringIO()):
        expected = model(x)
        exec(lines_of(name), names)  # noqa: S102
    found = torch.as_tensor(FOUND[name](names))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_every_level_of_the_ladder_is_got_somehow() -> None:
    names = {level.name for level in LADDER} - PEERS
    without = {name for name in names if not lines_of(name)}
    assert without == {"eager"}  # the module as it is
    assert lines_of("a_worker_of_mine") == ""


def test_the_command_that_writes_the_program_runs(tmp_path: Path) -> None:
    workload = msgspec.structs.replace(
        audits.workload(model="mlp"),
        batch=2,
        inputs=(msgspec.structs.replace(audits.workload().inputs[0], shape=(2, 3, 4, 4)),),
    )
    first, enter, *others = lines_of("libtorch", workload).splitlines()
    _, *words = shlex.split(first)
    assert golow(*words, folder=tmp_path).status == 0
    readme = (tmp_path / enter.removeprefix("cd ") / "README.md").read_text()
    assert "\n".join(others) in readme


def test_what_no_command_can_name_has_none() -> None:
    workload = audits.workload()
    mine = msgspec.structs.replace(
        workload, source=msgspec.structs.replace(workload.source, kind="pickle")
    )
    assert lines_of("libtorch", mine) == ""
    assert list(getting(mine, "onednn")) == []


def test_choices_are_set_by_their_lines() -> None:
    assert "TORCHINDUCTOR_FREEZING=1" in lines_of("compile+freezing")
    assert "C++" in lines_of("libtorch+malloc_keep")


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ladder")
    return write_page(EVIL, comparison.sections(COMPARED, "r0"), {}, folder / "page.html")


PEEK = "const one = document.getElementById('peek'); return one.hidden ? null : one.textContent"


@pytest.mark.slow
@in_a_browser
def test_the_pointer_shows_a_levels_blocks_and_the_keyboard_too(
    window: Browser, page: Path
) -> None:
    window.open(page)
    assert window.run(PEEK) is None
    window.point("#r0-ladder tbody .peek")
    assert "8 iterations in 8 blocks, 1 disturbed" in window.run(PEEK)
    assert window.run("return document.querySelectorAll('#peek circle').length") == 8
    assert "disturbed" in window.run(
        "return document.querySelector('#peek circle[fill=\"var(--paper)\"]').textContent"
    )
    window.point("#peek")  # it stays while the pointer is on it
    window.run_later("setTimeout(arguments[0], 400)")
    assert window.run(PEEK) is not None
    assert violations(window) == []
    window.point("footer")
    window.run_later("setTimeout(arguments[0], 400)")
    assert window.run(PEEK) is None
    window.run("document.querySelectorAll('#r0-ladder .opener')[1].focus()")
    window.press("Tab")
    assert "8 iterations" in window.run(PEEK)
    window.press("Escape")
    assert window.run(PEEK) is None
    assert not window.run("return window.hacked || document.images.length")
    assert window.log() == []


@in_a_browser
def test_a_word_leaves_the_levels_that_have_it(window: Browser, page: Path) -> None:
    window.open(page)
    left = window.run(
        "const box = document.querySelector('#r0-ladder input[type=search]'); box.value = '<IMG';"
        "box.dispatchEvent(new Event('input'));"
        "return [...document.querySelectorAll('#r0-ladder .opener')].map(one => one.textContent)"
    )
    assert left == [TAG]


@in_a_browser
def test_an_opened_level_says_how_to_get_it(window: Browser, tmp_path: Path) -> None:
    shown = msgspec.structs.replace(
        COMPARED, workload=audits.workload(), runs=(audits.run("libtorch"),)
    )
    window.open(write_page("x", comparison.sections(shown, "r0"), {}, tmp_path / "page.html"))
    window.run("document.querySelector('#r0-ladder .opener').click()")
    text = window.run("return document.querySelector('.details').textContent")
    assert "golow emit resnet50 --input 3x64x64 --batch 8 --out program" in text
    assert "cmake -S . -B build" in text
