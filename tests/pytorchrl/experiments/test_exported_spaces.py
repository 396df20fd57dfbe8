"""Policies of all kinds of observations and actions act in an exported file as they do in the toolkit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

import pytorchrl as prl
from pytorchrl.agent.actors.encoders import some_observations
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from tests.support.by_hand import perturb
from tests.support.every_algorithm import ACTIONS
from tests.support.exported import exported_actions, skip_without_onnx
from tests.support.memories import MEMORIES

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning", "ignore::RuntimeWarning"
)
ROWS = 7

BOX = spaces.Box(-1, 1, (3,), np.float32)
OBSERVATIONS: dict[str, Any] = {
    "vector": BOX,
    "unbounded vector": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "number": spaces.Box(-1, 1, (), np.float32),
    "matrix": spaces.Box(-1, 1, (2, 3), np.float32),
    "float64": spaces.Box(-1, 1, (3,), np.float64),
    "float16": spaces.Box(-1, 1, (3,), np.float16),
    "integers": spaces.Box(-5, 5, (3,), np.int64),
    "bytes": spaces.Box(0, 255, (3,), np.uint8),
    "pixels": spaces.Box(0, 255, (36, 36, 1), np.uint8),
    "small pixels": spaces.Box(0, 1, (4, 5, 5), np.float32),
    "choice": spaces.Discrete(4),
    "choice from -2": spaces.Discrete(4, start=-2),
    "choices": spaces.MultiDiscrete([3, 2]),
    "choices from 1": spaces.MultiDiscrete([3, 2], start=[1, -1]),
    "table of choices": spaces.MultiDiscrete([[3, 2], [2, 4]]),
    "bits": spaces.MultiBinary(3),
    "matrix of bits": spaces.MultiBinary([2, 3]),
}
OBSERVATIONS["dict"] = spaces.Dict({name.replace(" ", "_"): space for name, space in OBSERVATIONS.items()})
MORE_ACTIONS = {
    "integers": spaces.Box(-2, 2, (2,), np.int64),
    "float64": spaces.Box(-2, 3, (2,), np.float64),
    "number": spaces.Box(-2, 3, (), np.float32),
    "discrete from -1": spaces.Discrete(3, start=-1),
    "several from 1": spaces.MultiDiscrete([3, 2], start=[1, 5]),
    "matrix of bits": spaces.MultiBinary([2, 2]),
}


class Spaces:
    """Stands for environments with these spaces."""

    num_envs, stacked_frames = 1, 0

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def policy_of(algorithm: Any, actor: Any, observations: Any, actions: Any) -> TrainedPolicy:
    envs = Spaces(observations, actions)
    built = algorithm("cpu", actor("cpu", envs), envs)
    perturb(built.actor, 1, 0.3)
    return TrainedPolicy(built)


def inputs_of(policy: TrainedPolicy) -> tuple[Any, list[Tensor]]:
    """Observations of a policy, as it takes them, and as an exported network does."""
    seen = some_observations(policy.observation_space, ROWS, torch.device("cpu"))
    inputs = list(seen.values()) if isinstance(seen, dict) else [seen]
    space = policy.observation_space
    if isinstance(space, spaces.Dict):
        taken: Any = {name: one.numpy().reshape(ROWS, *space[name].shape) for name, one in seen.items()}
    else:
        taken = seen.numpy().reshape(ROWS, *space.shape)
    return taken, inputs


def acts_alike(policy: TrainedPolicy, path: Path) -> None:
    skip_without_onnx(path.suffix)
    policy.export(path)
    taken, inputs = inputs_of(policy)
    states = policy.algorithm.actor.initial_memory(ROWS)
    policy.reset()
    for _ in range(2):
        outputs = exported_actions(path, inputs if states is None else [*inputs, states])
        expected = policy(taken)
        assert outputs[0].dtype == expected.dtype
        np.testing.assert_allclose(outputs[0].reshape(ROWS, -1), expected.reshape(ROWS, -1), rtol=1e-4, atol=1e-4)
        if states is not None:
            states = torch.from_numpy(np.array(outputs[1]))


@pytest.mark.quick_share(0, long=0.3)
@pytest.mark.parametrize("suffix", [".pt2", ".onnx", ".ts"])
@pytest.mark.parametrize("memory", [None, "gru"])
@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_a_policy_of_any_kind_of_observations_acts_in_a_file_as_in_the_toolkit(
    kind: str, memory: Any, suffix: str, tmp_path: Path
) -> None:
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4)
    policy = policy_of(prl.PPO.create_factory(), actor, OBSERVATIONS[kind], spaces.MultiDiscrete([3, 2], start=[1, 0]))
    acts_alike(policy, tmp_path / f"policy{suffix}")


@pytest.mark.quick_share(0, long=0.3)
@pytest.mark.parametrize("suffix", [".pt2", ".onnx", ".ts"])
@pytest.mark.parametrize("memory", [None, "lstm"])
@pytest.mark.parametrize(
    "actions", [*(ACTIONS[kind] for kind in ACTIONS if kind != "hybrid"), *MORE_ACTIONS.values()], ids=str
)
def test_a_policy_of_any_kind_of_actions_acts_in_a_file_as_in_the_toolkit(
    actions: Any, memory: Any, suffix: str, tmp_path: Path
) -> None:
    if isinstance(actions, spaces.Box) and not np.issubdtype(actions.dtype, np.floating):
        pytest.skip("a Box of integers takes the wrapper RoundAction")
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4, shared_body=True)
    observations = spaces.Dict(a=spaces.MultiDiscrete([3, 2]), b=BOX)
    acts_alike(policy_of(prl.PPO.create_factory(), actor, observations, actions), tmp_path / f"policy{suffix}")


@pytest.mark.quick_share(0, long=0.3)
@pytest.mark.parametrize("suffix", [".pt2", ".onnx", ".ts"])
@pytest.mark.parametrize("name", MEMORIES)
def test_a_policy_with_any_memory_acts_in_a_file_as_in_the_toolkit(name: str, suffix: str, tmp_path: Path) -> None:
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory_size=4, **MEMORIES[name])
    acts_alike(policy_of(prl.PPO.create_factory(), actor, BOX, ACTIONS["bounded"]), tmp_path / f"policy{suffix}")
