"""The weights of layers that are computed as one; they are joined while a plan is loaded."""

from golow.levels.direct.cudnn.build.load_once import compute_when_loading
from golow.levels.direct.cudnn.problems.element_types import OF_8_BITS
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.joined_weight import JoinedWeight

IMPLEMENTATIONS = (Implementation(JoinedWeight, compute_when_loading, reads=OF_8_BITS),)
