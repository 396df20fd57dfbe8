"""QtOpt: Q-learning for continuous actions, whose greedy actions are found by the cross-entropy method."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionValue
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.parts.critics import smallest
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.parts.epsilon_greedy_q_learning import EpsilonGreedyQLearning
from pytorchrl.agent.algorithms.value_based.parts.replayed_q_learning import ReplayedQLearning
from pytorchrl.agent.algorithms.value_based.parts.searched_values import SearchedValues
from pytorchrl.agent.explorers import Exploration
from pytorchrl.agent.planners.cross_entropy import CrossEntropyMethod
from storages.component.hyper_parameters import Count, CountOrZero


class QtOpt(EpsilonGreedyQLearning, ReplayedQLearning):
    """Kalashnikov et al., "QT-Opt: Scalable Deep RL for Vision-Based Robotic Manipulation" (arXiv 1806.10293).

    Actions are scaled from the bounds of the action space to [-1, 1].

    Args:
        num_iterations: distributions of the cross-entropy method that actions are sampled from.
        num_samples: actions sampled of each distribution, for each observation (N).
        num_elites: samples of the largest value, to which the next distribution is fitted (M).
        lag: batches between copies of the target network to the lagged one; targets take the smaller value of both.

    Raises:
        ValueError: there are more elites than samples.
    """

    actions = "bounded"
    unchangeable = frozenset({"num_samples", "num_elites"})

    num_iterations: Count = 2
    num_samples: Count = 64
    num_elites: Count = 6
    lag: Count = 120
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
        """Make the Q-network, its target, and a lagged copy of the target."""
        super().build()
        self.q_lagged = self.target(self.q_target, polyak="_polyak_of_lagged", every="lag")

    def head(self) -> Head:
        """Return the Q-network's head: the expected return."""
        return ActionValue(self.huber_threshold)

    def make_network(self) -> Network:
        """Make the Q-network, of observations and actions."""
        return self.actor.make("q", self.head(), codec=self.codec, acts=True)

    def policy(self, view: View, exploration: Exploration) -> SearchedValues:
        """Return the action values, whose greedy actions are searched for."""
        return self.searched(self.q, view, exploration.num_envs, exploration.generator)

    def searched(self, network: Network, view: View, rows: int, generator: torch.Generator) -> SearchedValues:
        """Return a network's action values for a view of a number of rows."""
        search = CrossEntropyMethod(self.num_iterations, self.num_samples, self.num_elites)
        like = torch.empty((rows, self.codec.size), device=self.device)
        return SearchedValues(network, view, search, like, generator)

    def losses_to(self, rows: Rows, target: Value) -> Losses:
        """Return the loss and errors of the actions' values for given targets."""
        return self.losses_of(self.searched(self.q, rows.now, len(rows), self.generator), rows, target)

    def next_value(self, rows: Rows) -> Value:
        """Return the smaller value, by target and lagged network, of the target network's greedy actions."""
        action = self.searched(self.q_target, rows.next, len(rows), self.generator).greedy()
        return smallest([self.q_target(rows.next, action), self.q_lagged(rows.next, action)])
