"""Algorithms of on-policy and replayed updates may leave the first out, explore, and learn after episodes."""

from typing import Any

import pytest
from gymnasium import spaces

import pytorchrl as prl
from tests.support.lessons import BODY, Wandering, collect

BOTH: Any = [prl.ACER, prl.PCL, prl.UnifiedPCL]


def made(cls: Any, **hyper_parameters: Any) -> prl.Scheme:
    settings: Any = {"update_every": 8, "start_steps": 0, "mini_batch_size": 4, "replay_ratio": 3.0, "test_every": 0}
    return prl.Scheme(
        cls.create_factory(**settings | hyper_parameters),
        prl.OffPolicyActor.create_factory(**BODY),
        prl.ReplayBuffer.create_factory(size=100, sequences=prl.Sequences(4)),
        prl.VecEnv.create_factory(Wandering, 2, env_kwargs={"actions": spaces.Discrete(3)}),
        seed=3,
    )


def updates_of_phases(scheme: prl.Scheme, phases: int) -> list[int]:
    counts = []
    for _ in range(phases):
        collect(scheme)
        counts.append(sum(1 for _ in scheme.update()))
    return counts


@pytest.mark.parametrize("cls", BOTH, ids=lambda cls: cls.__name__)
def test_without_online_updates_every_update_is_of_replay(cls: Any) -> None:
    with made(cls) as both, made(cls, online_update=False) as replay:
        with_newest, alone = updates_of_phases(both, 12), updates_of_phases(replay, 12)
    assert [count - 1 for count in with_newest] == alone
    assert 0 < sum(alone) < 3 * 12 * 2


@pytest.mark.parametrize("cls", BOTH, ids=lambda cls: cls.__name__)
def test_update_phases_without_updates_are_refused(cls: Any) -> None:
    with pytest.raises(ValueError, match=rf"{cls.__name__}: with online_update=False and replay_ratio=0 nothing"):
        cls.create_factory(online_update=False, replay_ratio=0.0)


def test_update_phases_come_after_episodes() -> None:
    with made(prl.PCL, episodes_per_update=4) as scheme:
        steps = []
        for _ in range(5):
            updates_of_phases(scheme, 1)
            steps.append(scheme.steps)
    # Episodes take five steps in each of two environments.
    assert steps == [20, 40, 60, 80, 100]


class AlwaysTheFirst(prl.Explorer):
    """Takes one action, whatever the policy is."""

    def act(self, policy: Any, exploration: prl.Exploration) -> Any:
        """Return the first action in each environment."""
        return 0 * policy().sample(exploration.generator)


@pytest.mark.parametrize("cls", [prl.PCL, prl.UnifiedPCL], ids=lambda cls: cls.__name__)
def test_path_consistency_is_learnt_with_an_explorer_of_ones_choice(cls: Any) -> None:
    with made(cls, explorer=AlwaysTheFirst()) as scheme:
        updates_of_phases(scheme, 3)
        assert (scheme.storage.get_all_buffer_data()["Action"] == 0).all()
