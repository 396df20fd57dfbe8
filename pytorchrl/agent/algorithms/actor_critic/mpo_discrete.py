"""MPO for discrete actions, with exact expectations over them."""

from collections.abc import Mapping, Sequence

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import Policy, Values
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import ActionValues, Categorical, Distribution, Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.parts.critics import elementwise_minimum
from pytorchrl.agent.algorithms.actor_critic.parts.maximum_a_posteriori import Candidates, MaximumAPosteriori
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Positive


class MPODiscrete(MaximumAPosteriori):
    """Abdolmaleki et al., "Maximum a Posteriori Policy Optimisation" (arXiv 1806.06920), over all actions of a state.

    Args:
        epsilon_policy: bound of the KL divergence from the target policy, in nats.
    """

    actions = "discrete"

    epsilon_policy: Positive = 0.1

    def policy_head(self) -> Head:
        """Return a categorical head."""
        return Policy()

    def make_critics(self) -> Ensemble:
        """Make Q-networks with a value for each action."""
        return self.actor.make_ensemble("critics", Values(huber_threshold=None), self.num_critics)

    def trust_regions(self) -> Mapping[str, float]:
        """Return the bound for the whole policy."""
        return {"policy": self.epsilon_policy}

    def parts(self, policy: Categorical, before: Categorical) -> Mapping[str, Distribution]:
        """Return the policy as its only part."""
        return {"policy": policy}

    def candidates(self, view: View) -> Candidates:
        """Return all actions, each with its probability."""
        policy: Categorical = self.target_pi(view)
        values = elementwise_minimum([critic.values for critic in self.target_critics(view)])
        return Candidates(policy, policy.log_probs, values, lambda learnt: learnt.log_probs)  # type: ignore[attr-defined]

    def values_taken(self, rows: Rows) -> Sequence[Value]:
        """Return the critics' values of the actions taken."""
        critics: list[ActionValues] = self.critics(rows.now)
        return [critic.of(rows.action) for critic in critics]
