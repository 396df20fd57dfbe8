"""Action spaces that algorithms support, and the check of an environment's space."""

from typing import Any, Literal, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from pytorchrl.agent.envs.spaces import HybridBox, UnsupportedSpaceError, check_real_actions, check_widths

ActionKind: TypeAlias = Literal["any", "discrete", "box", "bounded", "hybrid"]
"""Any space, Discrete, Box, Box with finite bounds, or such a Box of choices and numbers that JoinActions made; a Box
must be of floating-point numbers."""
SCALED: frozenset[ActionKind] = frozenset({"bounded", "hybrid"})
"""Kinds with finite bounds: networks see actions scaled to [-1, 1]."""


def check_action_space(space: gym.Space[Any], kind: ActionKind, algorithm: str) -> None:
    """Check that an algorithm supports an action space.

    Raises:
        UnsupportedSpaceError: it does not; the message names the space and an alternative.
    """
    if kind == "discrete" and not isinstance(space, spaces.Discrete):
        several = isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary)
        way_out = "PPO learns several at once, wrappers=['FlattenAction'] enumerates their combinations"
        raise UnsupportedSpaceError(
            f"{algorithm} needs a Discrete action space, the environments have {space}; "
            f"{way_out if several else 'SAC and PPO act in a Box'}"
        )
    if kind == "hybrid" and not (isinstance(space, HybridBox) and space.choices):
        raise UnsupportedSpaceError(
            f"{algorithm} needs actions of discrete choices and continuous parameters, which wrappers=['JoinActions'] "
            f"joins from a Dict or a Tuple, the environments have {space}; TD3 and SAC act in any Box with finite "
            f"bounds, DQN and PPO choose among Discrete actions"
        )
    if kind in ("box", "bounded") and not isinstance(space, spaces.Box):
        raise UnsupportedSpaceError(
            f"{algorithm} needs a Box action space, the environments have {space}; DQN and PPO choose among Discrete "
            f"actions, PPO several at once"
        )
    if isinstance(space, spaces.Box):
        check_real_actions(space, algorithm)
        if kind in SCALED and not (np.isfinite(space.low) & np.isfinite(space.high)).all():
            raise UnsupportedSpaceError(
                f"{algorithm} needs finite bounds of every action, the environments have {space}; "
                f"wrappers=[('BoundAction', {{'low': -1.0, 'high': 1.0}})] gives bounds, PPO needs none"
            )
        if kind in SCALED:
            check_widths(space, algorithm)
