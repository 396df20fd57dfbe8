"""Tasks whose actions are a choice and its parameters, and the settings that actor-critics learn them with.

``python -m tests.support.hybrid_tasks Steering HyAR 1`` trains an algorithm with a seed.
"""

import sys
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

import pytorchrl as prl
from tests.support.training import train

LENGTH = 30
STEPS = 8_000
_RADIUS = 0.2
_TOO_FAR = 2.5
_ACTUATORS = 6
_ACCELERATE, _TURN = 0, 1


class Steering(gym.Env[NDArray[np.float32], Any]):
    """Drive to a target, and brake there, in the manner of Moving of gym-hybrid: three choices, two parameters.

    The first choice accelerates, its parameter is the acceleration in [0, 1]; the second turns, its parameter is the
    angle in half turns; the third brakes. Observations are the target's distance ahead and to the left, both as the
    driver sees them, and the speed. The reward is the distance gained, and 1 at the end of a success.
    """

    observation_space = spaces.Box(-4.0, 4.0, (3,), np.float32)

    def __init__(self) -> None:
        parameters = spaces.Box(np.array([0, -1], np.float32), np.array([1, 1], np.float32))
        self.action_space = spaces.Tuple((spaces.Discrete(3), parameters))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._speed, self._steps = 0.0, 0
        # The target, in a frame that moves with the driver.
        distance, angle = self.np_random.uniform([0.5, -np.pi], [1.5, np.pi])
        self._target = distance * np.array([np.cos(angle), np.sin(angle)])
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        choice, (acceleration, angle) = action
        before = np.linalg.norm(self._target)
        if choice == _ACCELERATE:
            self._speed = min(self._speed + 0.2 * float(acceleration), 0.3)
        elif choice == _TURN:
            turn = np.pi * float(angle)
            cos, sin = np.cos(turn), np.sin(turn)
            self._target = np.array([[cos, sin], [-sin, cos]]) @ self._target
        else:
            self._speed = 0.0
        self._target = self._target - np.array([self._speed, 0.0])
        distance = np.linalg.norm(self._target)
        self._steps += 1
        is_there = bool(distance < _RADIUS and self._speed == 0)
        is_cut = not is_there and bool(self._steps == LENGTH or distance > _TOO_FAR)
        return self._observation(), float(before - distance) + is_there, is_there, is_cut, {}

    def _observation(self) -> NDArray[np.float32]:
        return np.array([*self._target, self._speed], np.float32)


class Actuators(gym.Env[NDArray[np.float32], Any]):
    """Move to the origin by six actuators around a point, in the manner of Hard Move: 64 choices, six parameters.

    The choice is which of them are on, the parameters are their forces. The reward is the distance gained, minus 0.02,
    and 1 at the end of a success.
    """

    observation_space = spaces.Box(-3.0, 3.0, (2,), np.float32)
    action_space = spaces.Tuple((spaces.Discrete(2**_ACTUATORS), spaces.Box(-1.0, 1.0, (_ACTUATORS,), np.float32)))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._position, self._steps = self.np_random.uniform(-1, 1, 2), 0
        return self._position.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        choice, forces = action
        angles = np.arange(_ACTUATORS) * 2 * np.pi / _ACTUATORS
        directions = np.stack([np.cos(angles), np.sin(angles)], 1)
        are_on = (int(choice) >> np.arange(_ACTUATORS)) & 1
        before = np.linalg.norm(self._position)
        self._position = self._position + 0.15 * ((are_on * forces)[:, None] * directions).sum(0)
        after = np.linalg.norm(self._position)
        self._steps += 1
        is_there = bool(after < 0.1)
        is_cut = not is_there and bool(self._steps == 25 or after > 2)
        reward = float(before - after) + is_there - 0.02
        return self._position.astype(np.float32), reward, is_there, is_cut, {}


def hybrid_scheme(env: type[gym.Env[Any, Any]], algorithm: type[prl.OffPolicyAlgorithm], seed: int) -> prl.Scheme:
    """An actor-critic with few hyper-parameters of its own, for ``STEPS`` steps."""
    falling = prl.LinearSchedule(1e-3, 0.0)
    shared = {"lr_pi": falling, "lr_q": falling, "gamma": 0.98, "polyak": 0.99, "mini_batch_size": 128, "test_every": 0}
    return prl.Scheme(
        algorithm.create_factory(**shared),
        prl.OffPolicyActor.create_factory(hidden_sizes=(128, 128)),
        prl.ReplayBuffer.create_factory(size=STEPS),
        prl.VecEnv.create_factory(env, wrappers=["JoinActions"]),
        seed=seed,
    )


if __name__ == "__main__":
    task, name, chosen_seed = sys.argv[1:]
    learnt = train(hybrid_scheme(globals()[task], getattr(prl, name), int(chosen_seed)), STEPS)
    sys.stdout.write(f"{task}, {name}, seed {chosen_seed}: {learnt.evaluate(50).mean_return:.2f}\n")
