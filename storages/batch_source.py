"""What a learner draws batches from: a storage, a mix of storages, or shards of one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from storages.core.sampling.prioritized import Priorities
from storages.transition import Batch


class BatchSource(ABC):
    """The calls of a learner around its updates; sources override those that concern them."""

    on_policy: ClassVar[bool]
    """Whether it holds transitions of the current policy alone."""
    knows_next_actions: ClassVar[bool] = False
    """Whether :meth:`include_next_actions` is supported."""
    knows_returns_to_go: ClassVar[bool] = False
    """Whether :meth:`include_returns_to_go` is supported."""
    knows_newest_steps: ClassVar[bool] = False
    """Whether :meth:`newest_steps` is supported."""
    progress: tuple[int, int] = (0, 1)
    """Steps of the run so far, and its target, which schedules follow."""

    def set_progress(self, steps: int, target_steps: int) -> None:
        """Set the progress of the run, in environment transitions, before an update phase; schedules follow it."""
        self.progress = (steps, target_steps)

    def before_gradients(self) -> None:
        """Prepare an update phase; on-policy storages compute returns and advantages here."""
        return

    @abstractmethod
    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """Return an iterator of batches: dicts of tensors on ``device``, owned by the caller.

        Raises:
            EmptyStorageError: nothing is stored yet; raised by the call, not by the first ``next``.
        """

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Process the result ``info`` of an update with a batch; return it with the source's metrics added."""
        return dict(info)

    def after_episodes(self, returns: Sequence[float]) -> None:
        """Receive the undiscounted returns of training episodes that have ended."""
        return

    def include_next_actions(self) -> None:
        """Add ACT2 and TAKEN2, the next action, to batches; called for algorithms that need it.

        Raises:
            NotImplementedError: the source does not support it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not know the action that followed a transition; ReplayBuffer and its "
            f"subclasses do"
        )

    def include_returns_to_go(self) -> None:
        """Add RTG, the discounted return to the end of the episode, to batches; called for algorithms that need it.

        It is NaN where the episode has not ended, and where hindsight has relabelled the rewards.

        Raises:
            NotImplementedError: the source does not support it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not know the returns of episodes; ReplayBuffer and its subclasses do"
        )

    def keep_newest_steps(self, steps: int) -> None:
        """Keep at least so many steps for :meth:`newest_steps`, if the source would not anyway."""
        return

    def newest_steps(self, steps: int) -> Batch:
        """Return the newest steps of all environments, as a batch of sequences.

        Raises:
            NotImplementedError: the source does not support it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not know its newest steps; ReplayBuffer and its subclasses do"
        )

    @property
    def priorities(self) -> Priorities | None:
        """Priorities of the stored transitions; None where there are none."""
        return None
