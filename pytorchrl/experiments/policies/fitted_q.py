"""Values learnt offline from data: the Q-function of a policy, and the value of the actions that the data have."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads import ActionValue, StateValue
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Target
from pytorchrl.agent.explorers import Exploration
from pytorchrl.agent.global_generators import seeded
from storages.component.factory import Factory
from storages.transition import OBS2, Batch


class FittedValue(ABC):
    """A value network that is learnt from transitions by temporal differences, with a target network.

    Args:
        algorithm: has the normalisation of observations; it is not changed.
        actor_factory: makes the network, with the architecture of the run's networks.
        envs: an object with the spaces.
        seed: of initial weights.
        lr: learning rate.
        polyak: share of the target network that is kept at each update.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        actor_factory: Factory[Actor],
        envs: object,
        seed: np.random.SeedSequence,
        lr: float,
        polyak: float,
    ) -> None:
        self._algorithm, self._polyak = algorithm, polyak
        with seeded(seed, algorithm.device):
            actor = actor_factory(algorithm.device, envs)
            self._network = self._made(actor)
        if actor.normalization is not None and algorithm.actor.normalization is not None:
            actor.normalization.load_state_dict(algorithm.actor.normalization.state_dict())
        self._actor = actor
        self._target = Target(self._network, None, "polyak", None)
        self._adam = torch.optim.Adam(self._network.parameters(), lr=lr)

    def fit(self, batches: Iterator[Batch]) -> float:
        """Update with batches of transitions; returns the mean loss of the last tenth of them."""
        with self._actor.updating():
            losses = [self._update(batch) for batch in batches]
        return float(torch.stack(losses[-max(1, len(losses) // 10) :]).mean())

    @abstractmethod
    def at(self, obs: Tensor) -> Tensor:
        """Return the values of observations (N, *obs), or of a dict of such, (N, 1)."""

    @abstractmethod
    def _made(self, actor: Actor) -> Any:
        """Return the network."""

    @abstractmethod
    def _now(self, rows: Rows) -> Tensor:
        """Return the values that are learnt, (N, 1)."""

    @abstractmethod
    def _following(self, rows: Rows, batch: Batch) -> Tensor:
        """Return the target network's values of the next observations, (N, 1)."""

    def _update(self, batch: Batch) -> Tensor:
        rows = self._algorithm.read(batch)
        with torch.no_grad():
            target = rows.reward + rows.discount * self._following(rows, batch)
        loss = rows.weighted_mean((self._now(rows) - target).square())
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()
        self._target.update(self._polyak)
        return loss.detach()


class FittedQ(FittedValue):
    """A Q-network for an algorithm's current deterministic policy.

    Le et al., "Batch Policy Learning under Constraints" (arXiv 1903.08738), algorithm 3, by gradient descent with a
    target network as in Paine et al., "Hyperparameter Selection for Offline Reinforcement Learning" (arXiv 2007.09055),
    section 4.2.

    Args:
        algorithm: has the policy; it is not changed.
        actor_factory: makes the Q-network, with the architecture of the run's networks.
        envs: an object with the spaces.
        seed: of initial weights and of the policy's random numbers.
        lr: learning rate.
        polyak: share of the target network that is kept at each update.

    Raises:
        ValueError: the actor is recurrent, or the policy uses rewards.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        actor_factory: Factory[Actor],
        envs: object,
        seed: np.random.SeedSequence,
        lr: float,
        polyak: float,
    ) -> None:
        if algorithm.actor.memory is not None:
            raise ValueError(
                "fitted Q evaluation learns from single transitions, and the actor has a memory; leave it out, or take "
                "InitialValue and TDError, which support memories"
            )
        if algorithm.keeps_acting_state:
            raise ValueError(
                f"fitted Q evaluation learns from single transitions, and actions of {type(algorithm).__name__} depend "
                f"on earlier ones; leave it out, or take ActionDifference"
            )
        self._exploration = Exploration(algorithm.codec, 1, algorithm.device, seed, deterministic=True)
        super().__init__(algorithm, actor_factory, envs, seed, lr, polyak)

    def at(self, obs: Tensor) -> Tensor:
        """Return the values of the policy in observations (N, *obs), or a dict of such, (N, 1)."""
        return self.of(obs, self._actions(obs))

    def of(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the values of actions (N, *action), in the networks' scaling, before the policy goes on, (N, 1)."""
        with self._actor.acting(noisy=False):
            value: Tensor = self._network(self._actor.view(obs), action).mean
        return value

    def _made(self, actor: Actor) -> Any:
        return actor.make("q", ActionValue(huber_threshold=None), codec=self._algorithm.codec)

    def _now(self, rows: Rows) -> Tensor:
        value: Tensor = self._network(rows.now, rows.action).mean
        return value

    def _following(self, rows: Rows, batch: Batch) -> Tensor:
        value: Tensor = self._target.network(rows.next, self._actions(batch[OBS2])).mean
        return value

    def _actions(self, obs: Tensor) -> Tensor:
        """Return the policy's deterministic actions, in the networks' scaling."""
        return best_actions(self._algorithm, obs, self._exploration)


class FittedBehaviour(FittedValue):
    """A state-value network for the policy that made the data: TD(0) on its transitions.

    Sutton and Barto, "Reinforcement Learning" (2nd edition, 2018), section 9.3.
    """

    def at(self, obs: Tensor) -> Tensor:
        """Return the values of observations (N, *obs), or of a dict of such, (N, 1)."""
        with self._actor.acting(noisy=False):
            value: Tensor = self._network(self._actor.view(obs))
        return value

    def _made(self, actor: Actor) -> Any:
        return actor.make("value", StateValue())

    def _now(self, rows: Rows) -> Tensor:
        value: Tensor = self._network(rows.now)
        return value

    def _following(self, rows: Rows, batch: Batch) -> Tensor:
        value: Tensor = self._target.network(rows.next)
        return value


def best_actions(algorithm: Algorithm, obs: Any, exploration: Exploration) -> Tensor:
    """Return the deterministic actions of a non-recurrent algorithm in the networks' scaling, (N, *action).

    Args:
        algorithm: chooses the actions.
        obs: (N, *obs), or a dict of such.
        exploration: deterministic, of any number of environments.
    """
    rows = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
    with algorithm.actor.acting(noisy=False):
        view = algorithm.actor.view(obs)
        action, _ = algorithm.act(view, exploration.of_rows(rows, algorithm.steps, algorithm.target_steps))
    return action.clone()
