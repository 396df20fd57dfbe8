"""Update phases are due after a number of transitions, full rollouts, or a number of episodes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytorchrl.agent.algorithms.update_plan import Collected, EveryEpisodes, EveryRollout, EveryTransitions
from tests.support.profiles import examples


def collected(before: int, after: int, **changes: Any) -> Collected:
    settings = {"episodes_before": 0, "episodes_after": 0, "is_full": False, "is_empty": False}
    return Collected(before, after, **(settings | changes))


@given(number=st.integers(1, 50), start=st.integers(0, 100), num_envs=st.integers(1, 40), steps=st.integers(1, 60))
@settings(max_examples=examples(200), deadline=None)
def test_the_number_of_phases_depends_on_transitions_and_not_on_environments(
    number: int, start: int, num_envs: int, steps: int
) -> None:
    plan = EveryTransitions(number, start)
    due = [plan.phases_due(collected(step * num_envs, (step + 1) * num_envs)) for step in range(steps)]
    assert sum(due) == max(0, steps * num_envs - start) // number
    first = next((step for step, phases in enumerate(due) if phases), None)
    if first is not None:
        assert first * num_envs < start + number <= (first + 1) * num_envs


def test_no_phase_is_due_while_the_storage_is_empty() -> None:
    assert EveryTransitions(1).phases_due(collected(0, 8, is_empty=True)) == 0
    assert EveryTransitions(1).phases_due(collected(8, 16)) == 8
    assert EveryEpisodes(1).phases_due(collected(8, 16, episodes_after=3, is_empty=True)) == 0


def test_a_full_rollout_is_one_phase() -> None:
    assert EveryRollout().phases_due(collected(0, 8)) == 0
    assert EveryRollout().phases_due(collected(8, 16, is_full=True)) == 1


@pytest.mark.parametrize(
    ("episodes", "is_full", "due"), [(2, False, 0), (3, False, 1), (7, False, 1), (0, True, 1), (3, True, 1)]
)
def test_enough_episodes_or_a_full_rollout_are_one_phase(episodes: int, is_full: bool, due: int) -> None:
    assert EveryEpisodes(3).phases_due(collected(0, 8, episodes_after=episodes, is_full=is_full)) == due


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="EveryTransitions: number must be at least 1, got 0"):
        EveryTransitions(0)
    with pytest.raises(ValueError, match="EveryTransitions: start must be at least 0, got -1"):
        EveryTransitions(1, -1)
    with pytest.raises(ValueError, match="EveryEpisodes: number must be at least 1, got 0"):
        EveryEpisodes(0)
