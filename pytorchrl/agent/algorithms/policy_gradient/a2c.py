"""Advantage actor-critic on short rollouts.

A2C: synchronous advantage actor-critic on short rollouts.
IMPALA: advantage actor-critic with V-trace correction for rollouts of older policies.
"""

from collections.abc import Mapping
from typing import ClassVar

from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.on_policy import PolicyGradient
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.optimizers import Optimizer, RMSprop
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule, Positive
from storages.transition import RET


class A2C(PolicyGradient):
    """Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning" (arXiv 1602.01783), made synchronous.

    The storage's ``size`` is the length of a rollout (5 in the paper). ``VanillaOnPolicyBuffer`` computes the paper's
    n-step returns, ``GAEBuffer`` generalised advantages (Schulman et al., arXiv 1506.02438). In a
    ``HogwildScheme``, or with gradient workers, it is A3C, the asynchronous original.

    Args:
        lr: learning rate.
        value_loss_coef: weight of the value function's loss.
        entropy_coef: weight of the entropy bonus (beta).
    """

    lr: NonNegativeOrSchedule = 7e-4
    value_loss_coef: NonNegative = 0.5
    entropy_coef: NonNegative = 0.01
    max_grad_norm: Positive | None = 0.5
    normalize_advantages = False
    optimizer: Optimizer = RMSprop(alpha=0.99, eps=1e-5, centered=False)

    def build(self) -> None:
        """Make policy and value function, trained together."""
        self.trained = self.train("policy_and_value", *self.make_networks())

    def losses(self, rows: Rows) -> Losses:
        """Return the policy gradient, value and entropy losses (section 4)."""
        log_prob, entropy_of_rows = self.policy(rows.now, None).evaluate(rows.action)
        policy_loss = -rows.mean(log_prob * self.advantages(rows))
        value_loss = 0.5 * rows.mean((self.value(rows.now) - rows[RET]).square())
        entropy = rows.mean(entropy_of_rows)
        loss = policy_loss + self.value_loss_coef * value_loss - self.entropy_coef * entropy
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return Losses({self.trained: loss}, {name: metric.detach() for name, metric in metrics.items()})


class IMPALA(A2C):
    """Espeholt et al., "IMPALA" (arXiv 1802.01561), section 4: A2C on V-trace targets.

    ``VTraceBuffer`` computes truncated importance weights from the current and the stored log-probabilities of actions,
    and from those the V-trace targets and advantages of the current policy.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", older_policies=True)}

    lr: NonNegativeOrSchedule = 6e-4
