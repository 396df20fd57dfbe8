"""Every on-policy algorithm can be combined with a reward that is learnt from an expert."""

from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from storages.transition import REW
from tests.support.data_sets import recorded

ON_VALUES = (prl.NStepQLearning, prl.PQN)
ON_POLICY = (prl.A2C, prl.IMPALA, prl.PPO, prl.REINFORCE, prl.RND, prl.TRPO, prl.TRPOSinglePath, *ON_VALUES)
REWARDS = (prl.GAILReward, prl.AIRLReward, prl.AMPReward)
COMBINED = [(reward, learner) for reward in REWARDS for learner in ON_POLICY]


def combined(reward: type[Any], learner: type[Any]) -> Any:
    return type(f"{learner.__name__}By{reward.__name__}", (reward, learner), {})


class ImitatingPPO(prl.GAILReward, prl.PPO):
    """A combination as a user would define it."""


def rollout_for(learner: type[prl.Algorithm]) -> Any:
    if learner is prl.IMPALA:
        return prl.VTraceBuffer.create_factory(size=8)
    if learner is prl.TRPOSinglePath:
        return prl.VanillaOnPolicyBuffer.create_factory(size=40, cut_episodes="drop")
    return prl.GAEBuffer.create_factory(size=8)


@pytest.mark.quick_share(0.25)
@pytest.mark.parametrize(("reward", "learner"), COMBINED, ids=lambda cls: cls.__name__)
def test_every_on_policy_algorithm_learns_from_the_learnt_reward(
    reward: type[Any], learner: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = combined(reward, learner)
    if reward is prl.AIRLReward and learner in ON_VALUES:
        with pytest.raises(ValueError, match="which the second base does not store"):
            cls.create_factory()
        return
    expert = prl.from_dataset(prl.ReplayBuffer.create_factory(size=80), recorded(tmp_path / "expert.npz"))
    scheme = prl.Scheme(
        cls.create_factory(discriminator_epochs=2, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        rollout_for(learner),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        sources={"expert": expert},
        seed=1,
    )
    _, due = scheme.collect(1_000)
    assert due == 1
    assert (scheme.storage.get_all_buffer_data()[REW] == 1).all()
    before, held = scheme.algorithm.get_weights(), {}
    before_gradients = scheme.storage.before_gradients

    def recording() -> None:
        held.update(scheme.storage.get_all_buffer_data())
        before_gradients()

    monkeypatch.setattr(scheme.storage, "before_gradients", recording)
    metrics = list(scheme.update())
    assert (held[REW] != 1).all(), "returns are not computed from the environment's rewards"
    torch.testing.assert_close(
        held[REW].mean(), next(m["imitation_reward"] for m in metrics if "imitation_reward" in m)
    )
    after = scheme.algorithm.get_weights()
    moved = {name.split(".")[1] for name in before if not torch.equal(before[name], after[name])}
    assert {"discriminator"} <= moved or {"reward", "potential"} <= moved
    assert moved & {"policy", "action_values", "q"}, moved
    scheme.close()


def test_combined_algorithms_keep_the_data_requirements_of_both_bases() -> None:
    sources = combined(prl.GAILReward, prl.REINFORCE).sources
    assert sources["main"] == prl.REINFORCE.sources["main"]
    assert sources["expert"] == prl.GAIL.sources["expert"]
    assert "expert" not in prl.REINFORCE.sources
    assert ImitatingPPO.sources["main"] == prl.PPO.sources["main"]
    assert type("Own", (ImitatingPPO,), {}).sources == ImitatingPPO.sources  # type: ignore[attr-defined]


def test_an_off_policy_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match="SACByGAILReward: a learnt reward needs rollouts"):
        combined(prl.GAILReward, prl.SAC).create_factory()


def test_the_hyper_parameters_of_both_bases_are_checked() -> None:
    factory = ImitatingPPO.create_factory(clip_param=0.1, discriminator_epochs=3)
    assert factory.hyper_parameters["clip_param"] == 0.1
    with pytest.raises(ValueError, match="discriminator_epochs must be"):
        ImitatingPPO.create_factory(discriminator_epochs=0)


@pytest.mark.parametrize("reward", REWARDS)
def test_the_reward_never_shares_a_body_with_the_policy(reward: type[Any], tmp_path: Path) -> None:
    def made() -> prl.Scheme:
        return prl.Scheme(
            combined(reward, prl.PPO).create_factory(),
            prl.OnPolicyActor.create_factory(shared_body=True),
            prl.GAEBuffer.create_factory(size=8),
            prl.VecEnv.create_factory("CartPole-v1"),
            sources={
                "expert": prl.from_dataset(prl.ReplayBuffer.create_factory(size=80), recorded(tmp_path / "expert.npz"))
            },
        )

    if reward is prl.AIRLReward:
        with pytest.raises(ValueError, match="shared_body=False gives each its own body"):
            made()
        return
    scheme = made()
    trained: Any = scheme.algorithm
    policy = {id(parameter) for parameter in trained.pi.parameters()}
    assert not policy & {id(parameter) for parameter in trained.discriminator.parameters()}
    scheme.close()
