"""A2C: synchronous advantage actor-critic on short rollouts."""

from pytorchrl.agent.algorithms.policy_gradient.parts.policy_and_value import PolicyAndValue
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.optimizers import Optimizer, RMSprop
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule


class A2C(PolicyAndValue):
    """Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning" (arXiv 1602.01783), made synchronous.

    The storage's ``size`` is the length of a rollout (5 in the paper). ``VanillaOnPolicyBuffer`` computes the paper's
    n-step returns, ``GAEBuffer`` generalised advantages (Schulman et al., arXiv 1506.02438). In a
    ``HogwildScheme``, or with gradient workers, it is A3C, the asynchronous original.
    """

    lr: NonNegativeOrSchedule = 7e-4
    entropy_coef: NonNegative = 0.01
    normalize_advantages = False
    optimizer: Optimizer = RMSprop(alpha=0.99, eps=1e-5, centered=False)

    def losses(self, rows: Rows) -> Losses:
        """Return the policy gradient, value and entropy losses (section 4)."""
        return self.likelihood_ratio(rows, self.advantages(rows))
