"""Clipping by norm: `updating` computes the factor, once all gradients are there."""

from __future__ import annotations

from golow.levels.direct.cudnn.build.builder import Builder
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.clip_factor import ClipFactor


def clip_factor(build: Builder, arguments: ClipFactor) -> None:
    """Take the largest norm, and a place for the factor."""
    factor = build.memory.new(build.current.output().name, (), Layout("float32"), "state")
    build.updating.clip, build.updating.factor = arguments, factor
    build.values.define(0, factor)


IMPLEMENTATIONS = (Implementation(ClipFactor, clip_factor),)
