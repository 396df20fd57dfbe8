"""Distributional DQN, by probabilities of atoms or by quantiles.

CategoricalDQN: distributional DQN with probabilities on a fixed support of atoms.
QRDQN: distributional DQN by quantile regression.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import CategoricalReturns, QuantileReturns
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from storages.component.hyper_parameters import Count, Positive, Within


class CategoricalDQN(DQN):
    """Bellemare et al., "A Distributional Perspective on Reinforcement Learning" (arXiv 1707.06887).

    Target distributions are projected onto the atoms, evenly spaced from ``v_min`` to ``v_max`` (algorithm 1). The
    loss, which is also the error for priorities, is the cross-entropy; unlike the KL divergence it is not 0 for a
    perfect prediction of random returns. The algorithm selects next actions with the target network, as
    ``double=False`` does.

    Args:
        v_min: the smallest atom; smaller returns are clipped to it.
        v_max: the largest atom; larger returns are clipped to it.
        num_atoms: number of atoms.

    Raises:
        ValueError: ``v_min`` is not less than ``v_max``.
    """

    unchangeable = frozenset({"v_min", "v_max", "num_atoms"})

    v_min: float = -10.0
    v_max: float = 10.0
    num_atoms: Annotated[int, Within(2)] = 51
    huber_threshold: ClassVar[None] = None  # type: ignore[misc]  # the loss is a cross-entropy

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that the support is not empty."""
        super().check_hyper_parameters(hyper_parameters)
        low, high = hyper_parameters["v_min"], hyper_parameters["v_max"]
        if not low < high:
            raise ValueError(f"{cls.__name__}: v_min must be less than v_max={high}, got {low}")

    def head(self) -> Head:
        """Return a head with the probabilities of atoms for each action."""
        return CategoricalReturns(self.num_atoms, self.v_min, self.v_max)


class QRDQN(DQN):
    """Dabney et al., "Distributional Reinforcement Learning with Quantile Regression" (arXiv 1710.10044).

    The paper's algorithm 1 selects next actions with the target network, as ``double=False`` does.

    Args:
        num_quantiles: per action.
        kappa: threshold of the quantile Huber loss, beyond which it is linear (equation 10).
    """

    unchangeable = frozenset({"num_quantiles", "kappa"})

    num_quantiles: Count = 200
    kappa: Positive = 1.0
    huber_threshold: ClassVar[None] = None  # type: ignore[misc]  # kappa takes its place

    def head(self) -> Head:
        """Return a head with the quantiles of each action's return."""
        return QuantileReturns(self.num_quantiles, self.kappa)
