"""Observations of nested Dict and Tuple spaces are one dict of arrays, from the environment to the actor."""

import copy
import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.agent.envs import FlatObservation, Flattening, InvalidEnvironmentError, UnsupportedSpaceError
from pytorchrl.agent.envs.spaces import space_as_data
from pytorchrl.agent.envs.wrappers.flat_observation import is_nested
from storages.datasets.spaces import leaves_of as leaves_of_data
from storages.transition import OBS, OBS2
from tests.support.comparison import assert_equal
from tests.support.profiles import examples
from tests.support.training import saved_and_loaded, train

NESTED = spaces.Dict(
    {
        "camera": spaces.Tuple([spaces.Box(0, 1, (10, 10, 2), np.uint8), spaces.Discrete(3, start=1)]),
        "arm": spaces.Dict(
            {"position": spaces.Box(-1, 1, (), np.float32), "grip": spaces.Tuple([spaces.MultiDiscrete([2, 3])])}
        ),
        "flags": spaces.MultiBinary(3),
    }
)
SHAPES = {"camera/0": (10, 10, 2), "camera/1": (1,), "arm/position": (1,), "arm/grip/0": (2,), "flags": (3,)}


class Robot(gym.Env[Any, Any]):
    """Observes samples of its space; an episode has five steps."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any = NESTED) -> None:
        self.observation_space = copy.deepcopy(space)
        self.steps = 0
        self.shown: list[Any] = []

    def observation(self) -> Any:
        self.shown.append(self.observation_space.sample())
        return self.shown[-1]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.observation_space.seed(int(self.np_random.integers(1000)))
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observation(), 1.0, self.steps == 5, False, {}


def assert_flattened(flat: Any, nested: Any, row: int = 0) -> None:
    assert set(flat) == set(SHAPES)
    assert np.array_equal(flat["camera/0"][row], nested["camera"][0])
    assert flat["camera/1"][row, 0] == nested["camera"][1]
    assert flat["arm/position"][row, 0] == nested["arm"]["position"]
    assert np.array_equal(flat["arm/grip/0"][row], nested["arm"]["grip"][0])
    assert np.array_equal(flat["flags"][row], nested["flags"])


def test_parts_of_nested_observations_are_named_by_their_path() -> None:
    made: list[Robot] = []

    def make() -> Robot:
        made.append(Robot())
        return made[-1]

    envs = prl.VecEnv.create_factory(make)()
    assert isinstance(envs.observation_space, spaces.Dict)
    assert set(envs.observation_space.spaces) == set(SHAPES)
    assert envs.observation_space["camera/1"] == spaces.Discrete(3, start=1)
    observation = envs.reset(seed=0)
    assert_flattened(observation, made[0].shown[-1])
    for name, shape in SHAPES.items():
        assert observation[name].shape == (1, *shape)
    for _ in range(4):
        step = envs.step(np.zeros((1, 1), np.int64))
        assert_flattened(step.next_observation, made[0].shown[-1])
    step = envs.step(np.zeros((1, 1), np.int64))
    assert step.terminated.all()
    assert_flattened(step.next_observation, made[0].shown[-2])
    assert_flattened(step.observation, made[0].shown[-1])
    assert envs.finished_episodes[0].episode_return == 5
    envs.close()


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_runs_with_nested_observations_train_and_resume(algorithm: str, mode: Any) -> None:
    def scheme() -> prl.Scheme:
        envs = prl.VecEnv.create_factory(Robot, num_envs=2, mode=mode)
        if algorithm == "ppo":
            return prl.Scheme(
                prl.PPO.create_factory(num_epochs=1, num_mini_batch=1, test_every=40, num_test_episodes=1),
                prl.OnPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True),
                prl.GAEBuffer.create_factory(size=10),
                envs,
            )
        return prl.Scheme(
            prl.DQN.create_factory(start_steps=20, mini_batch_size=8, test_every=40, num_test_episodes=1),
            prl.OffPolicyActor.create_factory(hidden_sizes=(8,), feature_extractor="embedding"),
            prl.NStepReplayBuffer.create_factory(size=50, n_step=2),
            envs,
        )

    one, other = train(scheme(), 40), scheme()
    data = one.storage.get_all_buffer_data()
    for field in (OBS, OBS2):
        assert {name: tuple(part.shape[2:]) for name, part in data[field].items()} == SHAPES
    assert one.evaluate(2).mean_return == 5
    assert "'camera/0': SmallCNN of 10 x 10 pixels in 2 channels" in one.actor.reads
    assert other.load_state_dict(saved_and_loaded(one.state_dict())) == []
    for scheme_here in (one, other):
        train(scheme_here, 60).close()
    assert_equal(one.algorithm.get_weights(), other.algorithm.get_weights())


def test_parts_have_the_same_names_as_in_data_sets() -> None:
    subspaces = {
        "camera": {"type": "Tuple", "subspaces": [space_as_data(part) for part in NESTED["camera"]]},  # type: ignore[attr-defined]
        "flags": space_as_data(NESTED["flags"]),
    }
    named = [leaf.name for leaf in leaves_of_data({"type": "Dict", "subspaces": subspaces}, "test")]
    assert named == ["camera/0", "camera/1", "flags"]
    assert set(named) < set(SHAPES)


class Grip(nn.Module):
    """A user's network that reads two of the parts."""

    def __init__(self, space: spaces.Dict) -> None:
        super().__init__()
        self.linear = nn.Linear(1 + len(space["arm/grip/0"].nvec), 6)  # type: ignore[attr-defined]

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        features: Tensor = self.linear(torch.cat([observation["arm/position"], observation["arm/grip/0"]], dim=1))
        return features


