"""Vector environments keep the final observations of episodes and refuse unsupported spaces, ids and wrappers."""

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.envs.checks import CHECKED_STEPS
from pytorchrl.agent.envs.copies.copies import seeds_of_copies
from tests.support.toys import Counter, Noise


def leaf(observation: Any) -> Any:
    return observation["count"] if isinstance(observation, dict) else observation


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("kind", ["vector", "image", "discrete", "dict"])
def test_the_last_step_returns_the_final_and_the_next_first_observation(kind: str, mode: str) -> None:
    envs = prl.VecEnv.create_factory(Counter, num_envs=2, mode=mode, env_kwargs={"kind": kind, "length": 2})()
    first = envs.reset(seed=0)
    assert np.all(leaf(first) == 0)
    actions = np.zeros((2, 1), np.int64)
    step = envs.step(actions)
    assert not step.terminated.any()
    assert np.all(leaf(step.observation) == 1)
    assert np.all(leaf(step.next_observation) == 1)
    step = envs.step(actions)
    envs.close()
    assert step.terminated.all()
    assert not step.truncated.any()
    assert np.all(leaf(step.observation) == 0)
    assert np.all(leaf(step.next_observation) == 2)
    assert leaf(step.next_observation).dtype == leaf(first).dtype
    assert step.reward.shape == step.terminated.shape == step.truncated.shape == (2, 1)


def test_scalar_observations_and_actions_have_a_trailing_axis() -> None:
    envs = prl.VecEnv.create_factory(Counter, num_envs=3, env_kwargs={"kind": "discrete"})()
    assert envs.reset(seed=0).shape == (3, 1)
    assert envs.step(np.ones((3, 1), np.int64)).next_observation.shape == (3, 1)


@pytest.mark.parametrize(
    ("actions", "given"),
    [
        (np.zeros(3, np.int64), r"got int64 of shape \(3,\); actions\[:, None\] has it"),
        (np.zeros((2, 1), np.int64), r"got int64 of shape \(2, 1\)"),
        (np.zeros((1, 1), np.int64), r"got int64 of shape \(1, 1\)"),
        (np.zeros((3, 1)), r"got float64 of shape \(3, 1\)"),
        (torch.zeros(3, 1), r"got torch.float32 of shape \(3, 1\)"),
        ([[0], [0], [0]], "got a list"),
    ],
)
def test_actions_of_another_shape_or_dtype_are_refused_with_those_wanted(actions: Any, given: str) -> None:
    envs = prl.VecEnv(Counter, num_envs=3)
    envs.reset(seed=0)
    space = re.escape(str(envs.action_space))
    with pytest.raises(
        ValueError,
        match=rf"VecEnv: actions of 3 environments with the action space {space} must be integers of shape \(3, 1\), "
        + given
        + "$",
    ):
        envs.step(actions)
    for dtype in (np.int64, np.int32, np.uint8, bool):
        envs.step(np.zeros((3, 1), dtype))


def test_actions_of_a_box_need_an_axis_of_environments_and_any_precision() -> None:
    envs = prl.VecEnv("Pendulum-v1", num_envs=2)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"must be numbers of shape \(2, 1\), got float32 of shape \(1,\)$"):
        envs.step(np.zeros(1, np.float32))
    for dtype in (np.float16, np.float64, np.int64):
        envs.step(np.zeros((2, 1), dtype))
    envs.close()


def test_only_the_environment_that_ended_gets_its_final_observation() -> None:
    lengths = iter([2, 5])
    envs = prl.VecEnv(lambda: Counter(length=next(lengths), end="truncated"), num_envs=2)
    # The lengths differ, so that only the first environment ends in the second step.
    envs.reset(seed=0)
    envs.step(np.zeros((2, 1), np.int64))
    step = envs.step(np.zeros((2, 1), np.int64))
    np.testing.assert_array_equal(step.truncated[:, 0], [True, False])
    np.testing.assert_array_equal(step.next_observation[:, 0], [2, 2])
    np.testing.assert_array_equal(step.observation[:, 0], [0, 2])


