"""The weight of a convolution over blocks of pixels, arranged when a plan is loaded."""

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.loading import compute_when_loading
from golow.levels.vendor.onednn.refusing import refuse_integers
from golow.lower.operators.blocked_weight import BlockedWeight

IMPLEMENTATIONS = (Implementation(BlockedWeight, compute_when_loading, refuse_integers),)
