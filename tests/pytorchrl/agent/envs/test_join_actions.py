"""Actions of Dict and Tuple spaces are chosen as one array, and reach the environment in their own structure."""

import copy
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import pytorchrl as prl
from storages.transition import ACT

BOX = spaces.Box(np.array([-2, 0], np.float32), np.array([3, 5], np.float32))
ARRAYS = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 4), start=st.integers(-2, 2)),
    st.builds(lambda nvec: spaces.MultiDiscrete(np.array(nvec)), st.lists(st.integers(1, 4), min_size=1, max_size=3)),
    st.builds(lambda nvec: spaces.MultiDiscrete(np.array(nvec).reshape(2, 1)), st.tuples(*[st.integers(1, 4)] * 2)),
    st.builds(spaces.MultiBinary, st.sampled_from([1, 3, (2, 2)])),
    st.sampled_from(
        [BOX, spaces.Box(-1, 1, ()), spaces.Box(0, 9, (2, 2), np.int16), spaces.Box(-1, 1, (3,), np.float64)]
    ),
)
STRUCTURES = st.recursive(
    ARRAYS,
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from("abc"), parts, min_size=1, max_size=3).map(spaces.Dict),
    ),
    max_leaves=6,
).filter(lambda space: isinstance(space, spaces.Tuple | spaces.Dict))


