"""Hindsight gives each episode of a sequence one goal, of its own, also where a sequence continues across episodes."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from storages import Episodes, HERBuffer, Sequences
from storages.transition import BURN_IN, DONE, DONE2, MASK, OBS, OBS2, REW, TRUNC2
from tests.storages.off_policy.test_her_buffer import GoalStream, compute_reward, made

pytestmark = pytest.mark.filterwarnings("ignore:.*but compute_reward gives:UserWarning")

ENVS, LENGTH = 2, 8


def filled(strategy: Any, her_ratio: float, sequences: Any) -> tuple[HERBuffer, dict[float, int], dict[float, int]]:
    """Return a buffer, and the episode of each observation and of each achieved goal."""
    storage = made(ENVS, size=30, strategy=strategy, her_ratio=her_ratio, sequences=sequences)
    stream = GoalStream(ENVS, np.random.default_rng(0), ends=0.15)
    seen: dict[float, int] = {}
    achieved: dict[float, int] = {}
    episode = np.arange(ENVS)
    for _ in range(50):
        sample = stream.step()
        for env in range(ENVS):
            seen[float(sample[OBS]["observation"][env, 0])] = int(episode[env])
            achieved[float(sample[OBS2]["achieved_goal"][env, 0])] = int(episode[env])
        storage.insert_transition(sample)
        episode = np.where((sample[DONE2] | sample[TRUNC2])[:, 0], episode + ENVS, episode)
    return storage, seen, achieved


def episodes_of(batch: Any, column: int) -> list[slice]:
    """Return the steps of each episode in a sequence, without padding."""
    steps = int(batch[MASK][:, column].sum())
    begins = [0, *(1 + np.flatnonzero(batch[DONE][1:steps, column, 0])).tolist(), steps]
    return [slice(*each) for each in pairwise(begins)]


ACROSS = Sequences(LENGTH, across_episodes=True)


@pytest.mark.parametrize(
    "sequences", [ACROSS, Sequences(LENGTH, 2, across_episodes=True), Sequences(LENGTH, 2), Episodes(whole=False)]
)
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_every_step_of_a_sequence_has_a_goal_that_its_own_episode_achieved(strategy: Any, sequences: Any) -> None:
    storage, seen, achieved = filled(strategy, 1.0, sequences)
    several = 0
    for batch in storage.generate_batches(5, 16):
        goals, numbers = batch[OBS]["desired_goal"][..., 0], batch[OBS]["observation"][..., 0]
        for column in range(16):
            episodes = episodes_of(batch, column)
            several += len(episodes) > 1
            for steps in episodes:
                [goal] = goals[steps, column].unique().tolist()
                assert {achieved[goal]} == {seen[number] for number in numbers[steps, column].tolist()}
                if strategy == "future" and sequences is ACROSS:
                    assert goal >= float(numbers[steps.start, column])
        assert (batch[OBS2]["desired_goal"] == batch[OBS]["desired_goal"]).all()
        if sequences == Sequences(LENGTH, 2):
            assert (batch[BURN_IN][OBS]["desired_goal"][..., 0] == goals[0]).all()
        expected = compute_reward(batch[OBS2]["achieved_goal"].numpy(), batch[OBS]["desired_goal"].numpy(), {})
        np.testing.assert_allclose(batch[REW][..., 0], expected, rtol=1e-5)
    assert (several > 20) == (isinstance(sequences, Sequences) and sequences.across_episodes)


def test_the_episodes_of_a_sequence_are_relabelled_independently_of_each_other() -> None:
    storage, _, achieved = filled("future", 0.5, ACROSS)
    relabelled = [
        [float(batch[OBS]["desired_goal"][steps.start, column, 0]) in achieved for steps in episodes_of(batch, column)]
        for batch in storage.generate_batches(20, 16)
        for column in range(16)
    ]
    pairs = [tuple(each[:2]) for each in relabelled if len(each) > 1]
    assert all(abs(pairs.count(kind) / len(pairs) - 0.25) < 0.1 for kind in np.ndindex(2, 2))
