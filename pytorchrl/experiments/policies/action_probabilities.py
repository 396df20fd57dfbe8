"""Probabilities with which a trained policy chooses actions, for logs that later evaluations read."""

from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from pytorchrl.agent.actors.per_network import values_of_setting
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.explorers import Exploration
from storages.transition import LOGP


def log_probabilities(
    algorithm: Algorithm, obs: Any, rhs: Any, done: Tensor, action: NDArray[Any], exploration: Exploration
) -> NDArray[np.float64]:
    """Return the logarithms of the probabilities, or densities in the environment's units, of actions (E,).

    Args:
        algorithm: has the policy and the explorer.
        obs: (E, *obs) on the algorithm's device, or a dict of such.
        rhs: recurrent hidden state before ``obs``; None without a memory.
        done: (E, 1) float32, 1 where ``obs`` is the first of an episode.
        action: (E, ...), as environments take them.
        exploration: with the progress of the run, not deterministic.

    Raises:
        NotImplementedError: they are not known for the algorithm and its explorer.
    """
    if algorithm.keeps_acting_state or algorithm.reads_rewards or not _chooses_by_explorer(algorithm):
        raise NotImplementedError(_refusal(algorithm, f"{type(algorithm).__name__} chooses actions in its own way"))
    codec, actor = algorithm.codec, algorithm.actor
    if any(values_of_setting(actor, "noisy")):
        raise NotImplementedError(_refusal(algorithm, "with noisy=True the noise of networks chooses actions"))
    with actor.acting(noisy=False):
        view = actor.view(obs, rhs, done)
        exploration.allowed = None if actor.mask is None else partial(actor.mask.of, view)
        chosen = _of_networks(algorithm, action)
        try:
            found = algorithm._explorer.log_prob(algorithm.policy(view, exploration), chosen, exploration)
        except NotImplementedError as error:
            raise NotImplementedError(_refusal(algorithm, str(error))) from None
    numbers: NDArray[np.float64] = found.double().cpu().numpy()[:, 0]
    if codec.stores_env_actions:
        # Of densities of actions in [-1, 1], scaled to the bounds.
        space = algorithm.action_space
        assert isinstance(space, spaces.Box)
        numbers = numbers - np.log((space.high.astype(np.float64) - space.low) / 2).sum()
    return numbers


def _chooses_by_explorer(algorithm: Algorithm) -> bool:
    """Whether `act` is the toolkit's, which asks the explorer, rather than a user's."""
    owner = next(cls for cls in type(algorithm).__mro__ if "act" in vars(cls))
    return owner.__module__.startswith("pytorchrl.")


def _refusal(algorithm: Algorithm, reason: str) -> str:
    return (
        f"TrainedPolicy: {reason}; log the policies of algorithms that draw actions, such as PPO, SAC and SACDiscrete, "
        f"or of those that explore by EpsilonGreedy or Boltzmann, or leave {LOGP} out of the log"
    )


def _of_networks(algorithm: Algorithm, action: NDArray[Any]) -> Tensor:
    """Return actions (E, ...) of environments as networks output them, (E, *action)."""
    space = algorithm.action_space
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        action = action - space.start
    if not space.shape:
        action = action[:, None]
    tensor = torch.from_numpy(action).to(algorithm.device)
    if not isinstance(space, spaces.Box):
        return tensor.long()
    return algorithm.codec.from_storage(tensor)
