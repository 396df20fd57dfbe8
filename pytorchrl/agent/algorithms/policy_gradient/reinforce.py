"""REINFORCE: the gradient of the log probability of what was done, as good as what came of it."""

from pytorchrl.agent.algorithms.policy_gradient.policy_gradient import PolicyGradient
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.update_plan import EveryEpisodes, UpdatePlan
from storages.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, Positive
from storages.transition import RET


class REINFORCE(PolicyGradient):
    """Williams, "Simple Statistical Gradient-Following Algorithms for Connectionist RL" (1992), with returns-to-go.

    An episode that a limit cut, or that still runs, leans on the value function from there on.

    Args:
        lr: learning rate.
        episodes_per_update: episodes between updates; fewer where the storage is full before.
        baseline: take the value function off returns; False leaves returns as they are.
        value_loss_coef: weight of the value function's loss.
        entropy_coef: weight of the policy's entropy, which is raised.
        max_grad_norm: gradients are scaled down to this norm; None leaves them.
    """

    lr: NonNegativeOrSchedule = 3e-3
    episodes_per_update: Count = 8
    baseline: bool = True
    value_loss_coef: NonNegative = 0.5
    entropy_coef: NonNegative = 0.0
    max_grad_norm: Positive | None = 0.5

    def build(self) -> None:
        """Policy and value function, trained together."""
        self.make_networks()
        self.trained = self.train("policy_and_value", self.pi, self.value, max_grad_norm="max_grad_norm")

    def update_plan(self) -> UpdatePlan:
        """After a number of episodes."""
        return EveryEpisodes(self.episodes_per_update)

    def losses(self, rows: Rows) -> Losses:
        """The likelihood-ratio gradient, and the value function's error."""
        policy, value = self.pi(rows.now), self.value(rows.now)
        merit = self.advantages(rows) if self.baseline else rows[RET]
        policy_loss = -(policy.log_prob(rows.action) * merit).mean()
        value_loss = 0.5 * (value - rows[RET]).square().mean()
        entropy = policy.entropy().mean()
        loss = policy_loss + self.value_loss_coef * value_loss - self.entropy_coef * entropy
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return Losses({self.trained: loss}, {name: number.detach() for name, number in metrics.items()})
