"""What algorithms have in common that train policy and value function on one sum of losses."""

from torch import Tensor

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.algorithms.policy_gradient.parts.policy_gradient import PolicyGradient
from pytorchrl.agent.algorithms.policy_gradient.parts.policy_likelihood import Likelihood, PolicyLikelihood
from pytorchrl.agent.algorithms.policy_gradient.parts.value_regression import ValueFit, ValueRegression
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule, Positive
from storages.transition import RET


class PolicyAndValue(PolicyGradient):
    """Policy and value function, which may share a body, trained by one optimiser.

    Args:
        lr: learning rate.
        value_loss_coef: weight of the value function's loss.
        entropy_coef: weight of the policy's entropy, which is raised.
        max_grad_norm: gradients are scaled down to this norm; None leaves them.
    """

    lr: NonNegativeOrSchedule = 3e-4
    value_loss_coef: NonNegative = 0.5
    entropy_coef: NonNegative = 0.0
    max_grad_norm: Positive | None = 0.5

    def build(self) -> None:
        """Policy and value function, trained together."""
        self.trained = self.train("policy_and_value", *self.make_networks(), max_grad_norm="max_grad_norm")
        self.value_regression = self.regression_of(self.value)
        self.likelihood = PolicyLikelihood(self.pi, self.trained, with_graph=self.actor.shared_body)

    def regression_of(self, value: Network) -> ValueRegression:
        """What fits one of the networks that are trained together."""
        return ValueRegression(value, self.trained, with_graph=self.actor.shared_body)

    def fit_value(self, rows: Rows) -> ValueFit:
        """Half the mean squared distance of values to returns."""
        return self.value_regression(rows[RET], rows, self.value_loss_coef)

    def likelihood_ratio(self, rows: Rows, merit: Tensor) -> Losses:
        """The gradient of log probabilities weighted by merits (N, 1), the value function's error, and the entropy."""
        taken = self.likelihood(rows)
        return self.summed(rows, taken, taken.log_prob * merit, merit)

    def summed(self, rows: Rows, taken: Likelihood, objective: Tensor, slope: Tensor, **metrics: Tensor) -> Losses:
        """The weighted sum of means over a batch, each logged; Schulman et al. (arXiv 1707.06347), equation 9.

        Args:
            rows: of the batch.
            taken: what the policy makes of the actions taken.
            objective: (N, 1), which the policy is to raise, without a gradient.
            slope: (N, 1), its derivative by the log probability of each action.
            **metrics: what else is logged.
        """
        fit, policy_loss, entropy = self.fit_value(rows), -rows.mean(objective), rows.mean(taken.entropy)
        by_entropy = -self.entropy_coef * rows.share if self.entropy_coef else None
        step = taken.step(-rows.share * slope, by_entropy)
        loss = policy_loss + self.value_loss_coef * fit.loss - self.entropy_coef * entropy
        if step.surrogate is not None:
            loss = loss + (step.surrogate - step.surrogate.detach())
        means = {"policy_loss": policy_loss, "value_loss": fit.loss.detach(), "entropy": entropy}
        gradients = {**fit.gradients, **step.gradients}
        return Losses({self.trained: loss}, means | metrics, gradients=gradients)
