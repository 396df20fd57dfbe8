"""QtOpt: Q-learning for continuous actions, whose greedy actions are found by the cross-entropy method."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValueFunction, ScalarValue
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import EpsilonGreedy, Exploration, Explorer
from pytorchrl.agent.planners.sampling import CrossEntropyMethod
from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
    UnitIntervalOrSchedule,
)
from storages.component.schedule import LinearSchedule


class QtOpt(OffPolicyAlgorithm):
    """Kalashnikov et al., "QT-Opt: Scalable Deep RL for Vision-Based Robotic Manipulation" (arXiv 1806.10293).

    Actions are scaled from the bounds of the action space to [-1, 1].

    Args:
        num_iterations: distributions of the cross-entropy method that actions are sampled from.
        num_samples: actions sampled of each distribution, for each observation (N).
        num_elites: samples of the largest value, to which the next distribution is fitted (M).
        lag: batches between copies of the target network to the lagged one; targets take the smaller value of both.
        epsilon: probability of a random action.
        huber_threshold: error beyond which the Huber loss is linear; None takes the squared loss.
        lr: learning rate.
        polyak: weight that the target network keeps in each of its updates; 0 copies the online network.
        target_update_interval: batches between updates of the target network.

    Raises:
        ValueError: there are more elites than samples.
    """

    actions = "bounded"
    unchangeable = frozenset({"num_samples", "num_elites", "huber_threshold"})

    num_iterations: Count = 2
    num_samples: Count = 64
    num_elites: Count = 6
    lag: Count = 120
    epsilon: UnitIntervalOrSchedule = LinearSchedule(1.0, 0.05, fraction=0.2)
    huber_threshold: Positive | None = 1.0
    lr: NonNegativeOrSchedule = 1e-3
    max_grad_norm: Positive | None = 10.0
    polyak: UnitInterval = 0.995
    target_update_interval: Count = 1
    mini_batch_size: Count = 128
    test_every: CountOrZero = 5_000

    _polyak_of_lagged: ClassVar[float] = 0.0

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that there are as many samples as elites."""
        super().check_hyper_parameters(hyper_parameters)
        samples, elites = hyper_parameters["num_samples"], hyper_parameters["num_elites"]
        if elites > samples:
            raise ValueError(f"{cls.__name__}: num_elites must be at most num_samples={samples}, got {elites}")

    def build(self) -> None:
        """Make the Q-network of observations and actions, its target, and a lagged copy of the target."""
        self.q = self.actor.make("q", ActionValue(self.huber_threshold), codec=self.codec, acts=True)
        self.trained = self.train("q", self.q)
        self.q_target: Network = self.target(self.q, every="target_update_interval")
        self.q_lagged: Network = self.target(self.q_target, polyak="_polyak_of_lagged", every="lag")

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of ``Q(s, a)`` against ``r + gamma * V(s')`` (equation 1)."""
        with torch.no_grad():
            target = self.next_value(rows).backup(rows.reward, rows.discount)
        value: ScalarValue = self.q(rows.now, rows.action)
        loss, errors = value.weighted_loss(rows.weight, target)
        metrics = {"loss": loss.detach(), "q_value": rows.mean(value.mean.detach())}
        return Losses({self.trained: loss}, metrics, rows.per_row(errors))

    def next_value(self, rows: Rows) -> ScalarValue:
        """Return V(s'), the smaller value by target and lagged network of the target's greedy actions (section 4.2)."""
        action = self.searched(self.q_target, rows.next, len(rows), self.generator).greedy()
        return ScalarValue(self.q_target(rows.next, action).mean.minimum(self.q_lagged(rows.next, action).mean))

    def searched(self, network: Network, view: View, rows: int, generator: torch.Generator) -> "SearchedValues":
        """Return a network's action values for a view of a number of rows."""
        search = CrossEntropyMethod(self.num_iterations, self.num_samples, self.num_elites)
        like = torch.empty((rows, self.codec.size), device=self.device)
        return SearchedValues(network, view, search, like, generator)

    def policy(self, view: View, exploration: Exploration) -> "SearchedValues":
        """Return the action values, whose greedy actions are searched for."""
        return self.searched(self.q, view, exploration.num_envs, exploration.generator)

    def default_explorer(self) -> Explorer:
        """Return epsilon-greedy exploration."""
        return EpsilonGreedy(self.epsilon)


class SearchedValues(ActionValueFunction):
    """Values of continuous actions within [-1, 1], by a network that takes actions; greedy ones are searched for.

    Args:
        network: from observations and actions to a :class:`ScalarValue`.
        view: of B rows.
        search: for greedy actions.
        like: (B, A), whose shape and device those of the actions are.
        generator: of the search.
    """

    def __init__(
        self, network: Network, view: View, search: CrossEntropyMethod, like: Tensor, generator: torch.Generator
    ) -> None:
        self._network, self._view, self._search = network, view, search
        self._like, self._generator = like, generator

    def greedy(self) -> Tensor:
        """Actions of the largest value found, (B, A); each call searches again."""
        number = self._search.num_samples
        view = Repeated(self._view, number)

        def values(action: Tensor) -> Tensor:
            value: Tensor = self._network(view, action.flatten(0, 1)).mean
            return value.view(-1, number)

        # Actions lie within [-1, 1]: a standard deviation of 1 covers them.
        mean, std = torch.zeros_like(self._like), torch.ones_like(self._like)
        return self._search(values, mean, std, self._generator).best

    def of(self, action: Tensor) -> ScalarValue:
        """Values of actions (B, A)."""
        value: ScalarValue = self._network(self._view, action)
        return value
