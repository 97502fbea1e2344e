"""The checksum of the C++ worker is zlib's."""

from __future__ import annotations

import struct
import subprocess
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golow.levels.libtorch.build import SOURCES
from golow.levels.libtorch.toolchain import find_toolchain

CHECKSUM = """
#include <cstdio>
#include <vector>
#include "checksum.h"

// Records of a length and bytes, each read to another alignment, -> the checksum after each.
int main() {
  std::uint32_t checksum = 0, length = 0;
  while (std::fread(&length, 4, 1, stdin) == 1) {
    std::vector<char> memory(length + 8);
    char* const bytes = memory.data() + length % 8;
    if (std::fread(bytes, 1, length, stdin) != length) return 1;
    std::printf("%u\\n", checksum = golow::crc32(checksum, bytes, length));
  }
}
"""


@pytest.fixture(scope="module")
def checksum_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checksum")
    source, program = folder / "checksum.cpp", folder / "checksum"
    source.write_text(CHECKSUM)
    command = [*find_toolchain().compiler, "-std=c++17", f"-I{SOURCES}", source, "-o", program]
    subprocess.run(command, check=True)
    return program


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.binary(max_size=40) | st.just(bytes(range(256)) * 999), max_size=20))
def test_the_checksum_is_zlibs(checksum_program: Path, pieces: list[bytes]) -> None:
    records = b"".join(struct.pack("<I", len(piece)) + piece for piece in pieces)
    done = subprocess.run([checksum_program], input=records, capture_output=True, check=True)
    expected, checksum = [], 0
    for piece in pieces:
        expected.append(checksum := zlib.crc32(piece, checksum))
    assert [int(text) for text in done.stdout.split()] == expected
