"""Checks that a vector environment follows gymnasium's interface, with readable errors."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pytorchrl.agent.envs.checks import InvalidEnvironmentError


def check_vector(envs: Any, num_envs: int, owner: str) -> None:
    """Refuse an object that is not a vector environment, or one of another size.

    Raises:
        InvalidEnvironmentError: it is not one, has no spaces, or has another number of environments.
    """
    if not isinstance(envs, VectorEnv):
        raise InvalidEnvironmentError(
            f"{owner}: {envs!r} is no gymnasium.vector.VectorEnv; derive it from that class, or leave out num_envs "
            f"from the parameters of a callable that makes one environment"
        )
    for name in ("single_observation_space", "single_action_space"):
        if not isinstance(getattr(envs, name, None), spaces.Space):
            raise InvalidEnvironmentError(
                f"{owner}: {envs} has no {name}; set it to one of gymnasium.spaces, that of one of its environments"
            )
    if envs.num_envs != num_envs:
        raise InvalidEnvironmentError(
            f"{owner}: {envs} has {envs.num_envs} environments, and num_envs is {num_envs}; let its constructor "
            f"take num_envs"
        )


def check_observation(observation: Any, space: Any, num_envs: int, origin: str) -> None:
    """Check a batch of observations (E, *obs), or a dict of such.

    Raises:
        InvalidEnvironmentError: it does not fit the space.
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, Mapping) or set(observation) != set(space.spaces):
            got = sorted(observation) if isinstance(observation, Mapping) else type(observation).__name__
            raise InvalidEnvironmentError(
                f"VecEnv: {origin} returned an observation of {got}; its space has {sorted(space.spaces)}"
            )
        for name, part in space.spaces.items():
            check_observation(observation[name], part, num_envs, f"{origin}, {name!r},")
        return
    expected, shape = (num_envs, *(space.shape or ())), tuple(getattr(observation, "shape", ()))
    if shape != expected:
        raise InvalidEnvironmentError(
            f"VecEnv: {origin} returned an observation of shape {shape}; for {num_envs} environments with "
            f"observations of {space}, it must be {expected}"
        )
    # Tensors are not converted.
    if isinstance(observation, np.ndarray) and not np.can_cast(observation.dtype, space.dtype, "same_kind"):
        raise InvalidEnvironmentError(
            f"VecEnv: {origin} returned an observation of dtype {observation.dtype}, which its space {space} would cut "
            f"to {space.dtype}; declare the space of {observation.dtype}, or return {space.dtype}"
        )


def check_flags(
    reward: NDArray[Any], terminated: NDArray[Any], truncated: NDArray[Any], *, num_envs: int, name: str
) -> None:
    """Check rewards and flags, (E,) each.

    Raises:
        InvalidEnvironmentError: they are of another shape or kind.
    """
    for what, values, kinds in (
        ("rewards", reward, "fiub"),
        ("terminated", terminated, "b"),
        ("truncated", truncated, "b"),
    ):
        if values.shape != (num_envs,) or values.dtype.kind not in kinds:
            raise InvalidEnvironmentError(
                f"VecEnv: step() of {name} returned {what} of {values.dtype}{values.shape}; they must be "
                f"{'numbers' if what == 'rewards' else 'booleans'} of shape {(num_envs,)}"
            )
