"""No update, and no acting network, mixes devices or reads a value back from the device.

On the meta device tensors have shapes and no numbers: an operation between two devices fails there, and so does every
attempt to read a value.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.algorithms.policy_gradient.options import OPTION, OPTION_BEFORE
from storages.transition import (
    ACT,
    ACT2,
    ACTPROBS,
    ADV,
    BATCH_SIZES,
    DISCOUNT,
    DONE,
    DONE2,
    EPISODE,
    LOGP,
    MASK,
    OBS,
    OBS2,
    RET,
    REW,
    REWC,
    RHS,
    RTG,
    SORTED_INDICES,
    TAKEN2,
    VAL,
    WEIGHTS,
    WINDOW,
)
from tests.support.hybrid import joined
from tests.support.profiles import FULL

DISCRETE, BOX = spaces.Discrete(3), spaces.Box(np.float32(-2), np.float32(1), (2,))
ALGORITHMS: dict[str, tuple[Any, Any]] = {
    "DQN": (prl.DQN.create_factory(), DISCRETE),
    "DQN, not double": (prl.DQN.create_factory(double=False, optimizer=prl.RMSprop()), DISCRETE),
    "SARSA": (prl.SARSA.create_factory(), DISCRETE),
    "ResidualDQN": (prl.ResidualDQN.create_factory(), DISCRETE),
    "DoublePAL": (prl.DoublePAL.create_factory(), DISCRETE),
    "DPP": (prl.DPP.create_factory(), DISCRETE),
    "CategoricalDQN": (prl.CategoricalDQN.create_factory(num_atoms=5), DISCRETE),
    "Rainbow": (prl.Rainbow.create_factory(num_atoms=5, explorer=prl.Greedy()), DISCRETE),
    "QRDQN": (prl.QRDQN.create_factory(num_quantiles=5), DISCRETE),
    "NAF": (prl.NAF.create_factory(squash=False), BOX),
    "QtOpt": (prl.QtOpt.create_factory(num_samples=8), BOX),
    "PETS": (prl.PETS.create_factory(planner=prl.planners.CrossEntropy(2, 2, 4, 2)), BOX),
    "PDDM": (prl.PDDM.create_factory(planner=prl.planners.PathIntegral(2)), BOX),
    "MBMPC": (prl.MBMPC.create_factory(planner=prl.planners.RandomShooting(2, 4)), BOX),
    "MBPO": (prl.MBPO.create_factory(rollout_length=2), BOX),
    "IQN": (prl.IQN.create_factory(risk=prl.risk_measures.Wang(-0.75)), DISCRETE),
    "MunchausenDQN": (prl.MunchausenDQN.create_factory(), DISCRETE),
    "MunchausenIQN": (prl.MunchausenIQN.create_factory(quantile_layers=(5,)), DISCRETE),
    "SAC": (prl.SAC.create_factory(), BOX),
    "SACDiscrete": (prl.SACDiscrete.create_factory(), DISCRETE),
    "SACWithValue": (prl.SACWithValue.create_factory(), BOX),
    "MMESAC": (prl.MMESAC.create_factory(), BOX),
    "DEMMESAC": (prl.DEMMESAC.create_factory(), BOX),
    "REDQ": (prl.REDQ.create_factory(num_critics=3, policy_delay=2), BOX),
    "DroQ": (prl.DroQ.create_factory(policy_delay=1), BOX),
    "SACDecomposed": (prl.SACDecomposed.create_factory(), BOX),
    "SACDecomposed, of three components": (
        prl.SACDecomposed.create_factory(reward_components=("a", "b", "c"), component_weights={"a": 2.0}),
        BOX,
    ),
    "QRSAC": (prl.QRSAC.create_factory(num_quantiles=5), BOX),
    "TQC": (prl.TQC.create_factory(), BOX),
    "CrossQ": (prl.CrossQ.create_factory(policy_delay=1), BOX),
    "MPO": (prl.MPO.create_factory(num_samples=3), BOX),
    "MPODiscrete": (prl.MPODiscrete.create_factory(), DISCRETE),
    "HyAR": (prl.HyAR.create_factory(policy_delay=1), joined()),
    "TD3": (prl.TD3.create_factory(policy_delay=1), BOX),
    "ACER": (prl.ACER.create_factory(), DISCRETE),
    "ACERContinuous": (prl.ACERContinuous.create_factory(), BOX),
    "PCL": (prl.PCL.create_factory(), BOX),
    "UnifiedPCL": (prl.UnifiedPCL.create_factory(), DISCRETE),
    "BCQ": (prl.BCQ.create_factory(), BOX),
    "DiscreteBCQ": (prl.DiscreteBCQ.create_factory(), DISCRETE),
    "BEAR": (prl.BEAR.create_factory(warmup_updates=1), BOX),
    "DecisionTransformer": (prl.DecisionTransformer.create_factory(), BOX),
    "DecisionTransformer, discrete": (prl.DecisionTransformer.create_factory(), DISCRETE),
    "BehaviourCloning, mixture": (
        prl.BehaviourCloning.create_factory(distribution=prl.heads.MixturePolicy()),
        BOX,
    ),
    "TD3BC": (prl.TD3BC.create_factory(policy_delay=1), BOX),
    "CQL": (prl.CQL.create_factory(lagrange_threshold=5.0), BOX),
    "CalQL": (prl.CalQL.create_factory(), BOX),
    "DiscreteCQL": (prl.DiscreteCQL.create_factory(), DISCRETE),
    "IQL": (prl.IQL.create_factory(), BOX),
    "XQL": (prl.XQL.create_factory(), BOX),
    "AWAC": (prl.AWAC.create_factory(), BOX),
    "CRR": (prl.CRR.create_factory(compared_with="max"), BOX),
    "CRR, binary": (prl.CRR.create_factory(weighting="binary"), BOX),
    "EDAC": (prl.EDAC.create_factory(num_critics=3), BOX),
    "BehaviourCloning": (prl.BehaviourCloning.create_factory(), DISCRETE),
    "NStepQLearning": (prl.NStepQLearning.create_factory(), DISCRETE),
    "PQN": (prl.PQN.create_factory(), DISCRETE),
    "PPO": (prl.PPO.create_factory(use_clipped_value_loss=True), BOX),
    "PPO, gSDE": (prl.PPO.create_factory(distribution=prl.heads.GSDEPolicy(squash=True)), BOX),
    "A2C, mellowmax": (prl.A2C.create_factory(distribution=prl.heads.MellowmaxPolicy()), DISCRETE),
    "PPO, discrete": (prl.PPO.create_factory(), DISCRETE),
    "REINFORCE": (prl.REINFORCE.create_factory(), BOX),
    "TRPO": (prl.TRPO.create_factory(value_epochs=2), BOX),
    "TRPO, discrete": (prl.TRPO.create_factory(value_epochs=2), DISCRETE),
    "GAIL": (prl.GAIL.create_factory(), BOX),
    "AMP": (prl.AMP.create_factory(), BOX),
    "OptionCritic": (prl.OptionCritic.create_factory(), BOX),
    "OptionCritic, discrete": (prl.OptionCritic.create_factory(), DISCRETE),
}
WITHOUT_MEMORY = ["PETS", "PDDM", "MBMPC", "MBPO", "CrossQ", "DecisionTransformer", "DecisionTransformer, discrete"]
ROWS, STEPS = 6, 4


def made(name: str, memory: Any = None, **hyper_parameters: Any) -> prl.Algorithm:
    factory, space = ALGORITHMS[name]
    envs = SimpleNamespace(
        observation_space=spaces.Box(-np.inf, np.inf, (3,), np.float32), action_space=space, num_envs=ROWS
    )
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4, **hyper_parameters)
    algorithm: prl.Algorithm = factory("meta", actor("meta", envs), envs)
    return algorithm


def batch_of(algorithm: prl.Algorithm, *shape: int) -> dict[str, Any]:
    def empty(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty((*shape, *size), dtype=dtype, device="meta")

    action = empty(1, dtype=torch.int64) if algorithm.action_space is DISCRETE else empty(*algorithm.action_space.shape)
    scalars = (RTG, DONE, DONE2, REW, DISCOUNT, WEIGHTS, ADV, RET, VAL, LOGP, TAKEN2)
    acted = empty(3 if algorithm.action_space is DISCRETE else 4)
    others = {name: empty(1) for name in scalars}
    others |= {name: empty(1, dtype=torch.int64) for name in (OPTION, OPTION_BEFORE)}
    others[REWC] = empty(3)
    return {OBS: empty(3), OBS2: empty(3), ACT: action, ACT2: action, ACTPROBS: acted} | others


def sequences_of(algorithm: prl.Algorithm) -> dict[str, Any]:
    batch = batch_of(algorithm, STEPS, ROWS)
    if "rollout" in {needs.kind for needs in algorithm.sources.values()}:
        del batch[WEIGHTS]
        return batch
    window = torch.ones((STEPS, ROWS, 1), dtype=torch.int64, device="meta")
    return batch | {MASK: batch[REW], WINDOW: window, WEIGHTS: batch[WEIGHTS][0]}


@pytest.mark.quick_share(0.12, long=0.5)
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize(
    "layers",
    [
        {},
        # All these layers in one update.
        pytest.param({"layer_norm": True, "dropout": 0.1, "noisy": True, "dueling": True}, marks=pytest.mark.long),
    ],
)
def test_an_update_of_transitions_does_not_wait_for_the_device(name: str, layers: dict[str, Any]) -> None:
    if issubclass(ALGORITHMS[name][0].cls, prl.TRPO):
        # A line search compares outputs of the policy, which must not be random.
        layers = {layer: value for layer, value in layers.items() if layer not in ("noisy", "dropout")}
    algorithm = made(name, **layers)
    needs = algorithm.sources["main"]
    batch = sequences_of(algorithm) if needs.segments or needs.whole_episodes else batch_of(algorithm, ROWS)
    for _ in range(2):
        result = algorithm.update(batch)
    assert all(value.device.type == "meta" for value in result.metrics.values())
    algorithm.apply_gradients({} if isinstance(algorithm, prl.TRPO) else algorithm.compute_gradients(batch)[0])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "memory"),
    # Quick runs try one kind of memory with each algorithm.
    [
        pytest.param(name, memory, marks=FULL if (number + is_lstm) % 2 else ())
        for number, name in enumerate(name for name in ALGORITHMS if name not in WITHOUT_MEMORY)
        for is_lstm, memory in enumerate(("gru", "lstm"))
    ],
)
def test_an_update_of_sequences_does_not_wait_for_the_device(name: str, memory: Any) -> None:
    algorithm = made(name, memory)
    algorithm.update(sequences_of(algorithm) | {RHS: algorithm.actor.initial_memory(ROWS)})


@pytest.mark.parametrize("name", ["DQN", "SAC", "TD3", "QRDQN"])
def test_an_update_of_packed_episodes_does_not_wait_for_the_device(name: str) -> None:
    algorithm = made(name, "gru")
    sizes = torch.tensor([3, 2, 1])
    batch = batch_of(algorithm, 6)

    def numbers(rows: int) -> torch.Tensor:
        return torch.zeros(rows, dtype=torch.int64, device="meta")

    packing = {
        BATCH_SIZES: sizes,
        SORTED_INDICES: numbers(3),
        EPISODE: numbers(6)[:, None],
        WINDOW: numbers(6)[:, None],
    }
    batch |= packing | {WEIGHTS: batch[WEIGHTS][:3], RHS: algorithm.actor.initial_memory(3)}
    algorithm.update(batch)


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("memory", [None, pytest.param("gru", marks=pytest.mark.long)])
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_acting_stays_on_one_device(name: str, deterministic: bool, memory: Any) -> None:
    if memory and name in WITHOUT_MEMORY:
        pytest.skip("it has no memory")
    algorithm = made(name, memory)
    exploration = prl.Exploration(algorithm.codec, ROWS, "meta", seed=0, deterministic=deterministic)
    exploration.steps = exploration.target_steps = 10**6
    obs, done = torch.empty((ROWS, 3), device="meta"), torch.empty((ROWS, 1), device="meta")
    acting = algorithm.acting_step(obs, algorithm.actor.initial_memory(ROWS), done, exploration)
    assert acting.env_action.device.type == "meta"
    assert len(acting.action) == ROWS
