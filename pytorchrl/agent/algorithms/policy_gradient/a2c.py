"""A2C: an actor and a critic that learn together from short segments of many environments."""

from pytorchrl.agent.algorithms.policy_gradient.parts.policy_and_value import PolicyAndValue
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.optimizers import Optimizer, RMSprop
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule


class A2C(PolicyAndValue):
    """Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning" (arXiv 1602.01783), made synchronous.

    The storage's ``size`` is the length of a segment (5 in the paper). ``VanillaOnPolicyBuffer`` makes the paper's
    n-step returns, ``GAEBuffer`` the advantages of Schulman et al. (arXiv 1506.02438). ``compute_gradients`` and
    ``apply_gradients`` of two copies make it A3C, the asynchronous original.
    """

    lr: NonNegativeOrSchedule = 7e-4
    entropy_coef: NonNegative = 0.01
    normalize_advantages = False
    optimizer: Optimizer = RMSprop(alpha=0.99, eps=1e-5, centered=False)

    def losses(self, rows: Rows) -> Losses:
        """The likelihood-ratio gradient of advantages, the value function's error, and the entropy (section 4)."""
        return self.likelihood_ratio(rows, self.advantages(rows))
