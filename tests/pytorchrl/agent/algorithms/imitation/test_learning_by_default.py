"""GAIL and AIRL imitate by their defaults, whether episodes terminate or not."""

from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations
from tests.support.rings import Failing, Ring, Staying, right_actions


def imitated(cls: Any, env: type[Ring], folder: Path, target_steps: int = 24_000, **settings: Any) -> float:
    """The mean return of the policy that imitates one which is always right."""
    envs, data = prl.VecEnv.create_factory(env, 8), folder / "expert.npz"
    collect_demonstrations(right_actions, envs, path=data, episodes=8)
    scheme = prl.Scheme(
        cls.create_factory(gamma=0.9, test_every=0, **settings),
        prl.OnPolicyActor.create_factory(hidden_sizes=(32,)),
        prl.GAEBuffer.create_factory(size=64),
        envs,
        sources={"expert": prl.from_dataset(prl.ReplayBuffer.create_factory(size=5_000), data)},
        seed=1,
    )
    with prl.Learner(scheme, target_steps, folder / "run") as learner:
        learner.run()
        return learner.evaluate(episodes=2).mean_return


@pytest.mark.long
@pytest.mark.parametrize("env", [Ring, Staying, Failing])
@pytest.mark.parametrize("cls", [prl.GAIL, prl.AIRL])
def test_the_default_discriminator_teaches_endless_cyclic_and_episodic_tasks(
    cls: Any, env: type[Ring], tmp_path: Path
) -> None:
    assert imitated(cls, env, tmp_path) == env.best


@pytest.mark.long
def test_a_discriminator_of_few_steps_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r"GAIL: the discriminator was right in .*discriminator_epochs \(now 5\)"):
        imitated(prl.GAIL, Ring, tmp_path, discriminator_epochs=5)


@pytest.mark.long
def test_a_reward_of_states_alone_is_named_where_airl_does_not_learn(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r'In a cyclic task, .* take reward_of="state-action"$'):
        imitated(prl.AIRL, Ring, tmp_path, reward_of="state")
