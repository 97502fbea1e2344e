"""The check of a service: its answers are outputs, which golow's rule checks, or classes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from golow.programs.load.missing_answers import missing
from golow.records.comparison import Check

if TYPE_CHECKING:
    from golow.programs.load.proof import Proof

CLASS, OUTPUT = b"c", b"o"
"""Letters before an answer: a class as int64, or a row of the first output."""


class ServiceProof:
    """Checks answers against the reference of `Proof`."""

    def __init__(self, proof: Proof) -> None:
        self._proof, self.count = proof, proof.count

    def judge(self, answers: Sequence[tuple[int, bytes]]) -> Check:
        """The verdict on all answers: every sample must have one."""
        return missing(answers, self.count) or self.judge_some(answers)

    def judge_some(self, answers: Sequence[tuple[int, bytes]]) -> Check:
        """The verdict on these answers alone."""
        for index, content in answers:
            if content[:1] == CLASS:
                (found,) = struct.unpack("<q", content[1:])
                classes = self._proof.classes_of(index)
                if found not in classes:
                    reason = f"sample {index} is of class {found}, not {classes[0]}"
                    return Check(verdict="differs", reason=reason)
        outputs = [(index, data[1:]) for index, data in answers if data[:1] == OUTPUT]
        return self._proof.judge_some(outputs, places=1)