def test_returned_arrays_are_not_overwritten_by_later_steps() -> None:
    envs = prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": 2})()
    envs.reset(seed=0)
    step = envs.step(np.zeros((2, 1), np.int64))
    before = step.observation.copy(), step.next_observation.copy(), step.reward.copy()
    envs.step(np.zeros((2, 1), np.int64))
    for kept, copy in zip((step.observation, step.next_observation, step.reward), before, strict=True):
        np.testing.assert_array_equal(kept, copy)


class OverwritesObservation(Counter):
    """Returns the same array from every step and reset, overwritten in place."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._written: Any = None

    def _observation(self) -> Any:
        observation = super()._observation()
        if self._written is None:
            self._written = observation
        elif self.kind == "dict":
            for name, part in self._written.items():
                part[...] = observation[name]
        else:
            self._written[...] = observation
        return self._written


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("wrappers", [(), [("ScaleReward", {"factor": 2.0})]])
@pytest.mark.parametrize("kind", ["vector", "dict"])
def test_a_final_observation_is_kept_when_the_reset_overwrites_its_array(kind: str, wrappers: Any, mode: str) -> None:
    env_kwargs = {"kind": kind, "length": 2}
    envs = prl.VecEnv.create_factory(OverwritesObservation, 2, mode=mode, wrappers=wrappers, env_kwargs=env_kwargs)()
    envs.reset(seed=0)
    envs.step(np.zeros((2, 1), np.int64))
    step = envs.step(np.zeros((2, 1), np.int64))
    envs.close()
    assert np.all(leaf(step.next_observation) == 2)
    assert np.all(leaf(step.observation) == 0)


class VaryingInfos(Noise):
    """Returns infos whose keys vary between steps."""

    def reset(self, **arguments: Any) -> Any:
        observation, _ = super().reset(**arguments)
        return observation, {"begins": True}

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = super().step(action)
        info: dict[str, Any] = {"place": observation[:2], "inside": {"reward": reward, "name": "one"}}
        return observation, reward, terminated, truncated, info | ({"great": 1} if reward > 0.5 else {})


def test_infos_have_the_layout_of_gymnasiums_vector_environments() -> None:
    ours = prl.VecEnv.create_factory(VaryingInfos, num_envs=3)()
    theirs = gym.vector.SyncVectorEnv([VaryingInfos] * 3, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    seeds = seeds_of_copies(np.random.SeedSequence(5), 3)
    np.testing.assert_array_equal(ours.reset(seed=5), theirs.reset(seed=seeds)[0])
    ended = 0
    for _ in range(50):
        step = ours.step(np.zeros((3, 1), np.int64))
        *_, expected = theirs.step(np.zeros(3, np.int64))
        ended += int(np.sum(step.terminated | step.truncated))
        expected.pop("final_obs", None)
        expected.pop("_final_obs", None)
        assert step.infos.keys() == expected.keys()
        assert len(step.infos) == len(expected)
        np.testing.assert_equal(dict(step.infos), expected)
    assert ended


class Shrinks(Counter):
    """Observes too few numbers after the checked steps."""

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return observation[: 1 if self.count > 2 * CHECKED_STEPS else 2], *rest


def test_an_observation_of_another_shape_is_refused_after_the_checked_steps() -> None:
    envs = prl.VecEnv.create_factory(Shrinks, num_envs=2, env_kwargs={"length": 10**6})()
    envs.reset(seed=0)
    for _ in range(2 * CHECKED_STEPS):
        envs.step(np.zeros((2, 1), np.int64))
    with pytest.raises(ValueError, match="shape"):
        envs.step(np.zeros((2, 1), np.int64))


def test_equal_seeds_give_equal_environments_and_copies_differ() -> None:
    def rollout() -> list[Any]:
        envs = prl.VecEnv.create_factory(Noise, num_envs=2)()
        seen = [envs.reset(seed=5)]
        seen += [envs.step(np.zeros((2, 1), np.int64)).next_observation for _ in range(20)]
        return seen

    first, second = rollout(), rollout()
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first[0][0], first[0][1])


def test_actions_of_a_discrete_space_count_from_its_start() -> None:
    made: list[Counter] = []

    def make() -> Counter:
        made.append(Counter(actions=spaces.Discrete(3, start=5)))
        return made[-1]

    envs = prl.VecEnv(make)
    envs.reset(seed=0)
    envs.step(np.array([[0]]))
    envs.step(np.array([[2]]))
    assert made[-1].actions == [5, 7]


def test_wrappers_are_applied_in_order_by_name_by_pair_and_by_callable() -> None:
    envs = prl.VecEnv.create_factory(
        Counter,
        wrappers=[
            ("FrameStackObservation", {"stack_size": 4}),
            "FlattenObservation",
            partial(gym.wrappers.TransformReward, func=lambda reward: 10 * reward),
        ],
    )()
    assert envs.reset(seed=0).shape == (1, 8)
    assert envs.step(np.zeros((1, 1), np.int64)).reward.item() == 10


def test_an_unknown_id_is_refused_when_the_factory_is_made() -> None:
    with pytest.raises(ValueError, match=r"VecEnv: env 'CartPoole-v1' is no registered gymnasium id.*CartPole"):
        prl.VecEnv.create_factory("CartPoole-v1")


def test_an_id_with_a_module_is_refused_with_the_import_to_write() -> None:
    with pytest.raises(ValueError, match=r"Write import mine, or --import mine of a command, and 'Mine-v0'"):
        prl.VecEnv("mine:Mine-v0")


@pytest.mark.parametrize("package", ["ale_py", "gymnasium_robotics"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_ids_of_other_packages_are_found_without_an_import_by_the_user(
    package: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = f"OnceImported/{package}-{mode}-v0"
    (tmp_path / f"{package}.py").write_text(
        f"import gymnasium\ngymnasium.register({env!r}, 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for known, name in ((sys.modules, package), (gym.registry, env)):
        monkeypatch.setitem(known, name, None)  # put back as it was, afterwards
        del known[name]
    envs = prl.VecEnv.create_factory(env, num_envs=2, mode=mode)()
    assert envs.reset(seed=0).shape == (2, 4)
    envs.close()


@pytest.mark.parametrize("env", [Counter, "Mine-v0"], ids=["class", "id"])
def test_composing_with_an_environment_of_ones_own_imports_no_other_package(
    env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gym.registry, "Mine-v0", gym.envs.registration.EnvSpec("Mine-v0", entry_point=Counter))
    (tmp_path / "gymnasium_robotics.py").write_text("raise AssertionError('it prints a notice when it is imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)  # put back as it was, afterwards
    del sys.modules["gymnasium_robotics"]
    prl.compose("DQN", env).close()


def test_the_error_for_an_unknown_id_names_the_package_to_install() -> None:
    with pytest.raises(ValueError, match="gymnasium-robotics"):
        prl.VecEnv.create_factory("PointMaze_Nowhere-v3")


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("FlattenObservations", "has no 'FlattenObservations'"),
        (3, "3 is neither a name"),
        (("Nope", {}), "has no 'Nope'"),
    ],
)
def test_an_unknown_wrapper_is_refused_when_the_factory_is_made(wrapper: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prl.VecEnv.create_factory("CartPole-v1", wrappers=[wrapper])


class Unsupported(Counter):
    def __init__(self, observation: Any = None, action: Any = None) -> None:
        super().__init__()
        # Not by truth: a Dict without parts is False.
        self.observation_space = self.observation_space if observation is None else observation
        self.action_space = self.action_space if action is None else action


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"observation": spaces.Sequence(spaces.Discrete(2))},
            "FlattenObservation turns a Text .* TransformObservation",
        ),
        ({"observation": spaces.Box(0, 1, (0,))}, r"observation space Box.*\(0,\).* has no numbers"),
        ({"observation": spaces.Dict()}, r"observation space Dict\(\) has no numbers"),
        ({"action": spaces.Box(-1, 1, (0,))}, r"action space Box.*\(0,\).* has no numbers"),
        ({"observation": spaces.Dict(a=spaces.Text(2))}, "key 'a' of the observation space"),
        ({"action": spaces.Tuple([spaces.Discrete(2)])}, "MultiBinary and Box are handled.*TransformAction"),
    ],
)
def test_unsupported_spaces_are_refused_with_a_remedy(arguments: Any, message: str) -> None:
    with pytest.raises(prl.UnsupportedSpaceError, match=message):
        prl.VecEnv(Unsupported, env_kwargs=arguments)
