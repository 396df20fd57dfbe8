"""Spaces of actions that the wrapper JoinActions joins from a choice and its parameters."""

import numpy as np
from gymnasium import spaces

from pytorchrl.agent.envs.hybrid_box import HybridBox

PARTS = spaces.Dict(
    angle=spaces.Box(np.float32(-2), np.float32(1), (1,)),
    kind=spaces.Discrete(3, start=1),
    speed=spaces.Box(np.float32(0), np.float32(1), ()),
)
"""A choice of three, between its two parameters."""


def joined() -> HybridBox:
    """The Box of ``PARTS``: a parameter in [-2, 1], three scores, and a parameter in [0, 1]."""
    low, high = np.array([-2, -1, -1, -1, 0], np.float32), np.array([1, 1, 1, 1, 1], np.float32)
    return HybridBox(low, high, np.float32, [(1, 3)])
