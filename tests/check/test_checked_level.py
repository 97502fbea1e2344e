"""One level, built, loaded and checked: what goes wrong is its own verdict."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from golow.check.checked_level import CheckedLevel
from golow.check.reference import Standard
from golow.levels.ladder import ChosenLevel, Launch, Level, Probe
from golow.levels.starter import Starter
from golow.records.errors import Unsupported
from golow.workload.bundle import Bundle
from support.workers.bundles import product_bundle

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return product_bundle(tmp_path_factory.mktemp("compare") / "bundle")


@pytest.fixture(scope="module")
def standard(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Standard:
    return Standard(bundle, tmp_path_factory.mktemp("standard"), Starter())


def mine(bundle: Bundle, prepare: Callable[[Bundle, str, Path], Launch]) -> CheckedLevel:
    choice = ChosenLevel(Level("mine", "", "", lambda: Probe(True), prepare), "")
    return CheckedLevel(choice, bundle, bundle.folder.parent, Starter())


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [False, True])
def test_what_differs_is_timed_only_where_that_is_allowed(
    bundle: Bundle, standard: Standard, allowed: bool
) -> None:
    plant = (sys.executable, "-m", "golow.worker.plant", "--products", "1", "--shift", "1")
    with mine(bundle, lambda *_: Launch(plant)) as wrong:
        assert (wrong.start(standard, allowed, "1 of 1") is not None) == allowed
        assert (wrong.worker is not None) == allowed
    assert wrong.check.verdict == "differs"


def test_a_fault_of_the_levels_own_code_is_its_result(bundle: Bundle, standard: Standard) -> None:
    def broken(bundle: Bundle, variant: str, cache: Path) -> Launch:
        return {}["no such operator"]  # type: ignore[no-any-return]

    with mine(bundle, broken) as failed:
        assert failed.start(standard, False, "1 of 1") is None
    assert failed.check.verdict == "failed"
    assert failed.check.reason == "KeyError: 'no such operator'"
    assert 'return {}["no such operator"]' in failed.log


def test_what_a_level_does_not_support_is_named(bundle: Bundle, standard: Standard) -> None:
    def unsupported(bundle: Bundle, variant: str, cache: Path) -> Launch:
        raise Unsupported("mine", "aten.roll has no kernel", "roll_1", "layer1.0")

    with mine(bundle, unsupported) as refused:
        assert refused.start(standard, False, "1 of 1") is None
    assert refused.check.verdict == "unavailable"
    assert refused.check.reason == "aten.roll has no kernel (node roll_1, layer layer1.0)"
    at_the_top = Unsupported("onednn", "aten.roll has no kernel", "roll_1", "")
    assert at_the_top.words == "aten.roll has no kernel (node roll_1, in the model's own forward)"
