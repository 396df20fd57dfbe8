"""What a storage asks of the environments, the algorithm and the actor that it is made for, and of a log."""

from typing import Any, Protocol

import torch

from storages.core.parts import RingObserver
from storages.core.ring.layout import Layout
from storages.core.sampling.prioritized import Priorities


class Environments(Protocol):
    """What a storage reads of the environments.

    They may also have ``stacked_frames``, an int or a mapping from names of a dict observation's leaves to ints: how
    many of the last frames an observation is a stack of (its first axis), the newest last; 0 where it is none. Then
    each frame is kept once.
    """

    @property
    def num_envs(self) -> int:
        """How many transitions a step adds."""


class Discounting(Protocol):
    """What a storage reads of the algorithm.

    One whose on-policy samples need not hold values may also have ``values_when_full``, a frozenset: those of VAL and
    IVAL that the actor is asked for when a rollout is full, where samples do not hold them.
    """

    @property
    def gamma(self) -> float:
        """Discount factor of one step."""


class Curiosity(Discounting, Protocol):
    """What an on-policy storage reads of an algorithm that gives transitions intrinsic rewards."""

    @property
    def intrinsic_gamma(self) -> float:
        """Discount factor of one step of intrinsic rewards."""

    @property
    def intrinsic_returns_end(self) -> bool:
        """Whether intrinsic returns end with episodes, or reach into those that follow."""


class ValueFunction(Protocol):
    """What an on-policy storage asks of the actor."""

    def value(self, obs: Any, rhs: Any, done: torch.Tensor) -> torch.Tensor:
        """(B, 1): the value of observations (B, *obs), on the storage's device, without a gradient."""


class IntrinsicValueFunction(ValueFunction, Protocol):
    """What an on-policy storage of intrinsic rewards asks of the actor."""

    def intrinsic_value(self, obs: Any, rhs: Any, done: torch.Tensor) -> torch.Tensor:
        """(B, 1): as :meth:`value`, of intrinsic rewards."""


class PolicyEvaluation(ValueFunction, Protocol):
    """What a storage that corrects for older policies asks of the actor."""

    def evaluate_actions(
        self, obs: Any, rhs: Any, done: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log probabilities of actions (T, B, *action) and values of observations (T, B, *obs), both (T, B, 1).

        ``rhs`` (B, *hidden) is the memory before the first of them, None without a memory; ``done`` is (T, B, 1).
        """


class ActionValueEvaluation(ValueFunction, Protocol):
    """What a storage of returns of action values asks of the actor, whose ``value`` is their mean under the policy."""

    def evaluate_action_values(
        self, obs: Any, rhs: Any, done: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Log probabilities and values of actions, and values of observations, (T, B, 1) each.

        Arguments are those of :meth:`PolicyEvaluation.evaluate_actions`.
        """


class Loggable(Protocol):
    """What a log asks of a storage."""

    states_kept: int
    """How many of the states that ``save`` returned stay loadable: the newest."""

    def extra_state(self) -> dict[str, Any]:
        """State beside the rows, as JSON can keep it."""

    @property
    def priorities(self) -> Priorities | None:
        """Priorities of the rows, if there are any."""


class StorageLog(RingObserver, Protocol):
    """Keeps a storage outside of memory, so that the same storage is there again when it is made anew."""

    @property
    def position(self) -> Any:
        """The last commit, as plain data."""

    def flush(self, storage: Loggable) -> None:
        """Commit everything, and wait until it is written."""

    def roll_back(self, position: Any) -> dict[str, Any]:
        """Restore the rows of a commit, drop later ones, and return the state that was saved beside the rows."""
        raise NotImplementedError

    def pin(self, storage: Loggable, position: Any) -> None:
        """Keep what is needed to roll back to a commit."""

    def close(self, storage: Loggable) -> None:
        """Commit everything and release the directory."""

    def save(self, storage: Loggable) -> dict[str, Any]:
        """Commit everything, and return the commit's position and the state beside the rows."""
        raise NotImplementedError

    def refuse_other_fields(self, saved: Layout) -> None:
        """Raise an error if rows of other fields were committed than those of a layout."""
        return
