"""Base class of on-policy policy gradients: policy and value function, acting, and batches of rollouts."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import ClassVar, Literal

from torch import Tensor

from pytorchrl.agent.actors.heads import DistributionHead, Policy, StateValue, in_units_of_environments
from pytorchrl.agent.actors.heads.continuous_policies import GaussianLayer
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.compiling import compute
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.results import Losses, Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.update_plan import EveryRollout, UpdatePlan
from pytorchrl.agent.explorers import Exploration, Explorer, explorer_for
from storages.component.hyper_parameters import Count
from storages.on_policy import VanillaOnPolicyBuffer
from storages.storage import Storage
from storages.transition import ADV, IVAL, LOGP, VAL, Batch


class PolicyGradient(Algorithm):
    """A stochastic policy and a state-value function, trained on rollouts.

    A subclass implements `build`, which calls :meth:`make_networks` and registers what is trained, and `losses` or
    `update`, which evaluate the policy by :meth:`policy`.

    Args:
        distribution: of the policy's actions.
        num_epochs: epochs over a rollout per update phase.
        num_mini_batch: minibatches per epoch.
        normalize_advantages: give advantages zero mean and unit standard deviation in each batch; "rollout" in a whole
            rollout.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout")}
    unchangeable = frozenset({"distribution"})

    distribution: DistributionHead = Policy()
    num_epochs: Count = 1
    num_mini_batch: Count = 1
    normalize_advantages: bool | Literal["rollout"] = True

    def make_networks(self) -> tuple[Network, ...]:
        """Make policy and value function; both keep a recurrent state while acting, if they have a memory."""
        self.pi = self.actor.make("policy", in_units_of_environments(self.distribution), acts=True)
        self.value = self.actor.make("value", StateValue(), acts=True)
        return self.pi, self.value

    # Learning

    def advantages(self, rows: Rows) -> Tensor:
        """Return ADV (N, 1), normalised here if ``normalize_advantages`` is True."""
        return rows.standardised(rows[ADV]) if self.normalize_advantages is True else rows[ADV]

    def update_plan(self) -> UpdatePlan:
        """Return an update phase per full rollout."""
        return EveryRollout()

    def batches(self, source: Storage) -> Iterator[Batch]:
        """Yield the minibatches of all epochs."""
        return self.minibatches(source, self.num_mini_batch)

    def _computed_losses(self, rows: Rows) -> Losses:
        """Return :meth:`losses`, compiled if ``compile`` is true."""
        return compute(self, self.losses, rows)

    def minibatches(self, source: Storage, number: int) -> Iterator[Batch]:
        """Yield a number of minibatches per epoch."""
        if self.normalize_advantages == "rollout":
            assert isinstance(source, VanillaOnPolicyBuffer)
            source.normalize_advantages()
        return source.generate_batches(number, None, self.num_epochs)

    def measure(self, sources: Mapping[str, Storage]) -> Metrics:
        """Return how well values explain returns, and the policy's standard deviation where it is a parameter."""
        metrics = super().measure(sources)
        main = sources["main"]
        if isinstance(main, VanillaOnPolicyBuffer):
            metrics |= {f"learning/{name}": number for name, number in main.measure_values().items()}
        gaussian = next((module for module in self.pi.modules() if isinstance(module, GaussianLayer)), None)
        if gaussian is not None:
            metrics["learning/policy_deviation"] = gaussian.deviation().mean()
        return metrics

    # The policy, and acting

    def policy(self, view: View, exploration: Exploration | None) -> Distribution:
        """Return the distribution of actions, of which actions are drawn and which the losses evaluate.

        An override, such as a tempered policy, is thereby trained as it acts, and storages compute importance ratios by
        it. It may depend on the view and the weights alone, as the losses have no exploration.

        Args:
            view: of N rows.
            exploration: of the environments, where actions are chosen; None in losses and for storages.
        """
        policy: Distribution = self.pi(view)
        return policy

    def request_fields(self, source: str, storage: Storage) -> None:
        """Let a storage of a source ask :meth:`policy` for log-probabilities; called once."""
        super().request_fields(source, storage)
        self.actor.evaluated_policy = self._policy_evaluated

    def _policy_evaluated(self, view: View) -> Distribution:
        return self.policy(view, None)

    def make_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return explorer_for(self.distribution)

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions, their log-probabilities, and the values that are computed while acting."""
        if exploration.deterministic:
            return super().act(view, exploration)
        action, log_prob = self._explorer.act_with_log_prob(self.policy(view, exploration), exploration)
        fields = {}
        for field, network in self._valuing_while_acting:
            fields[field] = network(view)
        fields[LOGP] = log_prob
        return action, fields

    def value_functions(self) -> Mapping[str, Network]:
        """Return the value networks by the storage fields of their values."""
        return {VAL: self.value}

    @property
    def values_when_full(self) -> frozenset[str]:
        """Fields of values that the storage computes with the actor once a rollout is full.

        One large batch is faster than a small one at each step. A body shared with the policy, or a recurrent state,
        is computed while acting anyway.
        """
        if self.actor.shared_body or self.actor.memory is not None:
            return frozenset()
        return frozenset({VAL, IVAL} & self.value_functions().keys())

    @cached_property
    def _valuing_while_acting(self) -> list[tuple[str, Network]]:
        asked_later = self.values_when_full
        return [(field, network) for field, network in self.value_functions().items() if field not in asked_later]
