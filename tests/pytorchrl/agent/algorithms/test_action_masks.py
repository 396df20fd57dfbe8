"""Algorithms with discrete actions take only those that the mask in their observations allows, and learn from these."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.agent.actors.action_mask import ActionMask
from pytorchrl.agent.actors.layers.normalization import ObservationNormalization
from pytorchrl.agent.actors.outputs import TorchDistribution
from pytorchrl.agent.actors.view import Observations
from pytorchrl.agent.explorers import Exploration
from pytorchrl.scheme import evaluate
from storages.transition import ACT, DISCOUNT, OBS, OBS2, REW
from tests.support.masked import NEVER, Masked, assert_learnt_alike, change_outputs_never_used
from tests.support.training import train

STEPS = 96
REPLAY = {"start_steps": 16, "mini_batch_size": 16, "test_every": 0}
ROLLOUT = {"test_every": 0}
REPLAYED: dict[str, tuple[Any, dict[str, Any]]] = {
    "DQN": (prl.DQN, {"epsilon": 0.5}),
    "DQN by softmax": (prl.DQN, {"explorer": prl.Boltzmann(1.0), "double": False}),
    "SARSA": (prl.SARSA, {"epsilon": 0.5}),
    "SARSA of the policy": (prl.SARSA, {"epsilon": 0.5, "next_action": "policy"}),
    "ResidualDQN": (prl.ResidualDQN, {}),
    "AL": (prl.AL, {}),
    "PAL": (prl.PAL, {}),
    "DPP": (prl.DPP, {}),
    "DPP of log-sum-exp": (prl.DPP, {"operator": "logsumexp"}),
    "R2D2": (prl.R2D2, {}),
    "CategoricalDQN": (prl.CategoricalDQN, {"num_atoms": 5}),
    "QRDQN": (prl.QRDQN, {"num_quantiles": 5}),
    "IQN": (prl.IQN, {"num_quantiles": 5, "num_target_quantiles": 4, "num_action_quantiles": 3, "num_cosines": 4}),
    "MunchausenDQN": (prl.MunchausenDQN, {}),
    "MunchausenIQN": (prl.MunchausenIQN, {"num_quantiles": 5, "num_action_quantiles": 3, "num_cosines": 4}),
    "SACDiscrete": (prl.SACDiscrete, {}),
    "MPODiscrete": (prl.MPODiscrete, {}),
    "DiscreteCQL": (prl.DiscreteCQL, {}),
    "DiscreteBCQ": (prl.DiscreteBCQ, {}),
    "ACER": (prl.ACER, {"replay_ratio": 1}),
    "PCL": (prl.PCL, {"path_length": 4}),
    "UnifiedPCL": (prl.UnifiedPCL, {"path_length": 4}),
}
COLLECTED: dict[str, tuple[Any, dict[str, Any]]] = {
    "A2C": (prl.A2C, {}),
    "PPO": (prl.PPO, {}),
    "PPO of a softmax with temperature": (
        prl.PPO,
        {"distribution": prl.heads.SoftmaxPolicy(0.5, min_probability=0.01)},
    ),
    "PPO of a mellowmax": (prl.PPO, {"distribution": prl.heads.MellowmaxPolicy(5.0)}),
    "OptionCritic": (prl.OptionCritic, {"num_options": 2}),
    "TRPO": (prl.TRPO, {}),
    "IMPALA": (prl.IMPALA, {}),
    "REINFORCE": (prl.REINFORCE, {}),
    "RND": (prl.RND, {}),
    "NStepQLearning": (prl.NStepQLearning, {}),
    "PQN": (prl.PQN, {}),
}
OF_RETURNS = "REINFORCE", "NStepQLearning"
IN_QUICK_RUNS = "DQN", "SARSA of the policy", "IQN", "MunchausenDQN", "SACDiscrete", "ACER", "PPO"
"""Algorithms of a test that the others have in long runs."""
WITH_MEMORY = "DQN", "SARSA", "QRDQN", "SACDiscrete", "ACER"
"""Algorithms whose networks have a memory in a further test."""


def composed(name: str, **changes: Any) -> prl.Scheme:
    is_collected = name in COLLECTED
    cls, hyper_parameters = (COLLECTED | REPLAYED)[name]
    memory = "gru" if name == "R2D2" else changes.pop("memory", None)
    actor = prl.OnPolicyActor if is_collected else prl.OffPolicyActor
    fields: dict[str, Any] = {"hidden_sizes": (8,), "memory": memory, "memory_size": 8, "action_mask": "action_mask"}
    common: dict[str, Any] = ROLLOUT if is_collected else REPLAY
    if cls in (prl.ACER, prl.PCL, prl.UnifiedPCL):
        common = {"start_steps": 16, "mini_batch_size": 4, "test_every": 0}
        storage = prl.ReplayBuffer.create_factory(size=200, sequences=prl.Sequences(8))
    elif is_collected:
        of_class = {prl.IMPALA: prl.VTraceBuffer, prl.PQN: prl.LambdaReturnBuffer}
        made = of_class.get(cls, prl.VanillaOnPolicyBuffer if name in OF_RETURNS else prl.GAEBuffer)
        storage = made.create_factory(size=16)
    else:
        sequences = None if memory is None else prl.Sequences(8)
        storage = prl.NStepReplayBuffer.create_factory(size=200, n_step=3, sequences=sequences)
    return prl.Scheme(
        algo_factory=cls.create_factory(**(common | hyper_parameters)),
        actor_factory=actor.create_factory(**(fields | changes.pop("actor", {}))),
        storage_factory=storage,
        train_envs_factory=prl.VecEnv.create_factory(Masked, num_envs=2, **changes.pop("envs", {})),
        seed=1,
    )


def stored(scheme: prl.Scheme) -> Any:
    return scheme.storage.get_all_buffer_data()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "DQN" else [pytest.mark.long]) for name in WITH_MEMORY]
)
def test_a_run_of_an_actor_with_a_memory_takes_only_allowed_actions(name: str) -> None:
    scheme = train(composed(name, memory="lstm"), STEPS)
    assert all(parameter.isfinite().all() for parameter in scheme.actor.parameters())


@pytest.mark.parametrize("name", ["PPO", "A2C", "TRPO", "IMPALA", "PCL"])
def test_every_component_of_several_choices_is_allowed(name: str) -> None:
    envs = {"env_kwargs": {"choices": (3, 2, 4), "start": 1}}
    scheme = train(composed(name, envs=envs), STEPS)
    assert scheme.algorithm.updates > 0
    assert all(parameter.isfinite().all() for parameter in scheme.actor.parameters())


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in IN_QUICK_RUNS else [pytest.mark.long]) for name in (*REPLAYED, *COLLECTED)],
)
def test_a_run_does_not_depend_on_outputs_for_actions_that_are_never_allowed(name: str) -> None:
    plain, other = composed(name), composed(name)
    changed = change_outputs_never_used(other)
    assert changed
    for scheme in (plain, other):
        train(scheme, STEPS)
    if name not in COLLECTED:
        assert len(stored(plain)[ACT].unique()) == 3
        assert torch.equal(stored(plain)[ACT], stored(other)[ACT])
    assert_learnt_alike(plain, other, changed)


def test_dqns_target_is_the_largest_value_of_the_next_allowed_actions() -> None:
    scheme = composed("DQN by softmax")
    train(scheme, 40)
    algorithm: Any = scheme.algorithm
    [batch] = scheme.storage.generate_batches(1, 16)
    values = algorithm.q_target.head(algorithm.q_target.body(batch[OBS2])).values.detach().numpy()
    expected = []
    for row, mask in enumerate(batch[OBS2]["action_mask"].numpy()):
        allowed = [values[row, action] for action in range(4) if mask[action]]
        discount = float(batch[DISCOUNT][row, 0])
        expected.append(float(batch[REW][row, 0]) + discount * (max(allowed) if allowed else max(values[row])))
    found = algorithm.target_value(algorithm.read(batch)).mean.detach().numpy()[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert (batch[OBS2]["action_mask"].sum(1) == 0).any(), "no row ends an episode"


def test_the_policy_is_a_softmax_over_the_allowed_actions() -> None:
    scheme = composed("PPO")
    algorithm: Any = scheme.algorithm
    mask = torch.tensor([[1, 0, 1, 0], [0, 0, 1, 0], [1, 0, 1, 1]], dtype=torch.int8)
    obs = {"observation": torch.randn(3, 3), "action_mask": mask}
    policy = algorithm.pi(algorithm.actor.view(obs))
    logits = algorithm.pi.head(algorithm.pi.body(obs)).logits.detach().double().numpy()
    for row in range(3):
        weights = np.where(mask[row], np.exp(logits[row]), 0.0)
        shares = weights / weights.sum()
        np.testing.assert_allclose(policy.probabilities[row].detach(), shares, rtol=1e-5)
        entropy = -sum(share * np.log(share) for share in shares if share)
        np.testing.assert_allclose(policy.entropy()[row].detach(), [entropy], rtol=1e-4, atol=1e-6)


def test_a_lower_bound_of_probabilities_holds_for_the_allowed_actions() -> None:
    algorithm: Any = composed("PPO of a softmax with temperature").algorithm
    preferences, mask = torch.tensor([[9.0, 9.0, 0.0, 1.0]]), torch.tensor([[1, 0, 1, 1]], dtype=torch.int8)
    policy = algorithm.pi.head.output(preferences).allowing(mask != 0)
    weights = np.exp(np.array([9.0, 0.0, 1.0]) / 0.5)
    expected = 0.01 + (1 - 3 * 0.01) * weights / weights.sum()
    np.testing.assert_allclose(policy.probabilities[0, [0, 2, 3]].detach(), expected, rtol=1e-5)
    assert policy.probabilities[0, NEVER] == 0


def test_the_target_entropy_of_discrete_sac_counts_allowed_actions() -> None:
    scheme = train(composed("SACDiscrete"), 40)
    algorithm: Any = scheme.algorithm
    [batch] = scheme.storage.generate_batches(1, 16)
    counts = batch[OBS]["action_mask"].sum(1).double().numpy()
    target = algorithm.target_entropy(algorithm.read(batch))
    np.testing.assert_allclose(float(target), 0.98 * np.log(counts).mean(), rtol=1e-5)


def test_random_actions_are_uniform_among_those_allowed() -> None:
    scheme = composed("DQN", envs={"env_kwargs": {"start": 3}})
    algorithm: Any = scheme.algorithm
    rows = 3_000
    mask = torch.tensor([[1, 0, 1, 1]], dtype=torch.int8).expand(rows, 4)
    obs = {"observation": torch.zeros(rows, 3), "action_mask": mask}
    exploration = Exploration(algorithm.codec, rows, "cpu", seed=0)
    drawn = algorithm.acting_step(obs, None, torch.zeros(rows, 1), exploration).action
    counts = np.bincount(drawn[:, 0], minlength=4)
    assert counts[1] == 0
    np.testing.assert_allclose(counts[[0, 2, 3]], rows / 3, rtol=0.1)


@pytest.mark.parametrize("choices", [(4,), (3, 2, 4)])
def test_random_actions_of_an_evaluation_are_among_those_allowed(choices: tuple[int, ...]) -> None:
    envs = {"env_kwargs": {"choices": choices, "start": 1}}
    with composed("PPO", envs=envs) as scheme:
        # The environment raises an error where another one is taken.
        assert len(evaluate(scheme.algorithm, scheme.envs, 20, 3, random_share=1.0).returns) == 20


class SeenKeys(nn.Module):
    """An extractor that keeps the names of the parts it was given."""

    output_size = 3
    names: frozenset[str] = frozenset()

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        assert isinstance(space, spaces.Dict)
        assert list(space.spaces) == ["observation"]

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        SeenKeys.names |= observation.keys()
        return observation["observation"]


@pytest.mark.parametrize("name", ["DQN", "RND"])
def test_networks_do_not_take_the_mask_as_an_input_and_it_is_not_normalised(name: str) -> None:
    SeenKeys.names = frozenset()
    actor = {"feature_extractor": SeenKeys, "normalize_observations": True}
    scheme = train(composed(name, actor=actor, envs={"env_kwargs": {"as_numbers": True}}), STEPS)
    assert SeenKeys.names == {"observation"}
    normalizations = [each for each in scheme.actor.modules() if isinstance(each, ObservationNormalization)]
    assert normalizations
    assert all(len(each.moments) == 1 for each in normalizations)
    assert "action_mask" not in scheme.actor.reads


def test_a_component_without_an_allowed_choice_allows_all() -> None:
    parts = {"observation": spaces.Box(-1, 1, (3,)), "action_mask": spaces.MultiBinary(5)}
    mask = ActionMask("action_mask", spaces.Dict(parts), spaces.MultiDiscrete([3, 2]))
    rows = torch.tensor([[0, 1, 0, 0, 0], [0, 0, 0, 0, 1]], dtype=torch.int8)
    allowed = mask.of(Observations({"action_mask": rows}))
    assert allowed.flags.tolist() == [[False, True, False, True, True], [True, True, True, False, True]]


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param("DQN", marks=pytest.mark.long), "IQN", pytest.param("PPO", marks=pytest.mark.long)]
)
def test_a_loaded_and_an_exported_policy_obey_the_mask(name: str, tmp_path: Path) -> None:
    learner = prl.Learner(composed(name), STEPS, tmp_path / "run")
    learner.run()
    policy = prl.TrainedPolicy(learner.scheme.algorithm)
    path = policy.export(tmp_path / "policy.pt2")
    random = np.random.default_rng(0)
    mask = random.integers(0, 2, (40, 4)).astype(np.int8)
    mask[:, 0] = 1
    obs = {"observation": random.normal(size=(40, 3)).astype(np.float32), "action_mask": mask}
    chosen = policy(obs)
    assert mask[np.arange(40), chosen].all()
    exported = torch.export.load(path).module()
    inputs = [torch.from_numpy(obs[key]) for key in ("action_mask", "observation")]
    np.testing.assert_array_equal(exported(*inputs).numpy().reshape(-1), chosen)
    learner.close()


SPACE = spaces.Dict({"observation": spaces.Box(-1, 1, (3,)), "action_mask": spaces.MultiBinary(4)})


def actor_of(observations: gym.Space[Any], actions: gym.Space[Any]) -> Any:
    envs: Any = type("Envs", (), {"observation_space": observations, "action_space": actions})()
    return prl.OffPolicyActor.create_factory(action_mask="action_mask")("cpu", envs)


@pytest.mark.parametrize(
    ("observations", "actions", "message"),
    [
        (SPACE, spaces.Box(-1, 1, (2,)), "must be Discrete or MultiDiscrete"),
        (spaces.Box(-1, 1, (3,)), spaces.Discrete(4), "must be a Dict with this part.*ObserveActionMask adds it"),
        (SPACE, spaces.Discrete(3), "the part must have 3 numbers, one for each action of Discrete\\(3\\)"),
        (SPACE, spaces.MultiDiscrete([3, 2]), "the part must have 5 numbers"),
        (spaces.Dict({"action_mask": spaces.MultiBinary(4)}), spaces.Discrete(4), "no part but the mask"),
    ],
)
def test_a_mask_that_does_not_fit_the_spaces_is_refused(
    observations: gym.Space[Any], actions: gym.Space[Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"action_mask='action_mask': .*{message}"):
        actor_of(observations, actions)


@dataclass(frozen=True)
class OwnPolicy(prl.heads.DistributionHead):
    """A policy of torch's distribution, which cannot be restricted to allowed actions."""

    def build(self, features: int, actor: prl.Actor) -> nn.Module:
        return _OwnLayer(features, 4)


class _OwnLayer(nn.Linear):
    def forward(self, features: Tensor) -> Any:
        return TorchDistribution(torch.distributions.Categorical(logits=super().forward(features)))


@pytest.mark.parametrize(
    "algorithm",
    [
        prl.DecisionTransformer.create_factory(distribution=OwnPolicy()),
        prl.PPO.create_factory(distribution=OwnPolicy()),
    ],
    ids=["DecisionTransformer", "PPO"],
)
@pytest.mark.parametrize("seed", range(2))
def test_an_algorithm_whose_policy_ignores_the_mask_is_refused(algorithm: Any, seed: int) -> None:
    # Whichever action its initial weights prefer.
    torch.manual_seed(seed)
    envs = prl.VecEnv.create_factory(Masked)()
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,), action_mask="action_mask")("cpu", envs)
    with pytest.raises(ValueError, match="its policy ignores action_mask='action_mask' of the actor; remove the mask"):
        algorithm("cpu", actor, envs)
