"""Protocols of the environments, algorithm, actor and log that a storage works with."""

from typing import Any, Protocol

import torch

from storages.core.parts import RingObserver
from storages.core.ring.layout import Layout
from storages.core.sampling.prioritized import Priorities


class Environments(Protocol):
    """Attributes of the environments that a storage reads.

    Optional: ``stacked_frames``, an int or a mapping from keys of a dict observation to ints: how many of the last
    frames an observation stacks along its first axis, the newest last; 0 where it is no stack. Each frame is then
    stored once. Also optional: ``skips_steps``, whether an environment makes no transition in the step that resets it.
    """

    @property
    def num_envs(self) -> int:
        """Number of environments, which is the number of transitions that a step adds."""


class Discounting(Protocol):
    """Attributes of the algorithm that a storage reads.

    Optional, for on-policy algorithms whose samples need not hold values: ``values_when_full``, a frozenset of those of
    VAL and IVAL that the actor evaluates when a rollout is full, where samples do not hold them.
    """

    @property
    def gamma(self) -> float:
        """Per-step discount factor."""


class Curiosity(Discounting, Protocol):
    """Attributes of an algorithm with intrinsic rewards that an on-policy storage reads."""

    @property
    def intrinsic_gamma(self) -> float:
        """Per-step discount factor of intrinsic rewards."""

    @property
    def intrinsic_returns_end(self) -> bool:
        """Whether intrinsic returns are episodic; otherwise they continue across the ends of episodes."""


class ValueFunction(Protocol):
    """Method of the actor with which an on-policy storage evaluates observations."""

    def value(self, obs: Any, rhs: Any, done: torch.Tensor) -> torch.Tensor:
        """Return the values (B, 1) of observations (B, *obs), on the storage's device, without gradients."""


class IntrinsicValueFunction(ValueFunction, Protocol):
    """Methods of the actor that an on-policy storage with intrinsic rewards calls."""

    def intrinsic_value(self, obs: Any, rhs: Any, done: torch.Tensor) -> torch.Tensor:
        """Return the intrinsic values (B, 1), otherwise as :meth:`value`."""


class PolicyEvaluation(ValueFunction, Protocol):
    """Methods of the actor that off-policy corrections with state values (V-trace) need."""

    def evaluate_actions(
        self, obs: Any, rhs: Any, done: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities of actions (T, B, *action) and values of observations (T, B, *obs), both (T, B, 1).

        ``rhs`` (B, *hidden) is the recurrent state before the first step, None without one; ``done`` is (T, B, 1).
        """


class ActionValueEvaluation(ValueFunction, Protocol):
    """Methods of the actor that Retrace needs; ``value`` is the expected Q-value under the policy."""

    def evaluate_action_values(
        self, obs: Any, rhs: Any, done: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return log-probabilities of actions, their Q-values, and values of observations, (T, B, 1) each.

        The arguments are those of :meth:`PolicyEvaluation.evaluate_actions`.
        """


class Loggable(Protocol):
    """Attributes of a storage that a log reads."""

    states_kept: int
    """How many of the newest states returned by ``save`` stay loadable."""

    def extra_state(self) -> dict[str, Any]:
        """Return the state other than the rows, as JSON-serialisable data."""

    @property
    def priorities(self) -> Priorities | None:
        """Priorities of the rows, if there are any."""


class StorageLog(RingObserver, Protocol):
    """Persists a storage, so that a new instance restores the same contents."""

    @property
    def position(self) -> Any:
        """The last commit, as plain data."""

    def flush(self, storage: Loggable) -> None:
        """Commit everything, and wait until it is written."""

    def roll_back(self, position: Any) -> dict[str, Any]:
        """Restore the rows of a commit, drop later commits, and return the state saved beside the rows."""
        raise NotImplementedError

    def pin(self, storage: Loggable, position: Any) -> None:
        """Keep the data needed to roll back to a commit."""

    def close(self, storage: Loggable) -> None:
        """Commit everything and release the directory."""

    def save(self, storage: Loggable) -> dict[str, Any]:
        """Commit everything, and return the commit's position and the state beside the rows."""
        raise NotImplementedError

    def refuse_other_fields(self, saved: Layout) -> None:
        """Raise an error if the committed rows have other fields than a layout."""
        return
