"""A policy's value from data alone: with its interval, beside that of the data, in the same unit."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.experiments import TrainedPolicy
from pytorchrl.experiments.policies.value_from_data import FitSettings, ValueFromData, _t_quantile, value_from_data
from storages import Episode
from storages.transition import ACT, LOGP, REW
from tests.support.by_hand import envs_with, perturb
from tests.support.comparison import assert_equal

QUICK = FitSettings(fits=3, updates=150, mini_batch_size=64, lr=1e-2, polyak=0.9)
ACTOR = prl.OffPolicyActor.create_factory(hidden_sizes=(16,))


def policy(gamma: float = 0.9, **changes: Any) -> Any:
    """DQN with random weights, for observations of three numbers."""
    envs = envs_with(spaces.Discrete(2))
    actor = prl.OffPolicyActor.create_factory(**({"hidden_sizes": (16,)} | changes))("cpu", envs)
    perturb(actor, 1, 2.0)
    return prl.DQN.create_factory(gamma=gamma)("cpu", actor, envs)


def episodes(count: int, steps: int, *, terminated: bool, pays: Any, probability: float = 0.5) -> Iterator[Episode]:
    """Episodes of random observations; action 1 has a probability, which is stored."""
    random = np.random.default_rng(0)
    for _ in range(count):
        actions = (random.random((steps, 1)) < probability).astype(np.int64)
        observations = random.normal(size=(steps + 1, 3)).astype(np.float32)
        fields = {
            ACT: actions,
            REW: pays(observations[:-1], actions),
            LOGP: np.log(np.where(actions == 1, probability, 1 - probability)),
        }
        yield Episode(observations, fields, terminated, not terminated)


def for_action_1(observations: Any, actions: np.ndarray) -> np.ndarray:
    return actions + np.random.default_rng(len(actions)).normal(0, 0.1, actions.shape)


def share_of_action_1(algorithm: Any, observations: Any = None) -> float:
    """How often a policy takes action 1 in observations, or in random ones."""
    seen = np.random.default_rng(9).normal(size=(5_000, 3)) if observations is None else observations
    return float(TrainedPolicy(algorithm)(np.asarray(seen, np.float32)).mean())


def assert_finds(found: ValueFromData, value: float, of_data: float) -> None:
    assert found.policy.low < value < found.policy.high
    assert found.policy.value == pytest.approx(value, rel=0.15)
    assert found.behaviour.low < of_data < found.behaviour.high
    assert found.difference.value == pytest.approx(found.policy.value - found.behaviour.value)


@pytest.mark.long
def test_intervals_hold_the_known_values_of_the_policy_and_of_the_data() -> None:
    algorithm, later = policy(), 0.9 + 0.81
    data = list(episodes(300, 3, terminated=True, pays=for_action_1, probability=0.3))
    found = value_from_data(algorithm, ACTOR, data, replace(QUICK, fits=4, updates=400))
    starts = np.stack([np.asarray(episode.observations)[0] for episode in data])
    total = share_of_action_1(algorithm, starts) + later * share_of_action_1(algorithm)
    assert_finds(found, total, 0.3 * (1 + later))
    assert found.behaviour_return.low < 0.9 < found.behaviour_return.high
    assert found.probabilities == "stored"
    assert found.importance is not None
    for estimate in (found.importance.ordinary, found.importance.weighted, found.importance.doubly_robust):
        assert estimate.low < total < estimate.high
    assert 1 < found.importance.effective_episodes < 300


def test_values_with_random_actions_are_those_of_the_mixed_policy() -> None:
    algorithm = policy()
    data = list(episodes(400, 1, terminated=True, pays=for_action_1, probability=0.3))
    starts = np.stack([np.asarray(episode.observations)[0] for episode in data])
    expected = 0.6 * share_of_action_1(algorithm, starts) + 0.4 * 0.5
    found = value_from_data(algorithm, ACTOR, data, replace(QUICK, fits=2), random_share=0.4)
    assert found.policy.value == pytest.approx(expected, abs=0.06)
    assert found.importance is not None
    for estimate in (found.importance.ordinary, found.importance.weighted, found.importance.doubly_robust):
        assert estimate.value == pytest.approx(expected, abs=0.1)
    greedy = value_from_data(algorithm, ACTOR, data, replace(QUICK, fits=2))
    assert abs(greedy.policy.value - expected) > 0.06
    assert greedy.importance is not None
    assert found.importance.effective_episodes > greedy.importance.effective_episodes


def test_random_actions_are_only_those_that_a_mask_allows() -> None:
    space = spaces.Dict({"seen": spaces.Box(-1, 1, (2,), np.float32), "mask": spaces.MultiBinary(3)})
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,), action_mask="mask")
    envs = SimpleNamespace(observation_space=space, action_space=spaces.Discrete(3))
    algorithm = prl.DQN.create_factory(gamma=0.9)("cpu", actor("cpu", envs), envs)
    random, data = np.random.default_rng(0), []
    for _ in range(300):
        action = random.integers(2, size=(1, 1))
        seen = {"seen": random.uniform(-1, 1, (2, 2)).astype(np.float32), "mask": np.array([[1, 1, 0]] * 2, np.int8)}
        fields = {ACT: action, REW: action.astype(np.float64), LOGP: np.full((1, 1), np.log(0.5))}
        data.append(Episode(seen, fields, True, False))
    found = value_from_data(algorithm, actor, data, replace(QUICK, fits=2), random_share=1.0)
    # Both allowed actions have the probability that they have in the data.
    paid = np.mean([episode.fields[REW] for episode in data])
    assert found.importance is not None
    assert found.importance.ordinary.value == pytest.approx(paid)
    assert found.policy.value == pytest.approx(0.5, abs=0.06)


def test_random_actions_of_a_continuous_policy_are_refused() -> None:
    envs = envs_with(spaces.Box(-1, 1, (2,), np.float32))
    algorithm = prl.TD3BC.create_factory()("cpu", ACTOR("cpu", envs), envs)
    data = list(episodes(4, 2, terminated=True, pays=for_action_1))
    with pytest.raises(ValueError, match="random actions are evaluated for Discrete spaces, and this one is Box"):
        value_from_data(algorithm, ACTOR, data, QUICK, random_share=0.1)


@pytest.mark.long
def test_values_of_the_policy_and_of_cut_episodes_are_of_all_the_time_to_come() -> None:
    algorithm = policy(gamma=0.8)
    data = list(episodes(30, 4, terminated=False, pays=lambda seen, actions: np.ones((len(actions), 1))))
    found = value_from_data(algorithm, ACTOR, data, replace(QUICK, updates=600))
    for estimate in (found.policy, found.behaviour):
        assert estimate.value == pytest.approx(1 / (1 - 0.8), rel=0.05)
    assert found.behaviour_return.value == 4.0


@pytest.mark.long
def test_probabilities_that_the_data_lack_are_those_of_a_clone() -> None:
    algorithm = policy()
    stored = list(episodes(300, 1, terminated=True, pays=for_action_1, probability=0.3))
    without = [replace(each, fields={name: each.fields[name] for name in (ACT, REW)}) for each in stored]
    one, other = (value_from_data(algorithm, ACTOR, data, QUICK) for data in (stored, without))
    assert (one.probabilities, other.probabilities) == ("stored", "cloned")
    assert one.importance is not None
    assert other.importance is not None
    assert other.importance.ordinary.value == pytest.approx(one.importance.ordinary.value, rel=0.2)


@pytest.mark.parametrize("actions", [np.zeros((2, 1), np.float32), np.zeros((2, 2), np.int64)])
def test_data_of_other_actions_are_refused_with_their_shape_and_kind(actions: Any) -> None:
    data = [Episode(np.zeros((3, 3), np.float32), {ACT: actions, REW: np.zeros((2, 1))}, True, False)] * 3
    with pytest.raises(
        ValueError, match=r"the policy acts in Discrete\(2\), and an action of the data is \([12],\) of "
    ):
        value_from_data(policy(), ACTOR, data, QUICK)


@pytest.mark.parametrize("space", ["discrete", "box"])
def test_a_greedy_clone_of_the_data_is_valued_beside_the_policy(space: str) -> None:
    random, data = np.random.default_rng(3), list[Episode]()
    for _ in range(150):
        seen = random.normal(size=(3, 3)).astype(np.float32)
        if space == "discrete":
            # The data's policy takes action 1, which pays, in four of five steps.
            actions: Any = (random.random((2, 1)) < 0.8).astype(np.int64)
            rewards = actions.astype(np.float64)
        else:
            actions = (0.4 + random.normal(0, 0.2, (2, 1))).clip(-1, 1).astype(np.float32)
            rewards = 1 - (actions - 0.4).astype(np.float64) ** 2
        data.append(Episode(seen, {ACT: actions, REW: rewards}, True, False))
    if space == "discrete":
        algorithm = policy()
    else:
        box = envs_with(spaces.Box(-1, 1, (1,), np.float32))
        algorithm = prl.TD3.create_factory(gamma=0.9)("cpu", ACTOR("cpu", box), box)
    found = value_from_data(algorithm, ACTOR, data, replace(QUICK, fits=2, updates=250))
    assert found.clone.value == pytest.approx(1.9, abs=0.2)
    assert found.behaviour.value == pytest.approx(1.9 * (0.8 if space == "discrete" else 0.96), abs=0.08)
    assert found.gain.value == pytest.approx(found.policy.value - found.clone.value)
    assert found.fits_of_clone_beyond == 0
    if space == "discrete":
        assert found.gain.high < 0, "the policy takes action 1 less often"


@pytest.mark.long
def test_the_same_seed_gives_the_same_values_and_leaves_the_policy_as_it_was() -> None:
    algorithm = policy()
    data = list(episodes(20, 2, terminated=True, pays=for_action_1))
    before, told = algorithm.state_dict(), list[tuple[float, int]]()
    found = [
        value_from_data(algorithm, ACTOR, data, replace(QUICK, updates=20), seed, lambda *cost: told.append(cost))
        for seed in (1, 1, 2)
    ]
    one, again, other = (replace(each, seconds=0.0) for each in found)
    assert one == again
    assert one != other
    assert len(told) == 3
    assert all(seconds > 0 and fits == 2 * (QUICK.fits + 1) for seconds, fits in told)
    assert_equal(algorithm.state_dict(), before)


def test_too_few_episodes_and_fits_and_a_memory_are_refused(tmp_path: Path) -> None:
    algorithm = policy()
    data = list(episodes(2, 2, terminated=True, pays=for_action_1))
    for fewer, settings in ((data[:1], QUICK), (data, replace(QUICK, fits=1))):
        with pytest.raises(ValueError, match="an interval needs at least two episodes and two fits, got"):
            value_from_data(algorithm, ACTOR, fewer, settings)
    with pytest.raises(ValueError, match="learns from single transitions, and the actor has a memory"):
        value_from_data(policy(memory="gru", memory_size=4), ACTOR, data, QUICK)


@pytest.mark.parametrize(
    ("observations", "shown"), [(np.zeros((3, 5)), r"\(5,\)"), ({"a": np.zeros((3, 3))}, r"a \(3,\)")]
)
def test_data_of_other_observations_are_refused_with_their_shapes(observations: Any, shown: str) -> None:
    algorithm = policy()
    data = [replace(each, observations=observations) for each in episodes(2, 2, terminated=True, pays=for_action_1)]
    with pytest.raises(ValueError, match=rf"takes observations of Box\(.*\), and those of the data are {shown}; name"):
        value_from_data(algorithm, ACTOR, data, QUICK)


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (29, 2.045)])
def test_intervals_of_few_fits_are_as_wide_as_those_of_students_distribution(freedom: int, quantile: float) -> None:
    assert _t_quantile(freedom) == pytest.approx(quantile, rel=2e-3)
