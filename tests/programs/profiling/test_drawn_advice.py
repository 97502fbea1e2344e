"""Advice on any profile, and any findings of a record, whoever wrote it."""

from __future__ import annotations

import io
import shlex

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from golow.programs.profiling import advice
from golow.programs.profiling.profile_record import Finding, Profile
from golow.records.comparison import Quantity
from golow.report.profiling import advice as texts
from support.records.profiles import PROFILES, level, profile

LEVEL_NAMES = st.sampled_from(("eager", "cudagraph", "compile", "libtorch", "a\x1bworker"))
FINDINGS = st.builds(
    Finding,
    name=st.sampled_from((*texts.TEXTS, "a newer rule")),
    level=LEVEL_NAMES,
    figures=st.lists(
        st.builds(
            Quantity,
            name=st.sampled_from(("share", "step", "faster step", "ratio", "size", "bytes")),
            unit=st.just("s"),
            value=st.floats(0, 1e12),
        ),
        max_size=4,
    ).map(tuple),
    faster=st.just("") | LEVEL_NAMES,
    layers=st.lists(st.sampled_from(("layer1.0.conv1", "fc")), max_size=3).map(tuple),
    reason=st.sampled_from(("", "ieee", "sizes", "cudagraph", "{}")),
    command=st.lists(st.text("ab '\"\n\\-", max_size=12), max_size=30).map(shlex.join),
)


@given(st.lists(FINDINGS, max_size=8))
def test_any_record_is_shown_within_the_width(some: list[Finding]) -> None:
    printed = io.StringIO()
    texts.render_advice(some, profile((level("eager"),)).workload, Console(file=printed, width=100))
    text = printed.getvalue()
    assert max(map(len, text.splitlines()), default=0) <= 100
    assert "\x1b" not in text


@pytest.mark.slow
@given(PROFILES)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_no_profile_is_too_odd(profiles: list[Profile]) -> None:
    for made in profiles:
        some = advice.findings(made)
        assert msgspec.json.decode(msgspec.json.encode(some), type=tuple[Finding, ...]) == some
        assert all(finding.gain >= 0 for finding in some)
