"""SAC: off-policy maximum-entropy actor-critic for continuous actions."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionValue, DistributionHead, SquashedGaussianPolicy, check_bounded
from pytorchrl.agent.actors.layers.mlp import Layers
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import ScalarValue, Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.parts.critics import Expected, smallest
from pytorchrl.agent.algorithms.actor_critic.parts.regression import Regression
from pytorchrl.agent.algorithms.actor_critic.parts.soft_actor_critic import SoftActorCritic
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Explorer, explorer_for


class SAC(SoftActorCritic):
    """Haarnoja et al., "Soft Actor-Critic Algorithms and Applications" (arXiv 1812.05905), equations 5, 7 and 18.

    Entropies are those of actions scaled to (-1, 1), not of the bounds of the Box.

    Args:
        distribution: of the policy's actions, within their bounds and reparameterised.
        target_entropy: entropy that the temperature is tuned to, in nats; None takes minus the action's dimension.
    """

    actions = "bounded"

    unchangeable = frozenset({"distribution"})

    distribution: DistributionHead = SquashedGaussianPolicy()
    target_entropy: float | None = None

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that the distribution is over bounded actions."""
        super().check_hyper_parameters(hyper_parameters)
        check_bounded(hyper_parameters["distribution"], cls.__name__)

    def build(self) -> None:
        """Make the networks, and the regression of the critics."""
        super().build()
        with_graph = self.overrides(
            SAC.losses, SAC.evaluate_with_target, SAC.critic_outputs, SAC.critic_losses, SAC.values_of_taken
        )
        self.regression = Regression(self.critics, self.train_critics, with_graph=with_graph)

    def policy_head(self) -> Head:
        """Return the head of ``distribution``."""
        return self.distribution

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return explorer_for(self.distribution)

    def critic_head(self) -> Head:
        """Return the critics' head: the expected return."""
        return ActionValue()

    def critic_layers(self) -> Layers:
        """Return additional layers of the critics, such as dropout."""
        return {}

    def make_critics(self, name: str = "critics") -> Ensemble:
        """Make Q-networks of observation and action."""
        head, layers = self.critic_head(), self.critic_layers()
        return self.actor.make_ensemble(name, head, self.num_critics, codec=self.codec, layers=layers)

    def critic_outputs(self, rows: Rows) -> Sequence[Value]:
        """Return the values of the actions taken; empty if the regression computes them itself."""
        if self.regression.is_plain:
            return ()
        values: Sequence[Value] = self.critics(rows.now, rows.action)
        return values

    def critic_losses(self, outputs: Sequence[Value], target: Value, rows: Rows) -> Losses:
        """Return the critics' loss."""
        if outputs:
            return super().critic_losses(outputs, target, rows)
        assert isinstance(target, ScalarValue)
        fit = self.regression(target, rows)
        return Losses({self.train_critics: fit.loss}, {"critic_loss": fit.loss}, fit.errors, gradients=fit.gradients)

    def values_of_taken(self, outputs: Sequence[Value], rows: Rows) -> Sequence[Value]:
        """Return the values unchanged."""
        return outputs

    def expect(self, rows: Rows) -> Expected:
        """Return the value and entropy estimate of a reparameterised action (equation 9)."""
        action, log_prob = self.pi(rows.now).sample_with_log_prob(self.generator)
        # Frozen: the gradient passes through the critics without computing theirs, which halves their backward pass.
        with self.critics.frozen():
            return Expected(self.value_for_policy(self.critics(rows.now, action)), -log_prob)

    def expect_next(self, rows: Rows) -> Expected:
        """Return the value and entropy estimate of one next action per row, as in equation 3."""
        action, log_prob = self.pi(rows.next).sample_with_log_prob(self.generator)
        return Expected(self.value_for_target(self.target_values(rows.next, action)), -log_prob)

    def target_values(self, view: View, action: Tensor) -> Sequence[Value]:
        """Return the target critics' values of actions (N, *action)."""
        values: Sequence[Value] = self.target_critics(view, action)
        return values

    def value_for_policy(self, values: Sequence[Value]) -> Value:
        """Return the value that the policy maximises: the minimum of the critics."""
        return smallest(values)

    def value_for_target(self, values: Sequence[Value]) -> Value:
        """Return the value that targets bootstrap on: the minimum of the critics."""
        return smallest(values)

    def entropy_aimed_at(self, rows: Rows) -> float:
        """Return the target entropy, in nats."""
        return -float(self.codec.size) if self.target_entropy is None else self.target_entropy
