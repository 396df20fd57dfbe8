"""Base class of algorithms that train policy and value function on a joint loss."""

from functools import cached_property

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
    """Policy and value function trained by one optimiser; they may share a body.

    Args:
        lr: learning rate.
        value_loss_coef: weight of the value function's loss.
        entropy_coef: weight of the entropy bonus.
        max_grad_norm: norm that gradients are clipped to; None does not clip.
    """

    lr: NonNegativeOrSchedule = 3e-4
    value_loss_coef: NonNegative = 0.5
    entropy_coef: NonNegative = 0.0
    max_grad_norm: Positive | None = 0.5

    def build(self) -> None:
        """Make policy and value function, trained together."""
        self.trained = self.train("policy_and_value", *self.make_networks(), max_grad_norm="max_grad_norm")

    @cached_property
    def value_regression(self) -> ValueRegression:
        """The regression of the value function."""
        return self.regression_of(self.value)

    @cached_property
    def likelihood(self) -> PolicyLikelihood:
        """Evaluates the policy on actions taken."""
        return PolicyLikelihood(self.pi, self.trained, with_graph=self._with_graph)

    def regression_of(self, value: Network) -> ValueRegression:
        """Return the regression of a value function that is trained together with the policy."""
        return ValueRegression(value, self.trained, with_graph=self._with_graph)

    @cached_property
    def _with_graph(self) -> bool:
        """Whether autograd computes all gradients, as where a class of a user's overrides the loss.

        It may scale the loss, or return it without the gradients that were computed beside it.
        """
        of_loss = (self.losses, self.likelihood_ratio, self.summed, self.fit_value)
        ours = __name__.partition(".")[0]
        return self.actor.shared_body or any(method.__module__.partition(".")[0] != ours for method in of_loss)

    def taken(self, rows: Rows) -> Likelihood:
        """Return the log-probabilities of the actions taken, and the policy's entropies."""
        return self.likelihood(rows)

    def fit_value(self, rows: Rows) -> ValueFit:
        """Return half the mean squared error of values against returns."""
        return self.value_regression(rows[RET], rows, self.value_loss_coef)

    def likelihood_ratio(self, rows: Rows, weight: Tensor) -> Losses:
        """Return the losses with a policy gradient weighted by ``weight`` (N, 1), such as advantages."""
        taken = self.taken(rows)
        return self.summed(rows, taken, taken.log_prob * weight, weight)

    def summed(self, rows: Rows, taken: Likelihood, objective: Tensor, slope: Tensor, **metrics: Tensor) -> Losses:
        """Return the joint loss of policy, value function and entropy bonus.

        Schulman et al., "Proximal Policy Optimization Algorithms" (arXiv 1707.06347), equation 9.

        Args:
            rows: of the batch.
            taken: log-probabilities of the actions taken, and entropies.
            objective: (N, 1), to maximise, without a gradient.
            slope: (N, 1), the objective's derivative by the log-probability of each action.
            **metrics: further metrics to log.
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
