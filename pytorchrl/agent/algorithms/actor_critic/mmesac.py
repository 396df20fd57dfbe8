"""MMESAC: SAC that seeks states where its policy has had little entropy so far, and raises the entropy there."""

from torch import Tensor

from pytorchrl.agent.algorithms.actor_critic.sac_with_value import SACWithValue
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import NonNegative


class MMESAC(SACWithValue):
    """Han and Sung, "A Max-Min Entropy Framework for Reinforcement Learning" (arXiv 2106.10517).

    As in the authors' code, the entropy that state values lose is relative to the largest of the batch, and the weight
    of the policy's entropy (alpha_pi) is the inverse of ``reward_scale``.

    Args:
        alpha_q: weight of the entropy that state values lose (alpha_Q), in scaled reward per nat.
    """

    alpha_q: NonNegative = 1.0

    def state_value(self, rows: Rows, value: Tensor, log_prob: Tensor) -> Tensor:
        """Return the targets (N, 1) of state values: the critics' values minus the policy's weighted entropy."""
        # Values of states with the largest entropy are those of the critics alone, so that the others gain.
        entropy = -log_prob - rows.maximum(-log_prob).clamp(min=0)
        return value - self.alpha_q * entropy
