"""Categorical DQN (C51): the distribution of returns by the probabilities of fixed ones."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import CategoricalReturns
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from storages.component.hyper_parameters import Within


class CategoricalDQN(DQN):
    """Bellemare et al., "A Distributional Perspective on Reinforcement Learning" (arXiv 1707.06887).

    Returns are projected onto the atoms, evenly spaced from ``v_min`` to ``v_max`` (algorithm 1); those beyond count as
    the outermost atoms. The loss, and the error that priorities follow, is the cross-entropy.

    Args:
        v_min: the smallest atom; returns below it count as it.
        v_max: the largest atom.
        num_atoms: returns that have a probability.

    Raises:
        ValueError: ``v_min`` is not less than ``v_max``.
    """

    unchangeable = DQN.unchangeable | {"v_min", "v_max", "num_atoms"}

    v_min: float = -10.0
    v_max: float = 10.0
    num_atoms: Annotated[int, Within(2)] = 51
    huber_threshold: ClassVar[None] = None  # type: ignore[misc]  # the loss is no distance of numbers

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse a support without an extent."""
        super().check_hyper_parameters(hyper_parameters)
        low, high = hyper_parameters["v_min"], hyper_parameters["v_max"]
        if not low < high:
            raise ValueError(f"{cls.__name__}: v_min must be less than v_max={high}, got {low}")

    def head(self) -> Head:
        """Probabilities of atoms in the place of expected values."""
        return CategoricalReturns(self.num_atoms, self.v_min, self.v_max)
