"""Callgrind's files: what is in them is read, and damage is noticed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.programs.profiling.way_down.boundary import ENTRIES, owner_of
from golow.programs.profiling.way_down.callgrind import Function, combined, parse, read_parts
from golow.programs.profiling.way_down.reading import read

APP, BLAS = "/lib/app.so", "/lib/blas.so"

BEFORE = f"""# callgrind format
version: 1
desc: Trigger: --dump-before=sgemm_
positions: line
events: Ir

ob=(1) {APP}
fl=(1) ???
fn=(1) main
0 10
+3 5
cfn=(2) layer(int)
calls=1 0
* 40

fn=(2)
0 30
cob=(2) /lib/libc.so
cfi=(2) malloc.c
cfn=(3) malloc
calls=2 0
0 10

ob=(2)
fn=(3)
0 10

totals: 55
"""

AFTER = f"""# callgrind format
desc: Trigger: Client Request: end
positions: line
events: Ir

ob=(1) {APP}
fn=(1) main
cfn=(2) layer(int)
calls=0 0
0 207

fn=(2)
0 7
cob=(2) {BLAS}
cfn=(3) sgemm_
calls=1 0
0 200

ob=(2)
fn=(3)
0 150
cfn=(4) SGEMM
calls=1 0
0 50

fn=(4)
0 50

totals: 207
"""


def test_the_parts_of_a_call_add_up() -> None:
    counted = read([parse(BEFORE), parse(AFTER)])
    assert (counted.before, counted.inside, counted.after) == (55, 200, 7)
    assert [frame.name for frame in counted.native] == ["main", "layer(int)"]
    assert counted.entry is not None
    assert (counted.entry.name, counted.entry.place, counted.owner) == ("sgemm_", "blas.so", "BLAS")
    assert counted.entries == 1  # SGEMM is inside sgemm_
    assert counted.allocations == 2


def test_one_more_allocation_and_instruction_show() -> None:
    more = BEFORE.replace("calls=2 0\n0 10", "calls=3 0\n0 11").replace(
        "fn=(3)\n0 10", "fn=(3)\n0 11"
    )
    more = more.replace("* 40", "* 41").replace("totals: 55", "totals: 56")
    one, other = read([parse(BEFORE), parse(AFTER)]), read([parse(more), parse(AFTER)])
    assert (other.allocations, other.before) == (one.allocations + 1, one.before + 1)


def test_a_call_that_reaches_no_entry_ends_at_the_heaviest_function() -> None:
    counted = read([parse(BEFORE)])
    assert counted.entry is None
    assert counted.owner == ""
    assert counted.before == 55
    assert [frame.name for frame in counted.native] == ["main", "layer(int)"]


def test_a_truncated_file_is_noticed() -> None:
    with pytest.raises(ValueError, match="callgrind states 55 instructions"):
        parse(BEFORE.replace("+3 5\n", ""))
    with pytest.raises(ValueError, match="no instruction"):
        read([parse("totals: 0\n")])


def test_parts_are_read_in_their_order(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        (tmp_path / f"x.callgrind.{number}").write_text(
            f"desc: Trigger: {number}\nfn=(1) main\n0 1\ntotals: 1\n"
        )
    (tmp_path / "x.callgrind").write_text("totals: 0\n")
    assert [part.trigger for part in read_parts(tmp_path, "x.callgrind")] == ["1", "2", "10"]


NAMES = st.sampled_from(
    ["main", "f", "f'2", "g(int, char*)", "h<a, b=(c)1>::call()", "operator new"]
)
LINES = st.lists(st.tuples(NAMES, NAMES, st.integers(0, 9), st.integers(0, 10**12)), max_size=20)


@given(LINES, st.booleans())
def test_what_is_written_is_read(lines: list[tuple[str, str, int, int]], compressed: bool) -> None:
    """Own costs and calls of any functions come back as their sums, with and without compression
    of names."""
    seen: dict[str, int] = {}

    def written(name: str) -> str:
        if not compressed:
            return name
        known = name in seen
        number = seen.setdefault(name, len(seen) + 1)
        return f"({number})" if known else f"({number}) {name}"

    text, own = "ob=x.so\n", Counter[str]()
    calls, cost = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for caller, callee, count, spent in lines:
        text += (
            f"fn={written(caller)}\n0 {spent}\ncfn={written(callee)}\ncalls={count} 0\n+1 {spent}\n"
        )
        own[caller] += spent
        calls[caller, callee] += count
        cost[caller, callee] += spent
    graph = combined([parse(f"{text}totals: {sum(own.values())}\n")])
    assert graph.total == sum(own.values())
    assert graph.own == {Function("x.so", name): spent for name, spent in own.items()}
    assert {(a.name, b.name): edge.calls for (a, b), edge in graph.edges.items()} == calls
    assert {(a.name, b.name): edge.cost for (a, b), edge in graph.edges.items()} == cost


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("dnnl_primitive_execute", "oneDNN"),
        ("dnnl::impl::primitive_execute(dnnl_primitive const*, dnnl::impl::exec_ctx_t&)", "oneDNN"),
        ("cblas_sgemm", "BLAS"),
        ("mkl_blas_sgemm", "MKL"),
        ("at::native::(anonymous namespace)::relu_kernel(at::TensorIteratorBase&)", "ATen"),
        ("at::native::AVX2::vectorized_loop(char**, long)", "ATen"),
        ("kernel", "Inductor"),
        ("at::native::conv2d_symint(at::Tensor const&)", ""),
        ("c10::impl::wrap_kernel_functor_unboxed_<at::native::AVX2::f>::call()", ""),
        ("dnnl_primitive_execute_elsewhere", ""),
        ("kernel_launch", ""),
    ],
)
def test_the_rule(name: str, owner: str) -> None:
    assert owner_of(name) == owner


def test_every_entry_says_why() -> None:
    assert all(entry.patterns and entry.owner and entry.reason for entry in ENTRIES)