class Recording(gym.Env[Any, Any]):
    """Pays 1 for the second choice, minus the distance of the number from a half; keeps the actions."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, action_space: gym.Space[Any]) -> None:
        self.action_space, self.actions = action_space, []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        kind, number = action["kind"], action["number"]
        return np.zeros(2, np.float32), float(kind == 1) - abs(float(number[0]) - 0.5), True, False, {}


PPO = prl.PPO.create_factory(lr=1e-2, test_every=0)
SAC = prl.SAC.create_factory(lr_q=1e-2, lr_pi=3e-3, start_steps=200, test_every=0)
KIND_AND_NUMBER = spaces.Dict(kind=spaces.Discrete(3), number=spaces.Box(-1, 1, (1,), np.float32))


@given(STRUCTURES, st.integers(0, 2**32 - 1))
def test_every_joined_action_becomes_one_of_the_environments_own_space(space: gym.Space[Any], seed: int) -> None:
    joined = prl.JoinActions(Recording(space))
    joined.action_space.seed(seed)
    for _ in range(5):
        action = joined.action_space.sample()
        kept = action.copy()
        assert space.contains(joined.action(action))
        np.testing.assert_array_equal(action, kept)


def test_discrete_parts_become_a_multi_discrete_space_of_all_of_them() -> None:
    space = spaces.Tuple(
        (spaces.Discrete(3, start=5), spaces.Dict(a=spaces.MultiBinary(2), b=spaces.MultiDiscrete([4, 2])))
    )
    joined = prl.JoinActions(Recording(space))
    assert joined.action_space == spaces.MultiDiscrete([3, 2, 2, 4, 2])
    kind, rest = joined.action(np.array([2, 1, 0, 3, 1]))
    assert kind == 7
    np.testing.assert_array_equal(rest["a"], [1, 0])
    np.testing.assert_array_equal(rest["b"], [3, 1])


def test_beside_continuous_parts_the_choice_with_the_largest_score_is_made() -> None:
    space = spaces.Tuple((spaces.MultiDiscrete([2, 3], start=[0, 10]), BOX, spaces.Box(0, 9, (1,), np.int16)))
    joined = prl.JoinActions(Recording(space))
    box = joined.action_space
    assert isinstance(box, spaces.Box)
    np.testing.assert_array_equal(box.low, [-1, -1, -1, -1, -1, -2, 0, 0])
    np.testing.assert_array_equal(box.high, [1, 1, 1, 1, 1, 3, 5, 9])
    choices, numbers, integers = joined.action(np.array([0.2, 0.1, -0.9, -0.8, -0.85, 1.5, 4.5, 6.6], np.float32))
    np.testing.assert_array_equal(choices, [0, 11])
    np.testing.assert_array_equal(numbers, np.array([1.5, 4.5], np.float32))
    np.testing.assert_array_equal(integers, np.array([7], np.int16))


def test_the_joined_space_says_which_columns_are_scores_of_which_choice() -> None:
    space = spaces.Dict(a=BOX, b=spaces.MultiDiscrete([2, 3]), c=spaces.Box(0, 1, ()), d=spaces.Discrete(4))
    joined = prl.JoinActions(Recording(space))
    box: Any = joined.action_space
    assert box.choices == [(2, 2), (4, 3), (8, 4)]
    for copied in (pickle.loads(pickle.dumps(box)), copy.deepcopy(box)):
        assert copied == box
        assert copied.choices == box.choices
    bounded: Any = prl.BoundAction(joined).action_space
    assert bounded.choices == box.choices
    for mode in ("sync", "async"):
        arguments = {"action_space": KIND_AND_NUMBER}
        envs: Any = prl.VecEnv.create_factory(Recording, 2, env_kwargs=arguments, wrappers=["JoinActions"], mode=mode)()
        assert envs.action_space.choices == [(0, 3)]
        envs.close()


def test_actions_are_joined_without_an_environment(tmp_path: Path) -> None:
    space = spaces.Dict(pump=spaces.Box(0, 3, (2,), np.float32), valve=spaces.Discrete(3, start=5))
    joined = prl.JoinedActions(space)
    action = joined(np.array([0.5, 2, -1, 0.2, 0.1], np.float32))
    assert action["pump"].tolist() == [0.5, 2]
    assert action["valve"] == 6
    parts: Any = (prl.PPO.create_factory(), prl.OnPolicyActor.create_factory(hidden_sizes=(4,)))
    parts += (prl.GAEBuffer.create_factory(size=8), tmp_path / "run", 16)
    observed = spaces.Box(-1, 1, (2,))
    with pytest.raises(
        prl.UnsupportedSpaceError, match=r"Agent: .* joined = prl.JoinedActions\(space\), with action_sp"
    ):
        prl.Agent(*parts, observation_space=observed, action_space=space)
    agent = prl.Agent(*parts, observation_space=observed, action_space=joined.space)
    while not agent.done:
        assert space.contains(joined(agent.act(np.zeros(2, np.float32))))
        agent.observe(np.zeros(2, np.float32), 1.0, terminated=False, truncated=True)
    agent.close()


def test_scores_of_choices_cannot_be_masked_and_the_error_says_what_can() -> None:
    class Masked(gym.Env[Any, Any]):
        observation_space = spaces.Box(-1, 1, (2,))
        action_space = spaces.Dict(pump=spaces.Box(0, 3, (2,)), valve=spaces.Discrete(3))

    with pytest.raises(
        ValueError, match=r"scores of choices beside numbers.* cannot be masked: let step\(\) take the ne"
    ):
        prl.ObserveActionMask(prl.JoinActions(Masked()))


def test_unbounded_numbers_beside_choices_are_bounded_by_another_wrapper() -> None:
    space = spaces.Tuple((spaces.Discrete(2), spaces.Box(-np.inf, np.inf, (1,), np.float32)))
    bounded: Any = prl.BoundAction(prl.JoinActions(Recording(space)), -3.0, 2.0).action_space
    np.testing.assert_array_equal(bounded.low, [-1, -1, -3])
    np.testing.assert_array_equal(bounded.high, [1, 1, 2])
    assert bounded.choices == [(0, 2)]


def test_a_space_of_numbers_in_double_precision_keeps_them() -> None:
    joined = prl.JoinActions(Recording(spaces.Tuple((spaces.Box(-1, 1, (1,), np.float64),))))
    assert joined.action_space.dtype == np.float64
    np.testing.assert_array_equal(joined.action(np.array([1 / 3]))[0], [1 / 3])


def test_integers_are_rounded_from_real_numbers_and_stay_within_their_bounds() -> None:
    largest = 2**31 - 1
    joined = prl.JoinActions(Recording(spaces.Tuple((spaces.Box(0, largest, (2,), np.int32),))))
    assert joined.action_space.dtype == np.float32
    # The bound is no float32, and the next one above it is no int32.
    np.testing.assert_array_equal(joined.action(np.array([largest, 2.6], np.float32))[0], [largest, 3])


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Discrete(2), r"must be a Dict or a Tuple, it is Discrete\(2\)"),
        (spaces.Tuple(()), r"Tuple\(\) has no parts"),
        (spaces.Dict(a=spaces.Tuple((spaces.Text(3),))), r"part 'a/0' of the action space is Text"),
    ],
)
def test_other_spaces_are_refused(space: gym.Space[Any], message: str) -> None:
    with pytest.raises(prl.UnsupportedSpaceError, match=message):
        prl.JoinActions(Recording(space))


def learner(algorithm: Any, actor: Any, storage: Any, steps: int, folder: Path, env: Any = Recording) -> prl.Learner:
    arguments = {"action_space": KIND_AND_NUMBER}
    envs = prl.VecEnv.create_factory(env, 4, env_kwargs=arguments, wrappers=["JoinActions"])
    factories = algorithm, actor.create_factory(hidden_sizes=(16,)), storage, envs
    return prl.Learner(prl.Scheme(*factories, seed=1), steps, folder)


def test_storages_keep_the_joined_actions(tmp_path: Path) -> None:
    made: list[Recording] = []

    def make(action_space: gym.Space[Any]) -> Recording:
        made.append(Recording(action_space))
        return made[-1]

    with learner(SAC, prl.OffPolicyActor, prl.ReplayBuffer.create_factory(size=40), 32, tmp_path, make) as one:
        one.scheme.collect(20)
        stored = one.scheme.storage.get_all_buffer_data()[ACT].numpy()
    joined = prl.JoinActions(Recording(KIND_AND_NUMBER))
    taken = [env.actions for env in made if env.actions]
    assert stored.shape == (5, 4, 4)
    for env, actions in enumerate(taken):
        assert [joined.action(action) for action in stored[:, env]] == actions


@pytest.mark.parametrize(
    ("algorithm", "actor", "storage", "steps"),
    [
        pytest.param(SAC, prl.OffPolicyActor, prl.ReplayBuffer.create_factory(size=4000), 3000, marks=pytest.mark.long),
        (PPO, prl.OnPolicyActor, prl.GAEBuffer.create_factory(size=64), 4000),
    ],
    ids=["SAC", "PPO"],
)
def test_algorithms_learn_the_choice_and_the_number(
    algorithm: Any, actor: Any, storage: Any, steps: int, tmp_path: Path
) -> None:
    with learner(algorithm, actor, storage, steps, tmp_path) as one:
        one.run()
        # The best choice with a random number returns 0.375 on average.
        assert one.evaluate(1).mean_return > 0.8
