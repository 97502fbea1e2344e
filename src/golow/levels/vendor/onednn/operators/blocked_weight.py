"""The weight for an image in blocks of pixels; it is arranged while a plan is loaded."""

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.loading import compute_when_loading
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.operators.blocked_weight import BlockedWeight

IMPLEMENTATIONS = (Implementation(BlockedWeight, compute_when_loading, refuse_integers),)
