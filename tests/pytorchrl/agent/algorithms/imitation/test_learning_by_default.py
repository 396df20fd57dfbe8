"""GAIL and AIRL imitate by their defaults, whether episodes terminate or not."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations

STEPS = 40
"""Of an episode that does not terminate."""


class Ring(gym.Env[Any, Any]):
    """A cyclic task without an end: the right action goes on round three states, and a round pays 1."""

    number = 3
    best = 13.0
    """Return of the policy that is always right."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0, 1, (self.number,), np.float32)
        self.action_space = gym.spaces.Discrete(self.number)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = self.made = 0
        return self.seen(), {}

    def seen(self) -> Any:
        return np.eye(self.number, dtype=np.float32)[self.state]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.made += 1
        reward, terminated = self.move(action == self.state)
        return self.seen(), reward, terminated, self.made >= STEPS, {}

    def move(self, right: bool) -> tuple[float, bool]:
        reward = float(right and self.state == self.number - 1)
        self.state = (self.state + right) % self.number
        return reward, False


class Staying(Ring):
    """An endless task: the last of five states pays 1 a step, and a wrong action there leads back to the first."""

    number = 5
    best = 37.0

    def move(self, right: bool) -> tuple[float, bool]:
        last = self.number - 1
        if self.state < last:
            self.state += right
        elif not right:
            self.state = 0
        return float(self.state == last), False


class Failing(Ring):
    """An episodic task: a ring of five states in which a wrong action ends the episode, and others pay 1."""

    number = 5
    best = 40.0

    def move(self, right: bool) -> tuple[float, bool]:
        self.state = (self.state + right) % self.number
        return float(right), not right


def right_actions(seen: Any) -> Any:
    """Return the right actions (E, 1) by observations (E, n)."""
    return seen.argmax(1)[:, None]


def imitated(cls: Any, env: type[Ring], folder: Path, target_steps: int = 24_000, **settings: Any) -> float:
    """The mean return of the policy that imitates one which is always right."""
    envs, data = prl.VecEnv.create_factory(env, 8), folder / "expert.npz"
    collect_demonstrations(right_actions, envs, path=data, episodes=8)
    scheme = prl.Scheme(
        cls.create_factory(gamma=0.9, test_every=0, **settings),
        prl.OnPolicyActor.create_factory(hidden_sizes=(32,)),
        prl.GAEBuffer.create_factory(size=64),
        envs,
        sources={"expert": prl.from_dataset(prl.ReplayBuffer.create_factory(size=5_000), data)},
        seed=1,
    )
    with prl.Learner(scheme, target_steps, folder / "run") as learner:
        learner.run()
        return learner.evaluate(episodes=2).mean_return


@pytest.mark.long
@pytest.mark.parametrize("env", [Ring, Staying, Failing])
@pytest.mark.parametrize("cls", [prl.GAIL, prl.AIRL])
def test_the_default_discriminator_teaches_endless_cyclic_and_episodic_tasks(
    cls: Any, env: type[Ring], tmp_path: Path
) -> None:
    assert imitated(cls, env, tmp_path) == env.best


@pytest.mark.long
def test_a_discriminator_of_few_steps_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r"GAIL: the discriminator was right in .*discriminator_epochs \(now 5\)"):
        imitated(prl.GAIL, Ring, tmp_path, discriminator_epochs=5)


@pytest.mark.long
def test_a_reward_of_states_alone_is_named_where_airl_does_not_learn(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r'In a cyclic task, .* take reward_of="state-action"$'):
        imitated(prl.AIRL, Ring, tmp_path, reward_of="state")