def test_a_users_network_learns_from_parts_by_name() -> None:
    scheme = prl.Scheme(
        prl.DQN.create_factory(start_steps=10, mini_batch_size=8),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), feature_extractor=Grip),
        prl.PERBuffer.create_factory(size=50, alpha=0.6),
        prl.VecEnv.create_factory(Robot),
    )
    (before,) = (module.linear.weight.clone() for module in scheme.actor.modules() if isinstance(module, Grip))
    train(scheme, 30).close()
    (after,) = (module.linear.weight for module in scheme.actor.modules() if isinstance(module, Grip))
    assert not torch.equal(before, after)
    assert scheme.actor.reads == "Grip"


LEAVES = st.sampled_from(
    [spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32), spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])]
)
NAMES = st.text("ab1/", min_size=1, max_size=3)
STRUCTURES = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.lists(parts, max_size=3).map(spaces.Tuple),
        st.dictionaries(NAMES, parts, max_size=3).map(lambda named: spaces.Dict(list(named.items()))),
    ),
    max_leaves=6,
)


def leaves_of(value: Any) -> list[Any]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else None
    return [value] if parts is None else [leaf for part in parts for leaf in leaves_of(part)]


@settings(max_examples=examples(100), deadline=None)
@given(STRUCTURES)
def test_flattening_keeps_every_leaf_of_a_structure_or_refuses_it(space: gym.Space[Any]) -> None:
    try:
        flattening = Flattening(space, "Test")
    except UnsupportedSpaceError as error:
        assert "would both be named" in str(error) or "has no parts" in str(error)  # noqa: PT017
        return
    observation = space.sample()
    flat = flattening(observation)
    assert flat in flattening.space
    assert [id(leaf) for leaf in leaves_of(flat)] == [id(leaf) for leaf in leaves_of(observation)]
    assert not is_nested(flattening.space)


def test_tuples_become_dicts_keyed_by_position() -> None:
    space = spaces.Tuple([spaces.Discrete(2), spaces.Tuple([spaces.Box(-1, 1, (2,), np.float32)])])
    flattening = Flattening(space, "Test")
    assert flattening.space == spaces.Dict({"0": space[0], "1/0": space[1][0]})
    observation = space.sample()
    assert flattening(observation)["1/0"] is observation[1][0]


