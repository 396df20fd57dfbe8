"""Log-probabilities and entropies of a policy, and gradients of losses of them, without autograd for MLPs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads.gaussian_policies import GaussianLayer
from pytorchrl.agent.actors.heads.policies import CategoricalLayer
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import Categorical, DiagonalGaussian, Distribution
from pytorchrl.agent.algorithms.plain_layers import plain_layers_of_distribution
from pytorchrl.agent.algorithms.plain_network import PlainNetwork
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from pytorchrl.agent.ops.dispatch import hooks_of


class PolicyStep(NamedTuple):
    """Gradient of a policy's loss, as a surrogate loss for autograd or as precomputed gradients."""

    surrogate: Tensor | None
    """(): a scalar with that gradient; None if ``gradients`` holds it."""
    gradients: Mapping[Tensor, Tensor]
    """As :attr:`Losses.gradients`."""


class Likelihood(ABC):
    """Log-probabilities of the actions taken in a batch, and entropies, without gradients.

    Args:
        log_prob: (N, 1), of the actions.
        entropy: (N, 1), of the policy.
    """

    def __init__(self, log_prob: Tensor, entropy: Tensor) -> None:
        self.log_prob, self.entropy = log_prob, entropy

    @abstractmethod
    def step(self, by_log_prob: Tensor, by_entropy: Tensor | None) -> PolicyStep:
        """Return the gradient of a loss with known derivatives.

        Args:
            by_log_prob: (N, 1), derivative by the log-probabilities.
            by_entropy: (N, 1), derivative by the entropies; None if the loss does not depend on them.

        Raises:
            RuntimeError: the policy has evaluated another batch since, or this gradient was computed already.
        """


class PolicyLikelihood:
    """Evaluates a policy on actions taken, for losses of log-probabilities and entropies.

    The caller supplies the loss's derivatives by these. For an MLP on the CPU with ReLU or tanh, whose outputs are
    logits or Gaussian means, the parameters' gradient is then computed without autograd; else by autograd.

    Args:
        policy: network of observations.
        group: that trains it, possibly with other networks.
        with_graph: always use autograd, as where a value function shares the policy's body.
    """

    def __init__(self, policy: Network, group: Trained, *, with_graph: bool) -> None:
        self._policy = policy
        layers = None if with_graph else plain_layers_of_distribution(policy)
        self._network = None if layers is None else PlainNetwork(policy, layers, group)
        self._log_std: Tensor | None = None
        """Learnt log standard deviation; None if there is none."""
        self._gradient_of_log_std: Tensor | None = None
        head = policy.head
        if self._network is not None and isinstance(head, GaussianLayer) and head.log_std.requires_grad:
            self._log_std = head.log_std
            self._gradient_of_log_std = group.gradient_memory()[head.log_std]
        self._hooks = hooks_of(policy)
        self._evaluation = 0
        """Number of the batch whose hidden units are in memory."""

    def __call__(self, rows: Rows) -> Likelihood:
        """Evaluate the actions taken in a batch."""
        if self._network is None or any(self._hooks):
            return LikelihoodByAutograd(self._policy(rows.now), rows.action)
        self._evaluation += 1
        with torch.no_grad():
            return _OfPlain(self, self._evaluation, self._network.forward(rows), rows.action)

    def distribution(self, numbers: Tensor) -> Categorical | DiagonalGaussian:
        """Return the distribution for the outputs (N, outputs) of the MLP."""
        head = self._policy.head
        assert isinstance(head, CategoricalLayer | GaussianLayer)
        return head.output(numbers)

    def gradients(self, evaluation: int, slopes: tuple[Tensor, ...]) -> Mapping[Tensor, Tensor]:
        """Return the gradients of a loss, given those by the parameters of distribution number ``evaluation``."""
        assert self._network is not None
        if evaluation != self._evaluation:
            raise RuntimeError(
                "PolicyLikelihood: the gradient of a batch can be computed once, before another batch is evaluated; "
                "evaluate the batch again"
            )
        self._evaluation += 1
        gradients = self._network.backward(slopes[0].flatten(1))
        if self._log_std is None:
            return gradients
        assert self._gradient_of_log_std is not None
        self._gradient_of_log_std.copy_(slopes[1].sum_to_size(self._log_std.shape))
        return {**gradients, self._log_std: self._gradient_of_log_std}


class _OfPlain(Likelihood):
    def __init__(self, policy: PolicyLikelihood, evaluation: int, numbers: Tensor, action: Tensor) -> None:
        self._policy, self._evaluation, self._action = policy, evaluation, action
        self._distribution = distribution = policy.distribution(numbers)
        super().__init__(*distribution.evaluate(action))

    @torch.no_grad()
    def step(self, by_log_prob: Tensor, by_entropy: Tensor | None) -> PolicyStep:
        slopes = self._distribution.slopes(self._action, by_log_prob, by_entropy)
        return PolicyStep(None, self._policy.gradients(self._evaluation, slopes))


class LikelihoodByAutograd(Likelihood):
    """Evaluation of actions under a distribution with gradients.

    Args:
        distribution: of the policy.
        action: (N, *action).
    """

    def __init__(self, distribution: Distribution, action: Tensor) -> None:
        self._log_prob, self._entropy = distribution.evaluate(action)
        super().__init__(self._log_prob.detach(), self._entropy.detach())

    def step(self, by_log_prob: Tensor, by_entropy: Tensor | None) -> PolicyStep:
        """Return the gradient as a surrogate loss."""
        surrogate = (by_log_prob * self._log_prob).sum()
        if by_entropy is not None:
            surrogate = surrogate + (by_entropy * self._entropy).sum()
        return PolicyStep(surrogate, {})
