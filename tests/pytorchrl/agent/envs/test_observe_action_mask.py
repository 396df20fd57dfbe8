"""The wrapper that adds an environment's action mask to its observations."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ACT, OBS
from tests.support.toys import Counter


class Telling(gym.Wrapper[Any, Any, Any, Any]):
    """A counter that returns a mask in its infos, if given one, and has the method of MaskablePPO's environments."""

    def __init__(self, action_space: gym.Space[Any], mask: Any, in_info: bool) -> None:
        super().__init__(Counter())
        self.action_space = action_space
        self._given, self._in_info = mask, in_info
        if not in_info and mask is not None:
            self.action_masks = lambda: self._given

    def reset(self, **arguments: Any) -> Any:
        observation, info = self.env.reset(**arguments)
        return observation, self._told(info)

    def step(self, action: Any) -> Any:
        *rest, info = self.env.step(0)
        return *rest, self._told(info)

    def _told(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "action_mask": self._given} if self._in_info else info


@pytest.mark.parametrize("in_info", [True, False])
@pytest.mark.parametrize("actions", [spaces.Discrete(3), spaces.MultiDiscrete([1, 2])], ids=str)
def test_the_mask_of_the_info_or_of_the_method_is_a_part_of_observations(actions: Any, in_info: bool) -> None:
    env = prl.ObserveActionMask(Telling(actions, [True, False, True], in_info))
    first, _ = env.reset(seed=0)
    later, *_ = env.step(0)
    for observation in (first, later):
        assert observation in env.observation_space
        np.testing.assert_array_equal(observation["action_mask"], [1, 0, 1])
    plain, _ = Counter().reset(seed=0)
    np.testing.assert_array_equal(first["observation"], plain)


def test_it_is_added_to_the_parts_of_a_dict() -> None:
    env = gym.wrappers.TransformObservation(
        Telling(spaces.Discrete(2), [1, 0], True),
        lambda observation: {"a": observation},
        spaces.Dict({"a": Counter().observation_space}),
    )
    wrapped = prl.ObserveActionMask(env)
    assert isinstance(wrapped.observation_space, spaces.Dict)
    assert set(wrapped.observation_space.spaces) == {"a", "action_mask"}
    assert wrapped.reset(seed=0)[0] in wrapped.observation_space


def test_environments_that_it_cannot_wrap_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be Discrete or MultiDiscrete, the space is Box"):
        prl.ObserveActionMask(Telling(spaces.Box(-1, 1, (2,)), None, False))
    masked = prl.ObserveActionMask(Telling(spaces.Discrete(2), [1, 0], True))
    with pytest.raises(ValueError, match="have a part 'action_mask' already"):
        prl.ObserveActionMask(masked)


def test_a_mask_that_is_missing_or_of_another_size_is_named() -> None:
    with pytest.raises(ValueError, match=r"info\['action_mask'\] is missing.*no method action_masks"):
        prl.ObserveActionMask(Telling(spaces.Discrete(2), None, False)).reset()
    with pytest.raises(ValueError, match=r"must have 2 numbers, one for each action of Discrete\(2\), got 3"):
        prl.ObserveActionMask(Telling(spaces.Discrete(2), [1, 1, 0], True)).reset()


def test_a_run_in_taxi_is_composed_of_names_takes_allowed_actions_and_resumes(tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return prl.Scheme(
            prl.DQN.create_factory(start_steps=20, mini_batch_size=8, test_every=0, epsilon=0.3),
            prl.OffPolicyActor.create_factory(hidden_sizes=(8,), action_mask="action_mask"),
            prl.ReplayBuffer.create_factory(size=200),
            prl.VecEnv.create_factory("Taxi-v4", wrappers=["ObserveActionMask"]),
            seed=0,
        )

    whole = prl.Learner(scheme(), 60, tmp_path / "whole")
    whole.run()
    half = prl.Learner(scheme(), 30, tmp_path / "half")
    half.run()
    half.close()
    resumed = prl.Learner.resume(tmp_path / "half", target_steps=60)
    resumed.run()
    data, again = (each.scheme.storage.get_all_buffer_data() for each in (whole, resumed))
    allowed = data[OBS]["action_mask"].gather(-1, data[ACT])
    assert len(allowed) == 60
    assert allowed.all()
    assert not data[OBS]["action_mask"].all()
    assert (again[ACT] == data[ACT]).all()
    for learner in (whole, resumed):
        learner.close()


@pytest.mark.filterwarnings("default")
def test_a_mask_that_restricts_no_action_is_told(recwarn: pytest.WarningsRecorder) -> None:
    settings = {"env_kwargs": {"action_space": spaces.Discrete(3), "mask": [1, 0, 1], "in_info": True}}
    envs = prl.VecEnv.create_factory(Telling, wrappers=["ObserveActionMask"], **settings)
    for mask in (None, "action_mask"):
        actor = prl.OffPolicyActor.create_factory(hidden_sizes=(4,), action_mask=mask)
        prl.Scheme(prl.DQN.create_factory(), actor, prl.ReplayBuffer.create_factory(size=10), envs).close()
        told = [str(one.message) for one in recwarn if "restricts no action until" in str(one.message)]
        assert len(told) == 1
