"""A profile in the page: its tree of layers, roofline, memory over time and way down have the
numbers of the record, and a browser shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.lower.analysis.arithmetic import LayerWork
from golow.measure.peak import Peak
from golow.programs.profiling.memory import Block, MemoryProfile, memory_profile
from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.programs.profiling.roofline import rooflines
from golow.programs.profiling.way_down.way_down_record import Frame, LevelWay, WayDown
from golow.records.comparison import LayerTime
from golow.records.workload import LayerPhase, TensorType
from golow.report.layers import columns_at, deepest
from golow.report.page import layer_tree, profile
from golow.report.page.file import write_page
from golow.report.profiling.memory_figures import held_over_time
from golow.worker.protocol import PARAMETERS
from support.examples import examples
from support.pages.browser import Browser
from support.pages.pages import EVIL, in_a_browser, violations
from support.records import profiles


def step(path: str, *ns: int, phase: LayerPhase = "forward", also: tuple[str, ...] = ()) -> Any:
    return LayerTime(modules=(path, *also), phase=phase, operation="conv", ns=ns)


LAYERS = (
    step("a.one", 100, 300),
    step("a.two", 30, 10, also=("a.three",)),
    step("a", 7, 7),
    step("b", 1, 1),
    step("a.one", 5, 5, phase="backward"),
)
MEMORY = memory_profile(
    [
        Block(bytes=2048, category=PARAMETERS, first=0, last=4, name=EVIL),
        Block(bytes=1024, category="activations", first=1, last=3, phase="forward", layer=EVIL),
    ],
    4.0,
    reserved=4096,
)
WAY = WayDown(
    layer=EVIL,
    operation=EVIL,
    inputs=(TensorType(shape=(1, 3), dtype="float32"),),
    levels=(
        LevelWay(
            level="eager",
            verdict="match",
            python=(Frame(name=EVIL, place="module.py"),),
            native=(Frame(name="at::conv2d(at::Tensor const&)", place="libtorch_cpu.so"),),
            interpreter=3,
            entry=Frame(name="dnnl_primitive_execute", place="libdnnl.so"),
            owner="oneDNN",
            entries=1,
            before=700,
            inside=200,
            after=100,
        ),
        LevelWay(level=EVIL, verdict="match", native=(Frame(name="f", place="x"),), before=10),
        LevelWay(level="onednn", verdict="match", missing="it has no layer alone"),
    ),
)


def made() -> Profile:
    """One level with everything in it, one with little, one with nothing."""
    whole = profiles.level("eager", operators={EVIL: 0.01}, kernels={EVIL: 0.01}, tensor_cores=0.5)
    whole = msgspec.structs.replace(whole, layers=LAYERS, memory=MEMORY)
    plain = LevelProfile(level=EVIL, verdict="match", layers=LAYERS[:1], memory_missing=EVIL)
    lost = LevelProfile(level="cudnn", verdict="failed", reason=EVIL, layers_missing=EVIL)
    found = profiles.profile([whole, plain, lost], model=EVIL)
    work = LayerWork(module="a.one", phase="forward", operations=4000, bytes=500)
    return msgspec.structs.replace(
        found, work=(work,), peak=Peak(operations=1e11, bytes=1e10), ways=(WAY,)
    )


PROFILE = made()
SECTIONS = {one["id"]: one["blocks"] for one in profile.sections([PROFILE], "r0")}


def of_kind(section: str, kind: str) -> list[Any]:
    return [one for one in SECTIONS[section] if one["kind"] == kind]


# ---------------------------------------------------------------- layers


def nodes(levels: tuple[LevelProfile, ...]) -> list[layer_tree.Node]:
    at = {depth: columns_at(levels, depth) for depth in range(deepest(levels) + 1)}
    return list(layer_tree.tree_of(at))


def test_the_tree_has_every_layer_below_the_one_it_is_in() -> None:
    names = [(node.name, node.parent) for node in nodes(PROFILE.levels)]
    assert names == [
        ("forward", None),
        ("a", 0),
        ("a.one", 1),
        ("a.two", 1),
        ("a itself", 1),
        ("b", 0),
        ("backward", None),
        ("a", 6),
        ("a.one", 7),
    ]


def test_a_row_has_the_time_of_all_that_is_in_it() -> None:
    [tree] = of_kind("r0-0-layers", "table")
    seconds = {(r[0]["text"], r[1]["text"]): r[2]["order"] for r in tree["rows"]}
    assert seconds["forward", "forward"] == pytest.approx((138 + 318) / 2 * 1e-9)
    assert seconds["a", "forward"] == pytest.approx((137 + 317) / 2 * 1e-9)
    assert seconds["a itself", "forward"] == pytest.approx(7e-9)
    assert seconds["a.one", "backward"] == pytest.approx(5e-9)


paths = st.lists(st.sampled_from(("a", "b", "c")), max_size=4).map(".".join)
steps = st.builds(step, paths, st.integers(0, 1000), phase=st.sampled_from(profiles.PHASES))


@examples(80)
@given(st.lists(steps, min_size=1, max_size=12))
def test_children_add_up_to_their_parent(layers: list[LayerTime]) -> None:
    levels = (LevelProfile(level="eager", verdict="match", layers=tuple(layers)),)
    at = {depth: columns_at(levels, depth) for depth in range(deepest(levels) + 1)}
    found = list(layer_tree.tree_of(at))
    own = [at[node.depth][0].seconds[node.row] for node in found]
    below: dict[int, float] = {}
    for node, seconds in zip(found, own, strict=True):
        if node.parent is not None:
            below[node.parent] = below.get(node.parent, 0.0) + seconds
    for parent, total in below.items():
        assert total == pytest.approx(own[parent], abs=1e-15)
    roots = sum(s for node, s in zip(found, own, strict=True) if node.parent is None)
    assert roots == pytest.approx(sum(one.ns[0] for one in layers) / 1e9, abs=1e-15)


# ---------------------------------------------------------------- roofline, memory, way down


def test_the_roofline_is_that_of_the_profile() -> None:
    [shown] = of_kind("r0-0-roofline", "chart")
    [dot] = rooflines(PROFILE)[0].dots
    *roof, eager, other = shown["lines"]
    assert eager["points"] == [[dot.intensity, dot.rate]] == [[8.0, 4000 / 200e-9]]
    assert other["name"] == EVIL
    assert roof[0]["points"][1] == roof[1]["points"][0] == [10.0, 1e11]
    [table] = of_kind("r0-0-roofline", "table")
    assert table["rows"][0][8]["order"] == dot.share


def test_memory_over_time_is_that_of_the_profile() -> None:
    [area] = of_kind("r0-0-memory", "area")
    held = held_over_time(MEMORY)
    assert area["moments"] == held.moments == [0.0, 1.0, 3.0, 4.0]
    assert area["up"] == "memory (KiB)"
    assert {part["name"]: part["values"] for part in area["parts"]} == {
        "parameters": [2, 2, 2, 2],
        "activations": [0, 1, 0, 0],
    }
    assert area["mark"] == (1.0, 3.0, "peak 3.00 KiB")
    assert area["limit"] == (4.0, "4.00 KiB reserved")


blocks = st.builds(
    Block,
    bytes=st.integers(1, 1 << 40),
    category=st.sampled_from((PARAMETERS, "activations", "temporary")),
    first=st.integers(0, 4).map(float),
    last=st.integers(5, 9).map(float),
)


@examples(60)
@given(st.lists(blocks, min_size=1, max_size=8))
def test_the_highest_moment_is_the_peak(found: list[Block]) -> None:
    memory: MemoryProfile = memory_profile(found, 9.0)
    held = held_over_time(memory)
    highest = max(map(sum, zip(*held.categories.values(), strict=True)))
    assert highest == pytest.approx(held.peak[1])


def test_the_way_down_is_drawn_to_the_entry_and_counts_what_was_counted() -> None:
    [beside] = of_kind("r0-0-way-0", "beside")
    eager, other = beside["blocks"]
    texts = [[box["text"] for box in row] for row in eager["rows"]]
    assert texts[0] == ["the call: 1,000 instructions"]
    assert texts[1] == [f"{EVIL} (module.py)"]
    assert texts[2] == ["3 frames of Python's interpreter"]
    assert texts[3] == ["conv2d (libtorch_cpu.so)"] or "conv2d" in texts[3][0]
    assert [(box["from"], box["to"]) for box in eager["rows"][-1]] == [
        (0, 0.7),
        (0.7, 0.9),
        (0.9, 1),
    ]
    assert "oneDNN: dnnl_primitive_execute: 200 instructions, 20%" in texts[-1]
    assert len(other["rows"]) == 2  # no entry
    notes = [one["text"] for one in of_kind("r0-0-way-0", "paragraph")]
    assert "onednn was not counted: it has no layer alone" in notes


def test_a_gpu_profile_says_how_the_gpu_was_used() -> None:
    found = profile.sections(profiles.gpu_profiles(), "r0")
    _, table = (one for one in found[0]["blocks"] if one["kind"] == "table")
    rows = {row[0]["text"]: row for row in table["rows"]}
    shown = profiles.gpu_profiles()[0].levels[0]
    assert rows["kernel"][1]["order"] == shown.summary[0].share
    assert rows["kernel"][0]["colour"]
    assert any("tensor" in title.lower() for title in rows)


# ---------------------------------------------------------------- in a browser


@pytest.mark.slow
@in_a_browser
def test_every_view_of_a_profile_is_shown_and_nothing_is_executed(
    window: Browser, tmp_path: Path
) -> None:
    sections = profile.sections([PROFILE], "r0")
    assert window.open(write_page(EVIL, sections, {}, tmp_path / "page.html")) < 2
    assert window.run("return document.querySelectorAll('.flame rect').length") == 9
    assert window.run("return document.querySelectorAll('#r0-0-roofline circle').length") == 2
    window.run("document.querySelectorAll('summary').forEach(one => one.click())")
    for dark in ("light", "dark"):
        window.tell(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": dark}]
        )
        assert violations(window) == []
    window.tell("Emulation.setEmulatedMedia", features=[])
    assert not window.run("return window.hacked || document.images.length")
    assert window.log() == []


@in_a_browser
def test_a_layer_opens_to_what_is_in_it(window: Browser, tmp_path: Path) -> None:
    window.open(write_page("x", profile.sections([PROFILE], "r0"), {}, tmp_path / "page.html"))
    names = "return [...document.querySelectorAll('#r0-0-layers tbody th')].map(o => o.textContent)"
    assert window.run(names) == [
        "forward",
        "a",
        "a.one",
        "a.two",
        "a itself",
        "b",
        "backward",
        "a",
        "a.one",
    ]
    window.run("document.querySelectorAll('#r0-0-layers .opener')[1].click()")
    assert window.run(names) == ["forward", "a", "b", "backward", "a", "a.one"]
    window.run("document.querySelectorAll('#r0-0-layers thead button')[2].click()")  # by time
    assert window.run(names) == ["backward", "a", "a.one", "forward", "b", "a"]
    window.run(
        "const box = document.querySelector('#r0-0-layers input'); box.value = 'one back';"
        "box.dispatchEvent(new Event('input'))"
    )
    assert window.run(names) == ["a.one"]
