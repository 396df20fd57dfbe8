"""NAF: Q-learning over real actions, by values that are quadratic in the action."""

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import Quadratic
from pytorchrl.agent.algorithms.value_based.parts.replayed_q_learning import ReplayedQLearning
from pytorchrl.agent.explorers import Explorer, GaussianNoise
from storages.component.hyper_parameters import CountOrZero, NonNegativeOrSchedule


class NAF(ReplayedQLearning):
    """Gu et al., "Continuous Deep Q-Learning with Model-based Acceleration" (arXiv 1603.00748), algorithm 1.

    Actions are scaled from the bounds of the action space to [-1, 1], and so is the standard deviation of noise. The
    paper's noise is ``explorer=OrnsteinUhlenbeck(0.3)``.

    Args:
        squash: let best actions lie within the bounds, by a tanh; False lets the quadratic's peak lie anywhere, and
            clips it. Then next states count with the value of the clipped action, not with that of the peak.
        exploration_noise: standard deviation of the noise on actions.
        min_log_diagonal: what the logarithms of the diagonal of L stay above; None for no such bound, as in the paper.
            Where actions seem equally good for long, as until a memory knows what to keep, values become so flat
            without it that nothing is learnt there any more. -1.5 keeps their curvature above 0.05.
    """

    actions = "bounded"
    unchangeable = ReplayedQLearning.unchangeable | {"squash", "min_log_diagonal"}

    squash: bool = False
    exploration_noise: NonNegativeOrSchedule = 0.3
    min_log_diagonal: float | None = None
    test_every: CountOrZero = 5_000

    def head(self) -> Head:
        """A quadratic of the action."""
        return Quadratic(self.squash, min_log_diagonal=self.min_log_diagonal)

    def default_explorer(self) -> Explorer:
        """Gaussian noise on actions."""
        return GaussianNoise(self.exploration_noise)
