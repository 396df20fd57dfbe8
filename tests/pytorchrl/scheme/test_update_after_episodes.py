"""Updates after a number of episodes, independent of how collecting is divided and resumed."""

from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
from tests.support.comparison import assert_equal
from tests.support.toys import Counter
from tests.support.training import saved_and_loaded, train


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


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("memory", [None, "gru"])
@pytest.mark.parametrize("at", [4, 8, 11, 26])
def test_a_run_resumed_between_the_episodes_of_an_update_equals_the_uninterrupted_run(
    at: int, memory: str | None
) -> None:
    def scheme() -> prl.Scheme:
        return scheme_of((3, 5), 3, memory=memory, memory_size=4)

    whole, first, second = scheme(), scheme(), scheme()
    train(whole, 60)
    first.set_progress(0, 60)
    while first.steps < 2 * at:
        _, due = first.collect(2 * at)
        for _ in range(due):
            list(first.update())
    assert second.load_state_dict(saved_and_loaded(first.state_dict())) == []
    second.set_progress(first.steps, 60)
    train(second, 60)
    assert_equal(second.state_dict(), whole.state_dict())
