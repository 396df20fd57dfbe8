"""Updates after a number of episodes, whatever the collecting is divided into, and however it is resumed."""

from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
from tests.support.comparison import assert_equal
from tests.support.toys import Counter
from tests.support.training import saved_and_loaded, train


def scheme_of(lengths: tuple[int, ...], episodes: int, size: int = 100, wrappers: Any = (), **actor: Any) -> prl.Scheme:
    """Environments whose episodes have these lengths."""
    made = iter([*lengths, *lengths])
    return prl.Scheme(
        prl.REINFORCE.create_factory(episodes_per_update=episodes, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), **actor),
        prl.VanillaOnPolicyBuffer.create_factory(size=size),
        prl.VecEnv.create_factory(lambda: Counter(length=next(made)), len(lengths), wrappers=wrappers),
    )


def phases(scheme: prl.Scheme, until: int) -> list[int]:
    """After how many steps of all environments updates were due."""
    steps = []
    while scheme.steps < until:
        _, due = scheme.collect(until)
        if due:
            assert due == 1
            steps.append(scheme.steps // scheme.envs.num_envs)
            list(scheme.update())
    return steps


def test_an_update_follows_every_few_episodes() -> None:
    assert phases(scheme_of((5,), 3), 50) == [15, 30, 45]


def test_episodes_of_all_environments_count_and_none_is_left_over_for_the_next_update() -> None:
    # Ends after 3, 6, 9, 12, ... and after 4, 8, 12, ... steps.
    assert phases(scheme_of((3, 4), 2), 48) == [4, 8, 12, 16, 20, 24]
    # Two that end together are one update.
    assert phases(scheme_of((4, 4), 1), 24) == [4, 8, 12]


def test_a_full_rollout_is_learnt_from_before_enough_episodes_ended_and_they_count_anew() -> None:
    # Full after 8 with one episode; then ends at 10 and 15.
    assert phases(scheme_of((5,), 2, size=8), 30) == [8, 15, 23, 30]


def test_one_step_may_fill_the_rollout_and_end_the_episodes() -> None:
    assert phases(scheme_of((4,), 2, size=8), 24) == [8, 16, 24]


def test_episodes_count_where_a_wrapper_ends_them_too() -> None:
    def first_two_steps(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        return gym.wrappers.TimeLimit(env, 2)

    assert phases(scheme_of((50,), 2, wrappers=[first_two_steps]), 12) == [4, 8, 12]


@pytest.mark.parametrize("parts", [[3, 7, 20, 21, 47], list(range(1, 60))])
def test_updates_do_not_depend_on_the_parts_that_collecting_is_divided_into(parts: list[int]) -> None:
    whole, divided = scheme_of((5,), 3), scheme_of((5,), 3)
    steps = []
    for until in [*parts, 60]:
        steps += phases(divided, until)
    assert steps == phases(whole, 60) == [15, 30, 45, 60]


@pytest.mark.parametrize("memory", [None, "gru"])
@pytest.mark.parametrize("at", [4, 8, 11, 26])
def test_a_run_resumed_between_the_episodes_of_an_update_is_the_run_that_was_not_stopped(
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
