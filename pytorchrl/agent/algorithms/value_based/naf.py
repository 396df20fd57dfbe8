"""NAF: Q-learning for continuous actions, with Q-values quadratic in the action."""

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import Quadratic
from pytorchrl.agent.algorithms.value_based.parts.replayed_q_learning import ReplayedQLearning
from pytorchrl.agent.explorers import Explorer, GaussianNoise
from storages.component.hyper_parameters import CountOrZero, NonNegativeOrSchedule


class NAF(ReplayedQLearning):
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
    """

    actions = "bounded"
    unchangeable = frozenset({"squash", "min_log_diagonal"})

    squash: bool = False
    exploration_noise: NonNegativeOrSchedule = 0.3
    min_log_diagonal: float | None = None
    test_every: CountOrZero = 5_000

    def head(self) -> Head:
        """Return a head that is quadratic in the action."""
        return Quadratic(self.squash, min_log_diagonal=self.min_log_diagonal)

    def default_explorer(self) -> Explorer:
        """Return Gaussian noise on actions."""
        return GaussianNoise(self.exploration_noise)
