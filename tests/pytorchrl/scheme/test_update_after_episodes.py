"""Updates after a number of episodes, independent of how collecting is divided and resumed."""

from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
from tests.support.toys import Counter


def scheme_of(
    lengths: tuple[int, ...], episodes: int, size: int = 100, wrappers: Any = (), batches: int = 1, **actor: Any
) -> prl.Scheme:
    """A scheme whose environments have episodes of these lengths."""
    made = iter([*lengths, *lengths])
    return prl.Scheme(
        prl.REINFORCE.create_factory(episodes_per_update=episodes, num_mini_batch=batches, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), **actor),
        prl.VanillaOnPolicyBuffer.create_factory(size=size),
        prl.VecEnv.create_factory(lambda: Counter(length=next(made)), len(lengths), wrappers=wrappers),
    )


def phases(scheme: prl.Scheme, until: int) -> list[int]:
    """The numbers of steps per environment after which updates were due."""
    steps = []
    while scheme.steps < until:
        _, due = scheme.collect(until)
        if due:
            assert due == 1
            steps.append(scheme.steps // scheme.envs.num_envs)
            list(scheme.update())
    return steps


def test_an_update_follows_the_given_number_of_episodes() -> None:
    assert phases(scheme_of((5,), 3), 50) == [15, 30, 45]


def test_episodes_of_all_environments_count_and_an_update_resets_the_count() -> None:
    # Episodes end after 3, 6, 9, 12, ... and after 4, 8, 12, ... steps.
    assert phases(scheme_of((3, 4), 2), 48) == [4, 8, 12, 16, 20, 24]
    # Two episodes that end together cause one update.
    assert phases(scheme_of((4, 4), 1), 24) == [4, 8, 12]


def test_a_full_rollout_causes_an_earlier_update_and_resets_the_count_of_episodes() -> None:
    # The rollout is full after 8 steps and one episode; the next two episodes end at 10 and 15.
    assert phases(scheme_of((5,), 2, size=8), 30) == [8, 15, 23, 30]


def test_a_step_that_fills_the_rollout_and_ends_an_episode_causes_one_update() -> None:
    assert phases(scheme_of((4,), 2, size=8), 24) == [8, 16, 24]


def test_episodes_that_a_wrapper_ends_count() -> None:
    def first_two_steps(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        return gym.wrappers.TimeLimit(env, 2)

    assert phases(scheme_of((50,), 2, wrappers=[first_two_steps]), 12) == [4, 8, 12]


def test_episodes_with_fewer_steps_than_batches_make_a_batch_for_each_step() -> None:
    scheme = scheme_of((3,), 1, batches=8)
    while not scheme.collect(100)[1]:
        pass
    assert len(list(scheme.update())) == 3


@pytest.mark.parametrize("parts", [[3, 7, 20, 21, 47], list(range(1, 60))])
def test_updates_do_not_depend_on_how_collecting_is_divided(parts: list[int]) -> None:
    whole, divided = scheme_of((5,), 3), scheme_of((5,), 3)
    steps = []
    for until in [*parts, 60]:
        steps += phases(divided, until)
    assert steps == phases(whole, 60) == [15, 30, 45, 60]
