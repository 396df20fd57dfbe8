"""Base class of path consistency learning."""

from abc import abstractmethod
from collections.abc import Mapping

from torch import Tensor

from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.parts.on_and_off_policy import OnAndOffPolicy
from pytorchrl.agent.algorithms.actor_critic.parts.paths import Paths, discounted_sums, later
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from storages.component.hyper_parameters import Count, Positive


class PathConsistency(OnAndOffPolicy):
    """Minimises the soft path consistency error of policy and value function along short paths.

    A path ends with its episode, and bootstraps on 0 after termination, else on the value of the next state. Off-policy
    paths need no correction.

    Args:
        tau: weight of the entropy, in reward per nat.
        path_length: steps of a path (d); fewer where an episode or a segment ends.
    """

    tau: Positive = 0.1
    path_length: Count = 10

    @abstractmethod
    def policy_and_value(self, view: View) -> tuple[Distribution, Tensor]:
        """Return the distribution of actions, and V (N, 1)."""

    @abstractmethod
    def losses_of(self, policy_loss: Tensor, value_loss: Tensor) -> Mapping[Trained, Tensor]:
        """Return the loss of each parameter group."""

    def losses(self, rows: Rows) -> Losses:
        """Return losses with the gradients of half the squared consistency error (section 5)."""
        policy, value = self.policy_and_value(rows.now)
        _, next_value = self.policy_and_value(rows.next)
        log_prob = policy.log_prob(rows.action)
        paths = Paths(rows)
        discount, continues = paths.in_time(rows.discount), paths.continues
        factors = discount * continues
        bootstrapped = paths.in_time(rows.reward) + discount * (1 - continues) * paths.in_time(next_value)
        rewards, products = discounted_sums(bootstrapped, factors, self.path_length)
        surprise, _ = discounted_sums(paths.in_time(log_prob), factors, self.path_length)
        surprise = paths.rows(surprise)
        begin = paths.in_time(value)
        gain = paths.rows(rewards + products * later(begin, self.path_length) - begin)
        inconsistency = gain - self.tau * surprise.detach()
        value_loss = 0.5 * rows.weighted_mean(inconsistency.square())
        error = inconsistency.detach()
        # Gradient of half the square through the log-probabilities, divided by tau.
        policy_loss = -rows.weighted_mean(error * surprise)
        metrics = {
            "inconsistency": value_loss.detach(),
            "value": rows.mean(value.detach()),
            "entropy": rows.mean(policy.entropy().detach()),
        }
        return Losses(self.losses_of(policy_loss, value_loss), metrics, rows.per_row(error.abs()))