@pytest.mark.parametrize("space", [spaces.Discrete(2), spaces.Dict({"a/b": spaces.Discrete(2)})])
def test_observations_that_are_not_nested_are_not_changed(space: Any) -> None:
    flattening = Flattening(space, "Test")
    observation = space.sample()
    assert flattening.space is space
    assert flattening(observation) is observation
    envs = prl.VecEnv.create_factory(Robot, env_kwargs={"space": space})()
    assert envs.observation_space == space
    envs.close()


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            {"a/b": spaces.Discrete(2), "a": spaces.Dict(b=spaces.Discrete(2))},
            r"two parts .* would both be named 'a/b': \['a'\]\['b'\] and \['a/b'\]; rename",
        ),
        ({"a": spaces.Tuple([])}, "has no parts"),
        ({"a": spaces.Tuple([spaces.Text(3)])}, r"key 'a/0' of the observation space is Text"),
    ],
)
def test_spaces_with_ambiguous_names_or_unsupported_parts_are_refused(space: Any, message: str) -> None:
    with pytest.raises(UnsupportedSpaceError, match=message):
        prl.VecEnv.create_factory(Robot, env_kwargs={"space": spaces.Dict(space)})()


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("camera", (np.zeros((10, 10, 2), np.uint8),), "'camera' of it, of a tuple of 1; its space is a tuple of 2"),
        ("camera", (np.zeros((9, 9, 2), np.uint8), 1), r"'camera/0' of it of shape \(9, 9, 2\)"),
        ("arm", {"position": 0.0}, r"'arm' of it, of \['position'\]; its space has \['grip', 'position'\]"),
        ("camera", (np.zeros((10, 10, 2), np.uint8), 0), r"'camera/1' of it outside its space Discrete"),
    ],
)
def test_an_invalid_part_of_a_nested_observation_is_named_in_the_error(part: str, value: Any, message: str) -> None:
    class Wrong(Robot):
        def observation(self) -> Any:
            return super().observation() | {part: value}

    envs = prl.VecEnv.create_factory(Wrong)()
    with pytest.raises(InvalidEnvironmentError, match=message):
        envs.reset(seed=0)
    envs.close()


def test_wrappers_get_the_nested_observation() -> None:
    def without_camera(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        return gym.wrappers.FilterObservation(env, ["arm", "flags"])

    envs = prl.VecEnv.create_factory(Robot, wrappers=[without_camera])()
    assert isinstance(envs.observation_space, spaces.Dict)
    assert set(envs.observation_space.spaces) == {"arm/position", "arm/grip/0", "flags"}
    flat = prl.VecEnv.create_factory(Robot, wrappers=["FlattenObservation"])()
    assert isinstance(flat.observation_space, spaces.Box)
    envs.close()
    flat.close()


def test_frame_stacking_works_with_nested_observations() -> None:
    envs = prl.VecEnv.create_factory(Robot, wrappers=[("FrameStackObservation", {"stack_size": 3})])()
    assert envs.stacked_frames == 3
    assert envs.reset(seed=0)["camera/0"].shape == (1, 3, 10, 10, 2)
    envs.close()


def test_the_environment_can_be_recreated_from_its_specification() -> None:
    gym.register("RobotForTests-v0", f"{__name__}:Robot")
    envs = prl.VecEnv.create_factory("RobotForTests-v0")()
    assert envs.env_spec is not None
    wrappers = [wrapper["name"] for wrapper in json.loads(envs.env_spec)["additional_wrappers"]]
    assert FlatObservation.__name__ in wrappers
    again = gym.make(gym.envs.registration.EnvSpec.from_json(envs.env_spec))
    assert again.observation_space == envs.observation_space
    envs.close()
    del gym.registry["RobotForTests-v0"]
