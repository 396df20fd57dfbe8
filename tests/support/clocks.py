"""A vector environment with predictable numbers in each autoreset mode of gymnasium."""

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class Clocks(VectorEnv[Any, Any, Any]):
    """Observes the numbers of the episode and its step; the reward is the step plus a hundredth of the action.

    Args:
        num_envs: number of environments; episodes of environment ``e`` have ``2 + e`` steps.
        mode: when the next episode begins.
        end: "terminated" or "truncated".
        kind: "array", "tensor" for tensors, "same array" for one that is overwritten, "double" for another dtype than
            that of the space, "dict" for a dict of arrays.
        says_final: whether SAME_STEP reports last observations.
        device: device of tensors.
    """

    def __init__(
        self,
        num_envs: int,
        mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        end: str = "terminated",
        kind: str = "array",
        says_final: bool = True,
        device: str = "cpu",
    ) -> None:
        self._device = device
        self.num_envs, self._mode, self._end, self._kind, self._says_final = num_envs, mode, end, kind, says_final
        self.metadata = {"autoreset_mode": mode}
        numbers = spaces.Box(0, np.inf, (2,), np.float32)
        self.single_observation_space: gym.Space[Any] = spaces.Dict({"clock": numbers}) if kind == "dict" else numbers
        self.single_action_space = spaces.Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._lengths = 2 + np.arange(num_envs)
        self._shown = np.zeros((num_envs, 2), np.float32)
        self.seeds: list[int | None] = []
        self.given: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if options is None:
            self.seeds.append(seed)
            self._episode, self._time = np.zeros(self.num_envs, int), np.zeros(self.num_envs, int)
            self._over = np.zeros(self.num_envs, bool)
        else:
            self._begin(options["reset_mask"])
        return self._observation(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.given.append(actions)
        begins = self._over.copy() if self._mode is AutoresetMode.NEXT_STEP else np.zeros(self.num_envs, bool)
        self._begin(begins)
        self._time[~begins] += 1
        given = actions.cpu().numpy() if isinstance(actions, torch.Tensor) else actions
        reward = np.where(begins, 0.0, self._time + given / 100)
        self._over = (self._time == self._lengths) & ~begins
        over, infos = self._over.copy(), {"is_success": self._time % 2 == 0}
        if self._mode is AutoresetMode.SAME_STEP and over.any():
            infos = {"final_info": infos} | ({"final_obs": deepcopy(self._observation())} if self._says_final else {})
            self._begin(over)
        ends = [over, np.zeros_like(over)] if self._end == "terminated" else [np.zeros_like(over), over]
        if self._kind == "tensor":
            return self._observation(), *(torch.from_numpy(part).to(self._device) for part in (reward, *ends)), infos
        return self._observation(), reward, *ends, infos

    def _begin(self, where: Any) -> None:
        self._episode[where] += 1
        self._time[where] = 0
        self._over[where] = False

    def _observation(self) -> Any:
        numbers = np.stack([self._episode, self._time], axis=1).astype(np.float32)
        match self._kind:
            case "tensor":
                return torch.from_numpy(numbers).to(self._device)
            case "same array":
                self._shown[:] = numbers
                return self._shown
            case "double":
                return numbers.astype(np.float64)
            case "dict":
                return {"clock": numbers}
        return numbers


class RememberedClocks(Clocks):
    """Clocks whose state can be saved and loaded."""

    def state_dict(self) -> dict[str, Any]:
        return {"episode": self._episode.copy(), "time": self._time.copy(), "over": self._over.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._episode, self._time, self._over = (state[name].copy() for name in ("episode", "time", "over"))
