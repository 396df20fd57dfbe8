"""DAgger stores the expert's actions in the states that the policy visits, and learns from all of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from storages.transition import ACT, OBS
from tests.support.by_hand import exploring
from tests.support.comparison import assert_equal
from tests.support.data_sets import balance, damp
from tests.support.toys import Counter
from tests.support.training import train

EXPERTS = {"CartPole-v1": balance, "Pendulum-v1": damp}


def dagger(
    env: str = "CartPole-v1", seed: int = 0, memory: Any = None, num_envs: int = 2, **settings: Any
) -> prl.Scheme:
    algorithm = {"expert": EXPERTS.get(env), "start_steps": 20, "mini_batch_size": 8, "test_every": 0, "lr": 1e-2}
    window = {"sequences": prl.Sequences(4)} if memory else {}
    return prl.Scheme(
        prl.DAgger.create_factory(**(algorithm | settings)),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,), memory=memory, memory_size=4),
        prl.ReplayBuffer.create_factory(size=2_000, **window),
        prl.VecEnv.create_factory(env, num_envs),
        seed=1,
    )


def actions_of(scheme: prl.Scheme, steps: int) -> tuple[Any, Any]:
    """Actions that the environments got and those of the policy without the expert, (steps, E, *action) each."""
    given, alone = [], []
    envs: Any = scheme.envs
    algorithm, step = scheme.algorithm, envs.step

    def recording(action: Any) -> Any:
        given.append(action.copy())
        seen = torch.from_numpy(observation())
        exploration = exploring(algorithm, envs.num_envs, deterministic=True)
        alone.append(algorithm.acting_step(seen, None, torch.zeros(envs.num_envs, 1), exploration).env_action.numpy())
        return step(action)

    def observation() -> Any:
        return scheme._collector._observation  # type: ignore[union-attr]

    envs.step = recording
    scheme.collect(steps)
    return np.stack(given), np.stack(alone)


@pytest.mark.parametrize("env", EXPERTS)
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_experts_actions_are_stored_and_taken_with_probability_beta(env: str, beta: float) -> None:
    scheme = dagger(env, beta=beta, start_steps=0, update_every=10_000, num_envs=4)
    given, alone = actions_of(scheme, 400)
    held = scheme.storage.get_all_buffer_data()
    for seen, stored in zip(held[OBS], held[ACT], strict=True):
        np.testing.assert_array_equal(stored.numpy(), EXPERTS[env](seen.numpy()))
    labels = held[ACT].numpy()
    by_expert, by_policy = ((given == each).all(-1) for each in (labels, alone))
    assert (by_expert | by_policy).all()
    # Where both choose the same action, it is unknown whose action was taken.
    differ = (labels != alone).any(-1)
    assert differ.sum() > 50
    assert by_expert[differ].mean() == pytest.approx(beta, abs=0.12)


def test_the_expert_acts_alone_before_the_first_update() -> None:
    scheme = dagger(start_steps=40, update_every=10_000)
    given, alone = actions_of(scheme, 80)
    labels = scheme.storage.get_all_buffer_data()[ACT].numpy()
    np.testing.assert_array_equal(given[:20], labels[:20])
    np.testing.assert_array_equal(given[20:], alone[20:])
    assert (labels[20:] != alone[20:]).any()


def test_beta_may_be_a_schedule() -> None:
    scheme = dagger(beta=prl.LinearSchedule(1.0, 0.0), start_steps=0, update_every=10_000, num_envs=8)
    scheme.set_progress(0, 2_000)
    given, alone = actions_of(scheme, 2_000)
    labels = scheme.storage.get_all_buffer_data()[ACT].numpy()
    differ = (labels != alone)[..., 0]
    by_expert = (given == labels)[..., 0]
    early, late = slice(0, 50), slice(200, 250)
    assert by_expert[early][differ[early]].mean() > 0.75
    assert by_expert[late][differ[late]].mean() < 0.25


def test_gradients_equal_those_of_behaviour_cloning() -> None:
    ours = dagger()
    train(ours, 40)
    envs = ours.envs
    assert envs is not None
    cloning = prl.BehaviourCloning.create_factory(lr=1e-2)("cpu", _copy_of(ours.actor, envs), envs)
    cloning.actor.load_state_dict(ours.actor.state_dict())
    (batch,) = ours.storage.generate_batches(1, 8)
    theirs, of_theirs = cloning.compute_gradients(batch)
    gradients, result = ours.algorithm.compute_gradients(batch)
    assert_equal(gradients, theirs)
    assert result.metrics["loss"] == of_theirs.metrics["loss"]


def _copy_of(actor: Any, envs: Any) -> Any:
    return prl.OffPolicyActor.create_factory(hidden_sizes=actor.hidden_sizes)("cpu", envs)


def test_evaluations_do_not_call_the_expert() -> None:
    asked = []

    def noting(seen: Any) -> Any:
        asked.append(len(seen))
        return balance(seen)

    scheme = dagger(expert=noting)
    scheme.collect(40)
    before = len(asked)
    assert before > 0
    scheme.evaluate(2)
    assert len(asked) == before


def test_a_loaded_policy_can_be_the_expert(tmp_path: Path) -> None:
    learner = prl.Learner(dagger(), 60, tmp_path / "expert")
    learner.run()
    learner.close()
    expert = prl.load_policy(tmp_path / "expert")
    scheme = dagger(expert=expert, num_envs=3)
    train(scheme, 60)
    held = scheme.storage.get_all_buffer_data()
    np.testing.assert_array_equal(held[ACT][..., 0].numpy(), [expert(seen.numpy()) for seen in held[OBS]])


def test_a_loaded_policy_acts_greedily_without_the_expert_and_explores_with_it_alone(tmp_path: Path) -> None:
    scheme = dagger()
    learner = prl.Learner(scheme, 60, tmp_path / "run")
    learner.run()
    seen = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    greedy = prl.load_policy(tmp_path / "run")(seen)
    np.testing.assert_array_equal(greedy, TrainedPolicy(scheme.algorithm)(seen))
    learner.close()
    factory = prl.DAgger.create_factory(expert=balance)
    with_expert = prl.load_policy(
        tmp_path / "run", algo_factory=factory, actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(16,))
    )
    assert with_expert(seen, deterministic=False).shape == greedy.shape
    with pytest.raises(prl.CompositionError, match="loaded to act greedily, without the functions that training calls"):
        prl.load_policy(tmp_path / "run")(seen, deterministic=False)


def test_the_experts_actions_are_checked_against_the_environments_action_space() -> None:
    class Toy(Counter):
        def __init__(self) -> None:
            super().__init__("vector", length=5, actions=spaces.Discrete(3, start=2))

    def made(expert: Any) -> prl.Scheme:
        return prl.Scheme(
            prl.DAgger.create_factory(expert=expert, test_every=0),
            prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
            prl.ReplayBuffer.create_factory(size=50),
            prl.VecEnv.create_factory(Toy, 2),
        )

    scheme = made(lambda seen: np.full(len(seen), 4))
    scheme.collect(4)
    assert (scheme.storage.get_all_buffer_data()[ACT] == 2).all()
    with pytest.raises(ValueError, match=r"the expert gave 5, which is not in Discrete\(3, start=2\)"):
        made(lambda seen: np.full(len(seen), 5)).collect(4)
    with pytest.raises(ValueError, match=r"an action of Discrete\(3, start=2\) for each of 2 environments, got shape"):
        made(lambda seen: np.full(3, 2)).collect(4)


def test_a_missing_expert_and_an_expert_with_a_memory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="DAgger: expert must be a function from observations to actions"):
        prl.DAgger.create_factory()
    with pytest.raises(ValueError, match="DAgger: expert must be"):
        prl.DAgger.create_factory(expert=3)  # type: ignore[arg-type]
    learner = prl.Learner(
        prl.Scheme(
            prl.PPO.create_factory(num_mini_batch=1, test_every=0),
            prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory="gru"),
            prl.GAEBuffer.create_factory(size=16),
            prl.VecEnv.create_factory("CartPole-v1"),
        ),
        32,
        tmp_path / "ppo",
    )
    learner.run()
    learner.close()
    with pytest.raises(ValueError, match="DAgger: the expert has a memory"):
        prl.DAgger.create_factory(expert=prl.load_policy(tmp_path / "ppo"))


@pytest.mark.long
def test_it_learns_to_act_as_its_expert_and_balances_the_pole() -> None:
    scheme = train(dagger(start_steps=200, mini_batch_size=64), 2_000)
    assert scheme.evaluate(5).mean_return > 400
    seen = scheme.storage.get_all_buffer_data()[OBS].flatten(0, 1)
    exploration, first = exploring(scheme.algorithm, len(seen), deterministic=True), torch.ones(len(seen), 1)
    actions = scheme.algorithm.acting_step(seen, None, first, exploration).env_action.numpy()
    assert (actions == balance(seen.numpy())).mean() > 0.9
