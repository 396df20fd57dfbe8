"""The policy that made data: the probabilities of its actions, stored or of a clone, and the clone itself."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads import SoftmaxPolicy
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.imitation.behaviour_cloning import BehaviourCloning
from pytorchrl.agent.explorers import Exploration
from pytorchrl.agent.global_generators import seeded
from pytorchrl.experiments.policies.fitted_q import best_actions
from pytorchrl.scheme.collector import to_device
from storages import Storage
from storages.component.factory import Factory
from storages.datasets.values import probabilities_of_taken
from storages.episode import Episode
from storages.errors import DatasetError
from storages.transition import ACT, ACTPROBS, LOGP

Source = Literal["stored", "cloned"]
_ROUNDING = 1e-4
_EVERY = 100
"""Updates between looks at the episodes that are held out."""
_SMALLEST = 0.02
"""Share of a clone's probability that all actions have alike, so that no ratio is infinite."""


def stored_probabilities(episode: Episode, number: int = 0) -> NDArray[np.float64] | None:
    """Return the stored probability of each action of a Discrete space, (L,); None where the data have none.

    They are LOGP, or of ACTPROBS those of the actions taken, which may be logarithms.

    Args:
        episode: the episode.
        number: of the episode among those that are evaluated, for the error.

    Raises:
        DatasetError: they are no probabilities in (0, 1].
    """
    name = next((name for name in (LOGP, ACTPROBS) if name in episode.fields), None)
    if name is None:
        return None
    of_taken, are_logarithms = probabilities_of_taken(episode, name)
    probabilities: NDArray[np.float64] = np.exp(of_taken) if are_logarithms else of_taken
    possible = (probabilities > 0) & (probabilities <= 1 + _ROUNDING)
    if not possible.all():
        wrong = int(possible.argmin())
        raise DatasetError(
            f"{name} gives the action in step {wrong} of episode {episode.facts.get('number', number)} the probability "
            f"{probabilities[wrong]:g}; "
            f"importance sampling needs those of the actions taken, in (0, 1]. Correct the data, or leave {name} out, "
            f"so that they are estimated by behaviour cloning"
        )
    return probabilities


class Clone:
    """A policy cloned from data, for the probabilities of their actions, and for its own greedy ones.

    Args:
        algorithm: has the normalisation of observations and the device; it is not changed.
        actor_factory: makes the clone's network, with the architecture of the run's networks.
        envs: an object with the spaces.
        seed: of initial weights.
    """

    def __init__(
        self, algorithm: Algorithm, actor_factory: Factory[Actor], envs: Any, seed: np.random.SeedSequence
    ) -> None:
        self._seed, settings = seed, dict[str, Any]()
        if isinstance(envs.action_space, spaces.Discrete):
            settings["distribution"] = SoftmaxPolicy(min_probability=_SMALLEST / int(envs.action_space.n))
        cloning = BehaviourCloning.create_factory(**settings, test_every=0)
        with seeded(seed, algorithm.device):
            actor = actor_factory(algorithm.device, envs)
            self._clone: Algorithm = cloning(algorithm.device, actor, envs)
        if actor.normalization is not None and algorithm.actor.normalization is not None:
            actor.normalization.load_state_dict(algorithm.actor.normalization.state_dict())

    def fit(self, learnt: Storage, held_out: Sequence[Episode], updates: int, mini_batch_size: int) -> None:
        """Train on a storage; the weights are kept with which the actions of other episodes are likeliest.

        Args:
            learnt: a storage of the episodes to learn from.
            held_out: other episodes.
            updates: most updates.
            mini_batch_size: transitions of an update.
        """
        least, weights = self._surprise(held_out), copy.deepcopy(self._clone.actor.state_dict())
        for number, batch in enumerate(learnt.generate_batches(updates, mini_batch_size), 1):
            self._clone.update(batch)
            is_due = number % _EVERY == 0 or number == updates
            if is_due and (surprise := self._surprise(held_out)) < least:
                least, weights = surprise, copy.deepcopy(self._clone.actor.state_dict())
        self._clone.actor.load_state_dict(weights)

    def probabilities(self, episode: Episode) -> NDArray[np.float64]:
        """Return the probability of each action of an episode, (L,), of a Discrete space."""
        return np.exp(self._log_probabilities(episode))

    def greedy_actions(self, episode: Episode) -> torch.Tensor:
        """Return the likeliest actions in all observations of an episode, (L + 1, *action), in the data's form."""
        clone = self._clone
        exploration = Exploration(clone.codec, 1, clone.device, self._seed, deterministic=True)
        chosen = best_actions(clone, observations_of(episode, clone.device, slice(None)), exploration)
        return clone.codec.to_env(chosen)

    def _log_probabilities(self, episode: Episode) -> NDArray[np.float64]:
        """Return the logarithm of the probability, or density, of each action of an episode, (L,)."""
        clone, actions = self._clone, torch.from_numpy(np.ascontiguousarray(episode.fields[ACT]))
        with clone.actor.acting(noisy=False):
            policy: Any = clone.policy(clone.actor.view(observations_of(episode, clone.device)), None)  # type: ignore[arg-type]
            found = policy.log_prob(clone.codec.from_storage(actions.to(clone.device)))
        logarithms: NDArray[np.float64] = found.double().cpu().numpy().reshape(-1)
        return logarithms

    def _surprise(self, episodes: Sequence[Episode]) -> float:
        """Return the mean negative log-likelihood of all actions."""
        return -float(np.concatenate([self._log_probabilities(episode) for episode in episodes]).mean())


def observations_of(episode: Episode, device: torch.device, part: slice = slice(-1)) -> Any:
    """Return observations of an episode as tensors, (L, *obs) or a dict of such; all but the last one by default."""
    seen = episode.observations
    rows = {name: each[part] for name, each in seen.items()} if isinstance(seen, Mapping) else seen[part]
    return to_device(rows, device)
