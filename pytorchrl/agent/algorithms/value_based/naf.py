"""NAF: Q-learning for continuous actions, with Q-values quadratic in the action."""

import torch

from pytorchrl.agent.actors.heads import Quadratic
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import QuadraticValues
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, GaussianNoise
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive, UnitInterval


class NAF(OffPolicyAlgorithm):
    """Gu et al., "Continuous Deep Q-Learning with Model-based Acceleration" (arXiv 1603.00748), algorithm 1.

    Actions are scaled from the bounds of the action space to [-1, 1], which is also the unit of the noise. The paper's
    noise is ``explorer=OrnsteinUhlenbeck(0.3)``.

    Args:
        squash: bound greedy actions by a tanh; False clips the maximum of the quadratic instead, and bootstraps on the
            value of the clipped action.
        exploration_noise: standard deviation of the noise on actions.
        min_log_diagonal: lower bound of the log-diagonal of L; None for none, as in the paper. Without it, where
            actions seem equally good for long (as early in training with a memory), Q becomes so flat in the action
            that learning stops. -1.5 keeps its curvature above 0.05.
        lr: learning rate.
        polyak: weight that the target network keeps in each of its updates; 0 copies the online network.
        target_update_interval: batches between updates of the target network.
    """

    actions = "bounded"
    unchangeable = frozenset({"squash", "min_log_diagonal"})

    squash: bool = False
    exploration_noise: NonNegativeOrSchedule = 0.3
    min_log_diagonal: float | None = None
    lr: NonNegativeOrSchedule = 1e-3
    max_grad_norm: Positive | None = 10.0
    polyak: UnitInterval = 0.995
    target_update_interval: Count = 1
    mini_batch_size: Count = 128
    test_every: CountOrZero = 5_000

    def build(self) -> None:
        """Make the Q-network, quadratic in the action, and its target."""
        self.q = self.actor.make("q", Quadratic(self.squash, min_log_diagonal=self.min_log_diagonal), acts=True)
        self.trained = self.train("q", self.q)
        self.q_target: Network = self.target(self.q, every="target_update_interval")

    def losses(self, rows: Rows) -> Losses:
        """Return the squared loss of ``Q(s, a)`` against ``r + gamma * V_target(s')``."""
        with torch.no_grad():
            target = self.q_target(rows.next).best().backup(rows.reward, rows.discount)
        value = self.q(rows.now).of(rows.action)
        loss, errors = value.weighted_loss(rows.weight, target)
        metrics = {"loss": loss.detach(), "q_value": rows.mean(value.mean.detach())}
        return Losses({self.trained: loss}, metrics, rows.per_row(errors))

    def policy(self, view: View, exploration: Exploration) -> QuadraticValues:
        """Return the values of all actions."""
        values: QuadraticValues = self.q(view)
        return values

    def default_explorer(self) -> Explorer:
        """Return Gaussian noise on actions."""
        return GaussianNoise(self.exploration_noise)
