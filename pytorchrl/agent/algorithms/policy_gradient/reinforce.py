"""REINFORCE: Monte Carlo policy gradients with an optional value baseline."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.on_policy import PolicyGradient
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.update_plan import EveryEpisodes, UpdatePlan
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, Positive
from storages.on_policy import VanillaOnPolicyBuffer
from storages.storage import Storage
from storages.transition import RET, Batch


class REINFORCE(PolicyGradient):
    """Williams, "Simple Statistical Gradient-Following Algorithms for Connectionist RL" (1992), with returns-to-go.

    Returns of truncated or unfinished episodes bootstrap on the value function; ``VanillaOnPolicyBuffer`` with
    ``cut_episodes="drop"`` omits such episodes.

    Args:
        lr: learning rate.
        value_loss_coef: weight of the value function's loss.
        entropy_coef: weight of the entropy bonus.
        episodes_per_update: episodes between updates; fewer if the storage fills up earlier.
        baseline: subtract the value function from returns, and normalise them as ``normalize_advantages`` says; False
            uses plain returns.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", partial=True)}

    lr: NonNegativeOrSchedule = 3e-3
    value_loss_coef: NonNegative = 0.5
    entropy_coef: NonNegative = 0.0
    max_grad_norm: Positive | None = 0.5
    episodes_per_update: Count = 8
    baseline: bool = True

    def build(self) -> None:
        """Make policy and value function, trained together."""
        self.trained = self.train("policy_and_value", *self.make_networks())

    def losses(self, rows: Rows) -> Losses:
        """Return the policy gradient, value and entropy losses."""
        log_prob, entropy_of_rows = self.policy(rows.now, None).evaluate(rows.action)
        weight = self.advantages(rows) if self.baseline else rows[RET]
        policy_loss = -rows.mean(log_prob * weight)
        value_loss = 0.5 * rows.mean((self.value(rows.now) - rows[RET]).square())
        entropy = rows.mean(entropy_of_rows)
        loss = policy_loss + self.value_loss_coef * value_loss - self.entropy_coef * entropy
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return Losses({self.trained: loss}, {name: metric.detach() for name, metric in metrics.items()})

    def update_plan(self) -> UpdatePlan:
        """Return an update phase per ``episodes_per_update`` episodes."""
        return EveryEpisodes(self.episodes_per_update)

    def batches(self, source: Storage) -> Iterator[Batch]:
        """Yield ``num_mini_batch`` minibatches per epoch, fewer where short episodes have fewer rows than that."""
        assert isinstance(source, VanillaOnPolicyBuffer)
        steps = len(source) // source.num_envs
        most = source.most_batches(steps, recurrent=self.actor.memory is not None)
        return self.minibatches(source, min(self.num_mini_batch, most))
