"""The weight for an image in blocks of pixels; it is arranged while a plan is loaded."""

from golow.levels.vendor.cudnn.builder import Builder
from golow.levels.vendor.implementation import Implementation
from golow.lower.operators.blocked_weight import BlockedWeight

IMPLEMENTATIONS = (Implementation(BlockedWeight, Builder.compute_when_loading),)
