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
from tests.support.every_algorithm import ACTIONS, OFF_POLICY, ON_POLICY, WITH_MEMORY
from tests.support.profiles import FULL

# They learn from data or rollouts that this batch does not hold, or ask an expert.
WITHOUT_BATCH = ("DAgger", "RND", "IMPALA", "TRPOSinglePath", "AIRL", "PPOD", "GAIL on A2C")
ALGORITHMS: dict[str, tuple[Any, Any]] = {
    name: (cls.create_factory(**settings), ACTIONS[kinds[0]])
    for name, (cls, settings, kinds) in (OFF_POLICY | ON_POLICY).items()
    if not name.startswith(WITHOUT_BATCH)
}
WITHOUT_MEMORY = ["PETS", "PDDM", "MBMPC", "MBPO", "CrossQ", "DrQV2", "MRQ", "SPR", "BBF", "DecisionTransformer"]
ROWS, STEPS = 6, 4


def made(name: str, memory: Any = None, **hyper_parameters: Any) -> prl.Algorithm:
    factory, space = ALGORITHMS[name]
    if factory.cls in WITH_MEMORY:
        memory = memory or "gru"
    envs = SimpleNamespace(
        observation_space=spaces.Box(-np.inf, np.inf, (3,), np.float32), action_space=space, num_envs=ROWS
    )
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4, **hyper_parameters)
    algorithm: prl.Algorithm = factory("meta", actor("meta", envs), envs)
    return algorithm


def batch_of(algorithm: prl.Algorithm, *shape: int) -> dict[str, Any]:
    def empty(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty((*shape, *size), dtype=dtype, device="meta")

    action = (
        empty(1, dtype=torch.int64)
        if isinstance(algorithm.action_space, spaces.Discrete)
        else empty(*algorithm.action_space.shape)
    )
    scalars = (RTG, DONE, DONE2, REW, DISCOUNT, WEIGHTS, ADV, RET, VAL, LOGP, TAKEN2)
    acted = empty(3 if isinstance(algorithm.action_space, spaces.Discrete) else 4)
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
    needs, memory = algorithm.sources["main"], algorithm.actor.initial_memory(ROWS)
    in_sequences = needs.segments or needs.whole_episodes or needs.multi_step_rows or memory is not None
    batch = sequences_of(algorithm) if in_sequences else batch_of(algorithm, ROWS)
    batch |= {} if memory is None else {RHS: memory}
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
        # Its model is a GRU.
        if (name, memory) != ("DreamerV3", "lstm")
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
    if "Beta" in name and not deterministic:
        pytest.skip("torch draws from no Beta distribution on this device")
    algorithm = made(name, memory)
    exploration = prl.Exploration(algorithm.codec, ROWS, "meta", seed=0, deterministic=deterministic)
    exploration.steps = exploration.target_steps = 10**6
    obs, done = torch.empty((ROWS, 3), device="meta"), torch.empty((ROWS, 1), device="meta")
    acting = algorithm.acting_step(obs, algorithm.actor.initial_memory(ROWS), done, exploration)
    assert acting.env_action.device.type == "meta"
    assert len(acting.action) == ROWS
