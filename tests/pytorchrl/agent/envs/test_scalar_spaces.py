"""Box spaces without axes work for observations and actions, in training and after resuming."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ACT, OBS
from tests.support.comparison import assert_equal
from tests.support.training import saved_and_loaded, train


class Follow(gym.Env[Any, Any]):
    """Observes a number and rewards actions close to it."""

    def __init__(self, as_dict: bool = False, low: float = -1.0) -> None:
        number = spaces.Box(-1, 1, (), np.float32)
        self.observation_space = spaces.Dict(number=number) if as_dict else number  # type: ignore[assignment]
        self.action_space = spaces.Box(low, 1, (), np.float64)
        self.as_dict = as_dict
        self.number = np.float32(0)
        self.steps = 0

    def observation(self) -> Any:
        self.number = np.float32(self.np_random.uniform(-1, 1))
        return {"number": self.number} if self.as_dict else self.number

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(np.asarray(action)), action
        self.steps += 1
        reward = -abs(float(action) - float(self.number))
        return self.observation(), reward, False, self.steps >= 8, {}


@pytest.mark.quick_share(0.4, long=0.7)
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("as_dict", [False, True])
@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_runs_with_scalar_spaces_train_and_resume(algorithm: str, as_dict: bool, mode: str, normalize: bool) -> None:
    if mode == "async" and normalize:
        pytest.skip("normalisation is tested with sync environments alone")

    def scheme() -> prl.Scheme:
        envs = prl.VecEnv.create_factory(
            Follow, num_envs=2, mode=mode, env_kwargs={"as_dict": as_dict, "low": -0.5 if as_dict else -1.0}
        )
        if algorithm == "ppo":
            return prl.Scheme(
                prl.PPO.create_factory(num_epochs=1, num_mini_batch=1, test_every=40, num_test_episodes=1),
                prl.OnPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=normalize),
                prl.GAEBuffer.create_factory(size=10),
                envs,
            )
        return prl.Scheme(
            prl.SAC.create_factory(start_steps=20, mini_batch_size=8, test_every=40, num_test_episodes=1),
            prl.OffPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=normalize),
            prl.ReplayBuffer.create_factory(size=50),
            envs,
        )

    one, other = train(scheme(), 40), scheme()
    data = one.storage.get_all_buffer_data()
    observed = data[OBS]["number"] if as_dict else data[OBS]
    assert observed.shape[2:] == data[ACT].shape[2:] == (1,)
    assert -8 <= one.evaluate(2).mean_return < 0
    assert other.load_state_dict(saved_and_loaded(one.state_dict())) == []
    for scheme_here in (one, other):
        train(scheme_here, 60).close()
    assert_equal(one.algorithm.get_weights(), other.algorithm.get_weights())
