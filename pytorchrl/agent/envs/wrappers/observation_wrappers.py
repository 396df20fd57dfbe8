"""Wrappers that select or add parts of observations."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.envs.shrinking import Shrinking
from pytorchrl.agent.envs.spaces import HybridBox, choices_of


class SelectObservation(gym.ObservationWrapper[Any, Any, Any]):
    """Select components of a vector, in the given order: CartPole without velocities is ``[0, 2]``.

    Args:
        env: whose observations are vectors.
        indices: of the components.

    Raises:
        ValueError: observations are not vectors, or an index is out of range.
    """

    def __init__(self, env: gym.Env[Any, Any], indices: Sequence[int]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"SelectObservation: observations must be vectors, the space is {space}")
        wrong = [index for index in indices if not 0 <= index < space.shape[0]]
        if wrong or not len(indices):
            raise ValueError(
                f"SelectObservation: indices must be some of 0 to {space.shape[0] - 1}, got {list(indices)}"
            )
        self._indices = np.array(indices)
        low, high = space.low[self._indices], space.high[self._indices]
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Select the components."""
        selected: NDArray[Any] = observation[self._indices]
        return selected


class ObservePixels(gym.ObservationWrapper[Any, Any, Any]):
    """Replace observations by rendered images of few pixels, (3, H, W), or (H, W) in grey, of uint8.

    Images are downscaled by averaging over each pixel's area. Channels come first, as convolutions take them, so that
    stored images need not be rearranged in each batch.

    Args:
        env: made with ``render_mode="rgb_array"``.
        size: height and width of an observation in pixels.
        grayscale: take the luminance of the three colours.

    Raises:
        ValueError: the environment renders no images, or smaller ones.
    """

    def __init__(self, env: gym.Env[Any, Any], size: int = 84, grayscale: bool = False) -> None:
        super().__init__(env)
        if env.render_mode != "rgb_array":
            raise ValueError(
                f'ObservePixels: the environment must be made with render_mode="rgb_array", that of {env} is '
                f"{env.render_mode!r}"
            )
        self._size, self._grayscale = size, grayscale
        self._shrink: Shrinking | None = None
        self.observation_space = spaces.Box(0, 255, (size, size) if grayscale else (3, size, size), np.uint8)

    def observation(self, observation: Any) -> NDArray[np.uint8]:
        """Render the state."""
        image: Any = self.env.render()
        height, width, _ = image.shape
        if self._shrink is None:
            if self._size > min(height, width):
                raise ValueError(
                    f"ObservePixels: size must be at most that of rendered images, {height} x {width}, got {self._size}"
                )
            self._shrink = Shrinking((height, width), (self._size, self._size))
        if self._grayscale:
            return self._shrink(np.rint(image @ _LUMINANCE).astype(np.uint8))
        return np.stack([self._shrink(np.ascontiguousarray(colour)) for colour in np.moveaxis(image, -1, 0)])


_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue (ITU-R BT.601)."""


class ObserveActionMask(gym.Wrapper[Any, Any, Any, Any]):
    """Add the mask of allowed actions to observations, as the part that ``action_mask`` of an actor names.

    The mask is taken from ``info[key]``, as gymnasium's Taxi-v4 returns it, or else from the environment's method
    ``action_masks()``, as those for MaskablePPO have it. Observations become a dict with the parts "observation" and
    "action_mask"; to those that are a dict already the part is added.

    Args:
        env: with a Discrete or MultiDiscrete action space.
        key: of the mask in ``info``, and name of the part.

    Raises:
        ValueError: the actions are of another kind, or observations have a part of that name already.
    """

    def __init__(self, env: gym.Env[Any, Any], key: str = "action_mask") -> None:
        super().__init__(env)
        actions, observations = env.action_space, env.observation_space
        if not isinstance(actions, spaces.Discrete | spaces.MultiDiscrete):
            of_scores = (
                "; scores of choices beside numbers, as JoinActions makes them, cannot be masked: let step() take the "
                "nearest allowed action, or make the numbers discrete, so that the space is MultiDiscrete"
            )
            raise ValueError(
                f"ObserveActionMask: actions must be Discrete or MultiDiscrete, the space is {actions}"
                f"{of_scores if isinstance(actions, HybridBox) else ''}"
            )
        self._key, self._size = key, sum(choices_of(actions))
        self._is_dict = isinstance(observations, spaces.Dict)
        parts = dict(observations.spaces) if isinstance(observations, spaces.Dict) else {"observation": observations}
        if key in parts:
            raise ValueError(f"ObserveActionMask: observations have a part {key!r} already, in {observations}")
        self.observation_space = spaces.Dict(parts | {key: spaces.MultiBinary(self._size)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._masked(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._masked(observation, info), reward, terminated, truncated, info

    def _masked(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        parts = observation if self._is_dict else {"observation": observation}
        return {**parts, self._key: self._mask(info)}

    def _mask(self, info: dict[str, Any]) -> NDArray[np.int8]:
        if self._key in info:
            given = info[self._key]
        elif self.env.has_wrapper_attr("action_masks"):
            given = self.env.get_wrapper_attr("action_masks")()
        else:
            raise ValueError(
                f"ObserveActionMask: info[{self._key!r}] is missing, there is {', '.join(info) or 'nothing'}, and "
                f"{self.env} has no method action_masks()"
            )
        mask = np.asarray(given).reshape(-1)
        if mask.size != self._size:
            raise ValueError(
                f"ObserveActionMask: the mask must have {self._size} numbers, one for each action of "
                f"{self.env.action_space}, got {mask.size}"
            )
        flags: NDArray[np.int8] = (mask != 0).astype(np.int8)
        return flags
