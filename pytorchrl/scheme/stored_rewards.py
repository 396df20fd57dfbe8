"""Stored rewards that differ from the environments' own: their normalisation, and their returns."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pytorchrl.agent.actors.layers.normalization import Moments, combined_moments
from storages.component.annotations import conform_named
from storages.component.hyper_parameters import Count, Positive, UnitInterval


class RewardNormalization:
    """Divides rewards by a running standard deviation, which all environments share.

    The mean is not subtracted, so that rewards keep their signs. As long as the standard deviation is zero, because all
    values are equal, rewards are only clipped.

    Args:
        kind: ``"returns"`` divides by the standard deviation of discounted returns, the sums
            ``R = gamma * R + reward`` that begin with each episode (the reward scaling of Engstrom et al.,
            "Implementation Matters in Deep Policy Gradients", arXiv 2005.12729); ``"rewards"`` by that of the rewards
            themselves.
        gamma: discount factor of one step.
        num_envs: E, the number of environments.
        clip: normalised rewards are clipped to [-clip, clip].

    Raises:
        ValueError: an argument has the wrong type or is outside its range.
    """

    def __init__(self, kind: Literal["rewards", "returns"], gamma: float, num_envs: int, clip: float = 10.0) -> None:
        self.kind, self.gamma, self.num_envs, self.clip = kind, gamma, num_envs, clip
        for name, annotation in _RANGES.items():
            setattr(self, name, conform_named(getattr(self, name), annotation, f"RewardNormalization: {name}"))
        self._moments: Moments = (0, np.zeros(1), np.zeros(1))
        self._returns = np.zeros((num_envs, 1))

    def __call__(
        self, reward: NDArray[np.floating], ended: NDArray[np.bool_], made: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float32]:
        """Return the rewards of a step, (E, 1) float32, normalised by all steps up to this one.

        Args:
            reward: (E, 1), from the environments, in the precision in which they differ; not modified.
            ended: (E, 1), whether the episode was terminated or truncated with this step.
            made: (E, 1), which environments made a transition; None where all did.

        Raises:
            ValueError: a reward is not finite.
        """
        finite = np.isfinite(reward)
        if not finite.all():
            env = int(np.flatnonzero(~finite)[0])
            raise ValueError(
                f"RewardNormalization: the reward of environment {env} is {reward[env, 0]}, which leaves no standard "
                f"deviation; make the environment's rewards finite, or do not normalise them"
            )
        values = reward.astype(np.float64)
        if self.kind == "returns":
            values += self._returns * self.gamma
            self._returns = np.where(ended, 0.0, values)
        if made is None:
            self._add(values)
        elif made.any():
            self._add(values[made[:, 0]])
        normalised: NDArray[np.float64] = reward / self._standard_deviation()
        return normalised.clip(-self.clip, self.clip).astype(np.float32)

    def begin_episodes(self, where: NDArray[np.bool_]) -> None:
        """Reset the discounted returns of some environments, (E, 1), whose running episodes were lost."""
        self._returns = np.where(where, 0.0, self._returns)

    def _add(self, values: NDArray[np.float64]) -> None:
        # Relative to the first, so that no squares come from rounding where all values are equal.
        first = values[0]
        mean = first + (values - first).mean(0)
        self._moments = combined_moments(self._moments, (len(values), mean, ((values - mean) ** 2).sum(0)))

    def _standard_deviation(self) -> Any:
        count, _, squares = self._moments
        # Zero exactly if all rewards are equal.
        return np.sqrt(squares / count) if squares else 1.0

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics and running returns, as tensors and plain data."""
        count, mean, squares = self._moments
        arrays = {"mean": mean, "squares": squares, "returns": self._returns}
        return {"count": count, **{name: torch.from_numpy(array.copy()) for name, array in arrays.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`.

        Raises:
            ValueError: the state has another number of environments.
        """
        returns: Tensor = state["returns"]
        if returns.shape != self._returns.shape:
            raise ValueError(
                f"RewardNormalization: the saved returns are of {len(returns)} environments, there are {self.num_envs}"
            )
        self._moments = (int(state["count"]), state["mean"].numpy().copy(), state["squares"].numpy().copy())
        self._returns = returns.numpy().copy()


_RANGES: Mapping[str, Any] = {
    "kind": Literal["rewards", "returns"],
    "gamma": UnitInterval,
    "num_envs": Count,
    "clip": Positive,
}


class ShapedReturns:
    """Sums stored rewards over the stored episodes, which wrappers may end earlier than the environment does.

    Args:
        num_envs: E, the number of environments.
    """

    def __init__(self, num_envs: int) -> None:
        self._running = np.zeros((num_envs, 1))
        self._ended: list[float] = []

    def add(self, reward: NDArray[np.floating], ended: NDArray[np.bool_]) -> None:
        """Add the rewards of a step, (E, 1), and whether the episodes ended with it, (E, 1)."""
        self._running += reward
        if ended.any():
            self._ended += self._running[ended].tolist()
            self._running[ended] = 0.0

    def begin_episodes(self, where: NDArray[np.bool_]) -> None:
        """Drop the running episodes of some environments, (E, 1)."""
        self._running[where] = 0.0

    def take(self) -> list[float]:
        """Return the returns of the episodes that ended since the last call, oldest first."""
        ended, self._ended = self._ended, []
        return ended

    def state_dict(self) -> dict[str, Any]:
        """Return the running sums and the returns not taken yet, as tensors and plain data."""
        return {"running": torch.from_numpy(self._running.copy()), "ended": list(self._ended)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._running, self._ended = state["running"].numpy().copy(), list(state["ended"])
