"""Which kernels of a CUDA graph a launch changes, without a GPU."""

from __future__ import annotations

from ctypes import c_uint64, c_void_p

from hypothesis import given
from hypothesis import strategies as st

from golow.levels.direct.cudnn.bindings.pointed_kernels import Node, PointedKernels, Slot

ADDRESSES = st.lists(st.sampled_from([1 << 20, 2 << 20, 3 << 20]), min_size=3, max_size=3)
USES = st.lists(st.sampled_from([(0, 0), (0, 16), (1, 0), (2, 64)]), max_size=3)


def kernels(uses: list[list[tuple[int, int]]]) -> list[Node]:
    """Kernels with addresses of these places, each some bytes behind its beginning."""
    return [
        Node(c_void_p(k), None, tuple(Slot(*use, c_uint64(0)) for use in each), None)
        for k, each in enumerate(uses, 1)
    ]


def words(node: Node) -> list[int]:
    return [slot.word.value for slot in node.slots]


@given(uses=st.lists(USES, max_size=5), launches=st.lists(ADDRESSES, min_size=1, max_size=5))
def test_the_kernels_that_a_launch_changes_have_its_addresses(
    uses: list[list[tuple[int, int]]], launches: list[list[int]]
) -> None:
    """The others have them already. The executable graph has what each kernel had when it was
    returned last."""
    nodes = kernels(uses)
    pointed = PointedKernels(nodes)
    executable: dict[int | None, list[int]] = {}
    before: list[int] = []
    for addresses in launches:
        for node in pointed.point(before, addresses):
            assert executable.get(node.handle.value) != words(node), "nothing was to be changed"
            executable[node.handle.value] = words(node)
        wanted = {
            k: [addresses[place] + offset for place, offset in each]
            for k, each in enumerate(uses, 1)
            if each
        }
        assert executable == wanted
        before = addresses


def test_all_kernels_are_changed_where_their_addresses_are_unknown() -> None:
    nodes = kernels([[(0, 0)], [(1, 8), (0, 0)]])
    pointed = PointedKernels(nodes)
    assert pointed.places == {0, 1}
    assert len(pointed.point([], [16, 32])) == 2
    assert len(pointed.point([16, 32], [16, 48])) == 1
    assert len(pointed.point([], [16, 48])) == 2
    assert [words(node) for node in nodes] == [[16], [56, 16]]
