"""Values learnt offline from data: the Q-function of a policy, and the value of the actions that the data have."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads import ActionValue, StateValue
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Target
from pytorchrl.agent.explorers import Exploration
from pytorchrl.agent.global_generators import seeded
from pytorchrl.agent.optimizers import AdamW, FlatParameters
from storages.component.factory import Factory
from storages.episode import Episode
from storages.transition import OBS2, REW, Batch

CHOICE2 = "PolicyNextAction"
"""(E, *action), in the networks' scaling: the policy's action in OBS2, computed once for all fits; optional."""
_PASSES = 50
"""Passes over the data whose updates the weights average."""
_FEWEST_AVERAGED = 100
"""Updates that the weights average, of the smallest data."""


@dataclass(frozen=True)
class ValueScale:
    """Where the values of data lie: networks learn ``(value - centre) / spread``.

    A fit then begins at a sensible value, instead of building it up from 0 over thousands of updates.

    Args:
        centre: a value.
        spread: a positive difference of values.
    """

    centre: float = 0.0
    spread: float = 1.0


def scale_of(episodes: Iterable[Episode], gamma: float) -> ValueScale:
    """Return the scale of the values of the policy that made the data.

    The centre is the value with which the mean temporal difference of all steps is 0, if that of each observation is
    the same: least-squares temporal differences of one constant feature (Bradtke and Barto, "Linear Least-Squares
    Algorithms for Temporal Difference Learning", 1996). The spread is the standard deviation of the discounted returns
    from all steps, which go on with the centre after episodes that did not terminate.
    """
    all_rewards, terminated = [], []
    for episode in episodes:
        all_rewards.append(np.asarray(episode.fields[REW], np.float64).reshape(-1))
        terminated.append(episode.terminated)
    steps = sum(map(len, all_rewards))
    remaining = 1 - gamma * (1 - sum(terminated) / steps)
    centre = sum(map(np.sum, all_rewards)) / steps / remaining if remaining > 0 else 0.0
    returns = []
    for rewards, has_terminated in zip(all_rewards, terminated, strict=True):
        following = 0.0 if has_terminated else centre
        for reward in rewards[::-1]:
            following = reward + gamma * following
            returns.append(following)
    spread = float(np.std(returns))
    return ValueScale(float(centre), spread if spread > 1e-6 * abs(centre) else 1.0)


def weight_decay_for(steps: int, mini_batch_size: int, lr: float) -> float:
    """Return the weight decay with which fits to small data neither overfit nor diverge.

    The weights of AdamW average the updates of the last ``1 / (lr * decay)`` steps; the number of passes over the data
    that these make is what should stay the same when the size of the data changes (Wang and Aitchison, "How to set
    AdamW's weight decay as you scale model and dataset size", arXiv 2405.13698, section 3).

    Args:
        steps: transitions of the data.
        mini_batch_size: transitions of an update.
        lr: learning rate.
    """
    return 1 / (lr * max(_PASSES * steps / mini_batch_size, _FEWEST_AVERAGED))


class FittedValue(ABC):
    """A value network that is learnt from transitions by temporal differences, with a target network.

    Args:
        algorithm: has the normalisation of observations; it is not changed.
        actor_factory: makes the network, with the architecture of the run's networks.
        envs: an object with the spaces.
        seed: of initial weights.
        lr: learning rate.
        polyak: share of the target network that is kept at each update.
        scale: of the values.
        weight_decay: of AdamW; it draws values to the centre of the scale.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        actor_factory: Factory[Actor],
        envs: object,
        seed: np.random.SeedSequence,
        lr: float,
        polyak: float,
        scale: ValueScale = ValueScale(),
        weight_decay: float = 0.0,
    ) -> None:
        self._algorithm, self._polyak, self._scale = algorithm, polyak, scale
        with seeded(seed, algorithm.device):
            actor = actor_factory(algorithm.device, envs)
            self._network = self._made(actor)
        if actor.normalization is not None and algorithm.actor.normalization is not None:
            actor.normalization.load_state_dict(algorithm.actor.normalization.state_dict())
        self._actor = actor
        weights = FlatParameters(self._network.parameters())
        self._target = Target(self._network, weights, "polyak", None)
        self._adam = AdamW(weight_decay=weight_decay).make(weights)
        self._adam.learning_rate = lr

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
        """Return the network's output that is learnt, (N, 1)."""

    @abstractmethod
    def _following(self, rows: Rows, batch: Batch) -> Tensor:
        """Return the target network's output of the next observations, (N, 1)."""

    def _valued(self, output: Tensor) -> Tensor:
        """Return values (N, 1) of the network's output."""
        return self._scale.centre + self._scale.spread * output

    def _update(self, batch: Batch) -> Tensor:
        rows = self._algorithm.read(batch)
        with torch.no_grad():
            target = rows.reward + rows.discount * self._valued(self._following(rows, batch))
        loss = rows.weighted_mean((self._valued(self._now(rows)) - target).square())
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()
        self._target.update(self._polyak)
        return loss.detach()


class FittedQ(FittedValue):
    """A Q-network for an algorithm's current deterministic policy, or for one that takes random actions now and then.

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
        scale: of the values.
        weight_decay: of AdamW; it draws values to the centre of the scale.
        random_share: probability of a uniformly random allowed action in place of the policy's, of a Discrete space.

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
        scale: ValueScale = ValueScale(),
        weight_decay: float = 0.0,
        random_share: float = 0.0,
    ) -> None:
        check_needs_no_history(algorithm)
        self._random_share = random_share
        self._exploration = Exploration(algorithm.codec, 1, algorithm.device, seed, deterministic=True)
        super().__init__(algorithm, actor_factory, envs, seed, lr, polyak, scale, weight_decay)

    def at(self, obs: Tensor) -> Tensor:
        """Return the values of the policy in observations (N, *obs), or a dict of such, (N, 1)."""
        return self.with_actions(obs, self._actions(obs))

    def with_actions(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return the values of a policy that takes these actions (N, *action), in the networks' scaling, (N, 1)."""
        with self._actor.acting(noisy=False):
            return self._valued(self._expected(self._network, self._actor.view(obs), actions))

    def of(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the values of actions (N, *action), in the networks' scaling, before the policy goes on, (N, 1)."""
        with self._actor.acting(noisy=False):
            value: Tensor = self._network(self._actor.view(obs), action).mean
        return self._valued(value)

    def _made(self, actor: Actor) -> Any:
        return actor.make("q", ActionValue(huber_threshold=None), codec=self._algorithm.codec)

    def _now(self, rows: Rows) -> Tensor:
        value: Tensor = self._network(rows.now, rows.action).mean
        return value

    def _following(self, rows: Rows, batch: Batch) -> Tensor:
        actions = batch[CHOICE2] if CHOICE2 in batch else self._actions(batch[OBS2])
        return self._expected(self._target.network, rows.next, actions)

    def _expected(self, network: Any, view: Any, actions: Tensor) -> Tensor:
        """Return the mean of a network's values over the actions that the policy takes, (N, 1)."""
        value: Tensor = network(view, actions).mean
        if not self._random_share:
            return value
        chances = uniform_probabilities(self._actor, view)
        each = [network(view, torch.full_like(actions, action)).mean for action in range(chances.shape[1])]
        return torch.lerp(value, (torch.cat(each, 1) * chances).sum(1, keepdim=True), self._random_share)

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
        return self._valued(value)

    def _made(self, actor: Actor) -> Any:
        return actor.make("value", StateValue())

    def _now(self, rows: Rows) -> Tensor:
        value: Tensor = self._network(rows.now)
        return value

    def _following(self, rows: Rows, batch: Batch) -> Tensor:
        value: Tensor = self._target.network(rows.next)
        return value


def check_needs_no_history(algorithm: Algorithm) -> None:
    """Check that the actions of an algorithm follow from the observation alone.

    Raises:
        ValueError: the actor is recurrent, or the policy uses rewards.
    """
    if algorithm.actor.memory is not None:
        raise ValueError(
            "fitted Q evaluation learns from single transitions, and the actor has a memory: evaluate the policy where "
            "it acts, or by the callbacks InitialValue and TDError in training, which support memories"
        )
    if algorithm.keeps_acting_state:
        raise ValueError(
            f"fitted Q evaluation learns from single transitions, and actions of {type(algorithm).__name__} depend "
            f"on earlier ones; leave it out, or take ActionDifference"
        )


def needs_history(algorithm: Algorithm) -> bool:
    """Whether the actions of an algorithm depend on more than the observation."""
    return algorithm.actor.memory is not None or algorithm.keeps_acting_state


def uniform_probabilities(actor: Actor, view: Any) -> Tensor:
    """Return the probabilities of uniformly random allowed actions of a Discrete space, (N, actions) or (1, actions).

    Args:
        actor: has the action space, and perhaps a mask.
        view: of N observations.
    """
    assert isinstance(actor.action_space, spaces.Discrete)
    if actor.mask is None:
        number = int(actor.action_space.n)
        return torch.full((1, number), 1 / number, device=actor.device)
    allowed = actor.mask.of(view).flags.float()
    return allowed / allowed.sum(1, keepdim=True)


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
