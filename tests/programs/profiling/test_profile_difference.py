"""Two profiles: the changes add up, are none for the same profile, and turn round with it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from rich.console import Console

from golow.api import ProfileResult, load_profile
from golow.programs.profiling import store
from golow.programs.profiling.difference import (
    Change,
    LevelDifference,
    Place,
    ProfileDifference,
    between_precisions,
    difference,
)
from golow.programs.profiling.profile_record import LevelProfile, Profile
from golow.records.comparison import LayerTime
from golow.records.errors import GolowError
from golow.report.profiling.difference import render_difference
from golow.report.profiling.table import render
from support.command import golow
from support.examples import examples
from support.records.profiles import PROFILES, gpu_profiles, level, profile

KINDS = ("roles", "operators", "kernels", "layers")

# ---------------------------------------------------------------- arithmetic


def totals(found: LevelProfile) -> dict[str, float]:
    return {
        "roles": found.profiled or 0.0,
        "operators": sum(item.self_host + item.self_device for item in found.operators),
        "kernels": sum(item.seconds for item in found.kernels),
        "layers": sum(step.ns[0] for step in found.layers) / 1e9,
    }


@pytest.mark.slow
@examples(60)
@given(PROFILES, PROFILES)
def test_the_changes_add_up_to_the_change_of_the_total(
    before: Sequence[Profile], after: Sequence[Profile]
) -> None:
    old, new = (
        {(p.workload.precision, lv.level): lv for p in profiles for lv in p.levels}
        for profiles in (before, after)
    )
    found = difference(before, after)
    assert {(one.before, one.level) for one in found.levels} == old.keys() & new.keys()
    assert set(found.only_before) == old.keys() - new.keys()
    assert set(found.only_after) == new.keys() - old.keys()
    for one in found.levels:
        first, second = totals(old[one.before, one.level]), totals(new[one.after, one.level])
        for kind in KINDS:
            changes = getattr(one, kind)
            if changes or kind != "layers":  # compared only if both levels have some
                total = sum(change.seconds for change in changes)
                assert total == pytest.approx(second[kind] - first[kind], abs=1e-6)


@examples(30)
@given(PROFILES)
def test_a_profile_does_not_differ_from_itself(profiles: Sequence[Profile]) -> None:
    found = difference(profiles, profiles)
    assert found.unlike == found.only_before == found.only_after == ()
    for change in every(found):
        assert change.seconds == 0
        assert change.before == change.after
        assert change.calls_before == change.calls_after


@pytest.mark.slow
@examples(60)
@given(PROFILES, PROFILES)
def test_the_other_way_round_every_change_has_the_other_sign(
    before: Sequence[Profile], after: Sequence[Profile]
) -> None:
    there, back = difference(before, after), difference(after, before)
    assert (there.only_before, there.only_after) == (back.only_after, back.only_before)
    theirs = {(one.before, one.level): one for one in back.levels}
    for one in there.levels:
        other = theirs[one.before, one.level]
        for kind in KINDS:
            mine = getattr(one, kind)
            turned = [turn(change) for change in getattr(other, kind)]
            assert list(mine) == turned
            assert [change.seconds for change in mine] == [
                -change.seconds for change in getattr(other, kind)
            ]


def turn(change: Change) -> Change:
    return Change(
        name=change.name,
        detail=change.detail,
        before=change.after,
        after=change.before,
        calls_before=change.calls_after,
        calls_after=change.calls_before,
    )


def every(found: ProfileDifference) -> list[Change]:
    return [
        change
        for one in found.levels
        for change in (one.time, one.profiled, *(c for kind in KINDS for c in getattr(one, kind)))
    ]


def test_the_largest_change_comes_first_whatever_its_sign() -> None:
    before = profile([level(operators={"a": 0.010, "b": 0.020, "c": 0.001, "gone": 0.002})])
    after = profile([level(operators={"a": 0.011, "b": 0.005, "c": 0.009, "new": 0.003})])
    [found] = difference([before], [after]).levels
    assert [change.name for change in found.operators] == ["b", "c", "new", "gone", "a"]
    b, c, new, gone, _ = found.operators
    assert (b.seconds, b.ratio) == pytest.approx((-0.015, 0.25))
    assert (new.before, new.ratio, new.calls_before, new.calls_after) == (None, None, None, 2)
    assert (gone.after, gone.seconds) == (None, -0.002)
    assert c.seconds == pytest.approx(0.008)


def test_shapes_tell_operators_apart_only_if_both_have_them() -> None:
    plain = level(operators={"conv": 0.003})
    [item] = plain.operators
    shaped = msgspec.structs.replace(
        plain,
        operators=tuple(
            msgspec.structs.replace(item, shapes=shapes, self_host=seconds)
            for shapes, seconds in (("[1]", 0.001), ("[2]", 0.004))
        ),
    )
    [apart] = difference([profile([shaped])], [profile([shaped])]).levels
    assert {change.detail for change in apart.operators} == {"[1]", "[2]"}
    [mixed] = difference([profile([plain])], [profile([shaped])]).levels
    [change] = mixed.operators
    assert (change.before, change.after) == pytest.approx((0.003, 0.005))
    assert (change.calls_before, change.calls_after) == (2, 4)


def test_steps_of_a_layer_are_one() -> None:
    steps = tuple(
        LayerTime(modules=("conv", "relu"), phase=phase, operation="op", ns=(10, 20, 90))
        for phase in ("forward", "forward", "backward")
    )
    shown = msgspec.structs.replace(level(), layers=steps)
    [found] = difference([profile([shown])], [profile([shown])]).levels
    assert [(c.name, c.detail, c.before) for c in found.layers] == [
        ("conv", "backward", 20e-9),
        ("conv", "forward", 40e-9),
    ]


# ---------------------------------------------------------------- what may be compared


def test_what_differs_besides_is_said() -> None:
    before = profile([level()], batch=8, torch="2.12.0")
    after = profile([level()], batch=16, torch="2.13.0")
    found = difference([before], [after])
    assert any("batch: 8 and 16" in words for words in found.unlike)
    assert "torch (2.12.0, 2.13.0)" in found.unlike
    assert not any("precision" in words for words in found.unlike)


def test_an_earlier_record_without_a_machine_says_so() -> None:
    old = msgspec.structs.replace(profile([level()]), environment=None)
    [words] = difference([old], [profile([level()])]).unlike
    assert "earlier golow" in words


def test_a_level_that_failed_once_is_no_level_of_new_operators() -> None:
    lost = LevelProfile(level="eager", verdict="failed", reason="it died")
    there = level(operators={"a": 0.1})
    found = difference([profile([lost])], [profile([there])])
    assert found.levels[0].operators == found.levels[0].roles == ()
    assert found.levels[0].missing == ("eager has no profile before: it died",)
    assert "new" not in table(found)


# ---------------------------------------------------------------- tables


def table(found: ProfileDifference, **options: object) -> str:
    text = io.StringIO()
    render_difference(found, ("out/a", "out/b"), console=Console(file=text, width=100), **options)  # type: ignore[arg-type]
    return text.getvalue()


def test_the_table_has_the_changes_and_what_is_new_and_gone() -> None:
    before = profile([level(operators={"b": 0.020, "gone": 0.002}), level("old")])
    after = profile(
        [level(seconds=0.01, operators={"b": 0.005, "new": 0.003}), level("young")], batch=16
    )
    shown = table(difference([before], [after]))
    assert "old, precision default is only before" in shown
    assert "young, precision default is only after" in shown
    assert "not alike: batch: 8 and 16" in shown
    assert row(shown, "without profiler") == "20.0 ms 10.0 ms -10.0 ms 0.50"
    assert row(shown, "b") == "20.0 ms 5.00 ms -15.0 ms 0.25 2"
    assert row(shown, "new") == "- 3.00 ms +3.00 ms new - to 2"
    assert row(shown, "gone") == "2.00 ms - -2.00 ms gone 2 to -"
    assert row(shown, "operator on the host") == "30.0 ms 30.0 ms 0 1.00"


def row(shown: str, name: str) -> str:
    [line] = [line for line in shown.splitlines() if line.strip().startswith(f"{name}  ")]
    return " ".join(line.split()).removeprefix(name).strip()


@pytest.mark.parametrize("by", ["operator", "layer", "kernel"])
def test_by_and_top_are_honoured_within_100_columns(by: str) -> None:
    first, second = gpu_profiles()
    again = msgspec.structs.replace(second, workload=first.workload)
    shown = table(difference([first], [again]), by=by, top=2)
    names = {"operator": "long_name_0", "layer": "layer1.0.conv forward", "kernel": "gemm_0"}
    assert (names[by] in shown) and ("and " in shown)
    for other in names.keys() - {by}:
        assert names[other] not in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_precisions_of_one_profile_stand_side_by_side() -> None:
    text = io.StringIO()
    render(gpu_profiles(), top=2, console=Console(file=text, width=100))
    shown = text.getvalue().split("precision, side by side")[1]
    assert max(map(len, shown.splitlines())) <= 100
    [eager] = [line for line in shown.splitlines() if line.split()[:2] == ["eager", "default"]]
    assert "12.0 ms" in eager and "10%" in eager and "gradient/fc.weight" in eager
    assert "bf16 4.80 ms 0.40 90% 0.0001 0.0004" in " ".join(shown.split())
    assert "eager: operators, default to bf16" in shown
    changed = between_precisions(*gpu_profiles())
    assert [one.level for one in changed][:2] == ["eager", "compile:max-autotune"]
    assert isinstance(changed[0], LevelDifference)


def test_one_precision_has_nothing_beside_it() -> None:
    text = io.StringIO()
    render(gpu_profiles()[:1], console=Console(file=text, width=100))
    assert "side by side" not in text.getvalue()


def test_python_compares_two_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path)
    found = load_profile(tmp_path / "a").diff(load_profile(tmp_path / "b"))
    assert found.difference.only_after == (Place("default", "libtorch"),)
    found.table(by="operator", top=1)
    assert "without profiler" in capsys.readouterr().out
    with pytest.raises(GolowError, match="profiles have no view 'beauty'"):
        found.table(by="beauty")


# ---------------------------------------------------------------- the command


def saved(folder: Path) -> None:
    first = [level(operators={"conv": 0.02, "relu": 0.01})]
    second = [level(operators={"conv": 0.01}), level("libtorch")]
    for name, levels in (("a", first), ("b", second)):
        (folder / name).mkdir()
        store.save((profile(levels),), folder / name)


def test_the_command_compares_two_folders(tmp_path: Path) -> None:
    saved(tmp_path)
    done = golow("profile", "--diff", "a", "b", "--top", "1", folder=tmp_path)
    assert done.status == 0, done.error
    assert "before: a" in done.output and "after:  b" in done.output
    assert "conv" in done.output and "and 1 more" in done.output
    assert "libtorch, precision default is only after" in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "golow profile needs a model, or two saved profiles"),
        (("mlp", "--diff", "a", "b"), "--diff compares two saved profiles and takes no model"),
        (("--diff", "a", "b", "--save", "c"), "--diff writes nothing"),
        (("--diff", "a", "nowhere"), "there is no profile in nowhere"),
        (("--diff", "a", "b", "--by", "magic"), "profiles have no view 'magic'"),
        (("--diff", "a"), "--diff"),
        (("--diff", "a", "b", "--top", "0"), "--top"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    saved(tmp_path)
    done = golow("profile", *arguments, folder=tmp_path)
    assert done.status == 2, done.error
    assert said in " ".join(done.error.split())
    assert "Traceback" not in done.error


def test_a_result_in_python_is_what_was_saved(tmp_path: Path) -> None:
    saved(tmp_path)
    assert load_profile(tmp_path / "a") == ProfileResult(store.load(tmp_path / "a"))
