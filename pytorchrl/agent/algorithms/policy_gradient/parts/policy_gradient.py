"""What algorithms that learn from rollouts of the current policy have in common."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import ClassVar, Literal

from torch import Tensor

from pytorchrl.agent.actors.heads import DistributionHead, Policy, StateValue, in_units_of_environments
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.update_plan import EveryRollout, UpdatePlan
from pytorchrl.agent.explorers import Exploration, Explorer, drawing_from
from storages.component.hyper_parameters import Count
from storages.on_policy import VanillaOnPolicyBuffer
from storages.storage import Storage
from storages.transition import ADV, LOGP, VAL, Batch


class PolicyGradient(Algorithm):
    """A stochastic policy and a state value function, learnt from rollouts.

    Args:
        distribution: of the policy's actions.
        num_epochs: times that an update phase goes through a rollout.
        num_mini_batch: batches that a rollout is divided into.
        normalize_advantages: give the advantages of each batch a mean of 0 and a standard deviation of 1; "rollout"
            those of a whole rollout.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout")}
    unchangeable = Algorithm.unchangeable | {"distribution"}

    distribution: DistributionHead = Policy()
    num_epochs: Count = 1
    num_mini_batch: Count = 1
    normalize_advantages: bool | Literal["rollout"] = True

    def make_networks(self) -> tuple[Network, ...]:
        """The policy, and the value function, both of which remember what they saw while acting."""
        policy = self.make_policy()
        self.value = self.actor.make("value", StateValue(), acts=True)
        return policy, self.value

    def make_policy(self) -> Network:
        """The policy alone."""
        self.pi = self.actor.make("policy", in_units_of_environments(self.distribution), acts=True)
        return self.pi

    def make_explorer(self) -> Explorer:
        """Draw actions from the policy."""
        return drawing_from(self.distribution)

    def update_plan(self) -> UpdatePlan:
        """When the rollout is full."""
        return EveryRollout()

    def batches(self, source: Storage) -> Iterator[Batch]:
        """The whole rollout, as often as there are epochs."""
        if self.normalize_advantages == "rollout":
            assert isinstance(source, VanillaOnPolicyBuffer)
            source.normalize_advantages()
        return source.generate_batches(self.num_mini_batch, None, self.num_epochs)

    def policy(self, view: View, exploration: Exploration) -> Distribution:
        """The distribution of actions."""
        policy: Distribution = self.pi(view)
        return policy

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Actions, their log probabilities, which updates compare with, and values that are not asked for later."""
        if exploration.deterministic:
            return super().act(view, exploration)
        action, log_prob = self._explorer.act_with_log_prob(self.policy(view, exploration), exploration)
        return action, {**self.values_while_acting(view), LOGP: log_prob}

    def value_functions(self) -> Mapping[str, Network]:
        """The networks of values, by the fields that a storage keeps of them."""
        return {VAL: self.value}

    @property
    def values_when_full(self) -> frozenset[str]:
        """Fields of values that a storage asks the actor for when a rollout is full: all, or none.

        Many rows at once take less time than a few at each step. What a value function shares with the policy, and its
        memory, have to be computed while acting in any case.
        """
        if self.actor.shared_body or self.actor.memory is not None:
            return frozenset()
        return frozenset(self.value_functions())

    def values_while_acting(self, view: View) -> dict[str, Tensor]:
        """Values of observations that a storage does not ask the actor for."""
        return {field: network(view) for field, network in self._valuing_while_acting.items()}

    @cached_property
    def _valuing_while_acting(self) -> Mapping[str, Network]:
        asked_later = self.values_when_full
        return {field: network for field, network in self.value_functions().items() if field not in asked_later}

    def advantages(self, rows: Rows) -> Tensor:
        """(N, 1): ADV, normalised where the hyper-parameter says so and the storage has not done it."""
        return rows.standardised(rows[ADV]) if self.normalize_advantages is True else rows[ADV]
