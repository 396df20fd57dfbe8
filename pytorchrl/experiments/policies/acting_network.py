"""The deterministic policy as one module, which torch can export."""

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.encoders import some_observations
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.spaces import EnvActions
from pytorchrl.agent.explorers import Exploration

ROWS = 2
"""Batch size of the example inputs; torch would specialise on a batch size of 1."""


class ActingNetwork(nn.Module):
    """The deterministic policy as a module, from observations to the environment's actions.

    It computes what :meth:`Algorithm.act` does, also where a subclass overrides it.

    Args:
        algorithm: has the trained actor.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__()
        self.actor = algorithm.actor
        self.algorithm = algorithm
        space = algorithm.actor.observation_space
        self._names = list(space.spaces) if isinstance(space, spaces.Dict) else None
        self._exploration = Exploration(algorithm.codec, ROWS, algorithm.device, seed=0, deterministic=True)
        # Schedules of exploration are at their end, as in a loaded policy.
        self._exploration.steps = self._exploration.target_steps = algorithm.target_steps
        # A file cannot hold a generator: torch, or the ONNX runtime, draws from its own.
        self._exploration.generator = None  # type: ignore[assignment]
        self._in_env = EnvActions(algorithm.actor.action_space)
        self._shapes = [part.shape[1:] for part in example_inputs(algorithm, ROWS)]

    @property
    def keeps_state(self) -> bool:
        """Whether choosing actions has left a state for the next step, which an exported network would lose."""
        return bool(self._exploration.state)

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Return the actions for observations.

        Args:
            *inputs: observations (B, *obs), or the parts of a dict in their order; at last the recurrent states (B,
                hidden) of a recurrent actor.

        Returns:
            Actions (B, *action), (B, 1) of a Discrete space, and the next recurrent states of a recurrent actor.
        """
        if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            # Other files have the sizes of inputs; here, one number would be broadcast as all of an observation.
            inputs = tuple(x.reshape(x.shape[0], *shape) for x, shape in zip(inputs, self._shapes, strict=True))
        parts = inputs if self.actor.memory is None else inputs[:-1]
        obs: Any = parts[0] if self._names is None else dict(zip(self._names, parts, strict=True))
        # Not a constant of the exported network: a policy may draw as many actions as there are rows.
        self._exploration.num_envs = self._exploration.among = inputs[0].shape[0]
        if self.actor.memory is None:
            return self._actions(self.actor.view(obs))
        # Callers pass zero states where an episode begins.
        view = self.actor.view(obs, inputs[-1], torch.zeros_like(inputs[-1][:, :1]))
        actions, states = self._actions(view), view.rhs_after()
        assert states is not None
        return actions, states

    def _actions(self, view: Any) -> Tensor:
        chosen, _ = self.algorithm.act(view, self._exploration)
        action = self.algorithm.codec.to_env(chosen)
        return self._in_env.of_tensors(action).view_as(action)


def example_inputs(algorithm: Algorithm, rows: int) -> tuple[Tensor, ...]:
    """Return observations of the space, part by part, and zero states of a recurrent actor; always the same."""
    space, device = algorithm.actor.observation_space, algorithm.device
    observations = some_observations(space, rows, device)
    inputs = list(observations.values()) if isinstance(observations, dict) else [observations]
    states = algorithm.actor.initial_memory(rows)
    return tuple(inputs if states is None else [*inputs, states])


def input_names(algorithm: Algorithm) -> list[str]:
    """Return the names of the inputs."""
    space = algorithm.actor.observation_space
    names = [str(name) for name in space.spaces] if isinstance(space, spaces.Dict) else ["observation"]
    return names if algorithm.actor.memory is None else [*names, "states"]


def input_sizes(algorithm: Algorithm) -> list[int]:
    """Return how many numbers each input has in a row."""
    return [math.prod(part.shape[1:]) for part in example_inputs(algorithm, ROWS)]


def output_names(algorithm: Algorithm) -> list[str]:
    """Return the names of the outputs."""
    return ["action"] if algorithm.actor.memory is None else ["action", "states_after"]


def chosen_actions(algorithm: Algorithm, inputs: tuple[Tensor, ...]) -> Any:
    """Return the actions (B, *action) that the policy itself chooses for the inputs of :func:`example_inputs`."""
    actor, space = algorithm.actor, algorithm.actor.observation_space
    parts, states = (inputs, None) if actor.memory is None else (inputs[:-1], inputs[-1])
    obs: Any = dict(zip(space.spaces, parts, strict=True)) if isinstance(space, spaces.Dict) else parts[0]
    rows = len(inputs[0])
    exploration = Exploration(algorithm.codec, rows, algorithm.device, 0, deterministic=True, apart_from_training=True)
    exploration.steps = exploration.target_steps = algorithm.target_steps
    exploration.starts = torch.ones((rows, 1), device=algorithm.device)
    step = algorithm.acting_step(obs, states, exploration.starts, exploration)
    numbers = EnvActions(algorithm.action_space)(step.env_action.cpu().numpy())
    return np.asarray(numbers).reshape(rows, -1)
