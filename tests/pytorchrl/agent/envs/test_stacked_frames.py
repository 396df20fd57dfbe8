"""Environments report that their observations are stacked frames, and storages keep each frame once."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.storages import SampleError
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2


class Screen(gym.Env[Any, Any]):
    """Observes random pixels, or a dict of pixels and a number; an episode has 1 to 8 steps."""

    def __init__(self, side: int = 8, mode: str = "pixels") -> None:
        self.mode = mode
        self.pixels = spaces.Box(0, 255, (side, side), np.uint8)
        self.observation_space = (
            self.pixels
            if mode == "pixels"
            else spaces.Dict({"pixels": self.pixels, "speed": spaces.Box(-1, 1, (1,), np.float32)})
        )
        self.action_space = spaces.Discrete(3)

    def _observe(self) -> Any:
        pixels = self.np_random.integers(0, 256, self.pixels.shape, np.uint8)
        speed = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return pixels if self.mode == "pixels" else {"pixels": pixels, "speed": speed}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 9))
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return self._observe(), 1.0, self.left == 0, False, {}


def stacked(depth: int = 4, padding: Any = "reset") -> Any:
    return ("FrameStackObservation", {"stack_size": depth, "padding_type": padding})


def steps_of(envs: prl.VecEnv, steps: int) -> list[dict[str, Any]]:
    obs, done, samples = envs.reset(seed=1), np.ones((envs.num_envs, 1), bool), []
    for _ in range(steps):
        actions = np.zeros((envs.num_envs, 1), np.int64)
        step = envs.step(actions)
        samples.append(
            {
                OBS: obs,
                DONE: done,
                ACT: actions,
                REW: step.reward,
                OBS2: step.next_observation,
                DONE2: step.terminated,
                TRUNC2: step.truncated,
            }
        )
        obs, done = step.observation, step.terminated | step.truncated
    return samples


def replay_buffer(envs: prl.VecEnv, size: int) -> Any:
    algorithm: Any = type("Algorithm", (), {"gamma": 0.99})()
    return prl.ReplayBuffer.create_factory(size=size)("cpu", None, algorithm, envs)


@pytest.mark.parametrize("padding", ["reset", "zero", np.full((8, 8), 7, np.uint8)], ids=["reset", "zero", "custom"])
def test_stored_stacks_are_returned_unchanged_for_every_padding(padding: Any) -> None:
    envs = prl.VecEnv.create_factory(Screen, num_envs=2, wrappers=[stacked(4, padding)])()
    storage = replay_buffer(envs, size=10)
    samples = steps_of(envs, 50)
    for sample in samples:
        storage.insert_transition(sample)
    data = storage.get_all_buffer_data()
    for number, sample in enumerate(samples[-10:]):
        assert np.array_equal(data[OBS][number], sample[OBS])
        assert np.array_equal(data[OBS2][number], sample[OBS2])
    envs.close()


def test_a_stack_of_four_frames_of_84_by_84_takes_little_more_than_one_frame() -> None:
    envs = prl.VecEnv.create_factory(Screen, env_kwargs={"side": 84}, wrappers=[stacked()])()
    storage = replay_buffer(envs, size=5_000)
    for sample in steps_of(envs, 30):
        storage.insert_transition(sample)
    assert storage.nbytes / storage.capacity < 7_200
    envs.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_stack_depth_is_detected_among_other_wrappers(mode: Any) -> None:
    for wrappers, expected in (
        ([], 0),
        ([stacked(4)], 4),
        ([stacked(3), ("TimeLimit", {"max_episode_steps": 5})], 3),
        ([stacked(4), "FlattenObservation"], 0),
        ([stacked(1)], 0),
    ):
        envs = prl.VecEnv.create_factory(Screen, mode=mode, wrappers=wrappers)()
        assert envs.stacked_frames == expected
        envs.close()


def test_dict_observations_are_stacked_leaf_by_leaf() -> None:
    envs = prl.VecEnv.create_factory(Screen, env_kwargs={"mode": "dict"}, wrappers=[stacked(3)])()
    storage = replay_buffer(envs, size=5)
    samples = steps_of(envs, 20)
    for sample in samples:
        storage.insert_transition(sample)
    last = storage.get_data_slice(4, 5)
    for name in ("pixels", "speed"):
        assert np.array_equal(last[OBS][name][0], samples[-1][OBS][name])
        assert np.array_equal(last[OBS2][name][0], samples[-1][OBS2][name])
    envs.close()


def test_an_observation_that_is_not_a_stack_is_refused_with_a_remedy_and_not_stored() -> None:
    envs = prl.VecEnv.create_factory(Screen, wrappers=[stacked(4)])()
    storage = replay_buffer(envs, size=5)
    first, second = steps_of(envs, 2)
    storage.insert_transition(first)
    second = second | {OBS2: second[OBS2] + 1}
    with pytest.raises(
        SampleError, match=r"at step 1 is not Observation shifted by one of its 4 frames.*stacked_frames=0"
    ):
        storage.insert_transition(second)
    assert len(storage) == 1
    assert np.array_equal(storage.get_all_buffer_data()[OBS][0], first[OBS])
    envs.close()
    whole = prl.VecEnv.create_factory(Screen, wrappers=[stacked(4)], stacked_frames=0)()
    keeps_whole = replay_buffer(whole, size=5)
    for sample in (first, second):
        keeps_whole.insert_transition(sample)
    assert np.array_equal(keeps_whole.get_all_buffer_data()[OBS2][1], second[OBS2])
    whole.close()


def test_a_stack_depth_that_differs_from_the_observations_is_refused() -> None:
    envs = prl.VecEnv.create_factory(Screen, wrappers=[stacked(4)], stacked_frames=3)()
    with pytest.raises(SampleError, match=r"stack of 3 frames, but its shape is \(4, 8, 8\)"):
        replay_buffer(envs, size=5).insert_transition(steps_of(envs, 1)[0])
    envs.close()
    envs = prl.VecEnv.create_factory(Screen, stacked_frames={"pixel": 3})()
    with pytest.raises(SampleError, match=r"Observation\['pixel'\] is to be a stack of 3 frames, but"):
        replay_buffer(envs, size=5).insert_transition(steps_of(envs, 1)[0])
    envs.close()


@pytest.mark.parametrize("depth", [1, -2, 256])
def test_an_invalid_stack_depth_is_refused_when_the_factory_is_created(depth: int) -> None:
    with pytest.raises(ValueError, match=rf"stacked_frames must be 0, or lie in \[2, 255\], got {depth}"):
        prl.VecEnv.create_factory(Screen, stacked_frames=depth)


def test_a_state_with_another_stack_depth_is_refused() -> None:
    four, whole = (
        prl.VecEnv.create_factory(Screen, wrappers=[stacked(4)], stacked_frames=frames)() for frames in (None, 0)
    )
    storage = replay_buffer(four, size=5)
    storage.insert_transition(steps_of(four, 1)[0])
    with pytest.raises(ValueError, match="stacked frames"):
        replay_buffer(whole, size=5).load_state_dict(storage.state_dict())
    for envs in (four, whole):
        envs.close()


def test_on_policy_rollouts_hold_stacked_frames() -> None:
    envs = prl.VecEnv.create_factory(Screen, num_envs=2, wrappers=[stacked(4)])()
    algorithm: Any = type("Algorithm", (), {"gamma": 0.99})()
    storage = prl.GAEBuffer.create_factory(size=8)("cpu", None, algorithm, envs)
    samples = steps_of(envs, 20)
    for begin in (0, 8):
        storage.reset()
        for sample in samples[begin : begin + 8]:
            storage.insert_transition(sample | {"Value": np.zeros((2, 1), np.float32)})
        data = storage.get_all_buffer_data()
        for number, sample in enumerate(samples[begin : begin + 8]):
            assert np.array_equal(data[OBS][number], sample[OBS])
    envs.close()
