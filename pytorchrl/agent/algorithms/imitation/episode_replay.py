"""Replay of stored episodes into a rollout, as if the current policy had collected them, and joint batches of both."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.imitation.replayed_episodes import (
    ReplayedEpisodes,
    StoredEpisode,
    state_of,
    stored_episode_of,
)
from storages.core.ring.layout import nest
from storages.datasets.fill import EpisodeCursor
from storages.storage import Storage
from storages.transition import ACT, DONE, OBS, RHS, RHS2, SKIPPED, VAL, Batch

EvaluatePolicy = Callable[[View, Tensor], Mapping[str, Tensor]]
"""From observations and replayed actions (C, *action) to the current actor's fields, such as values and LOGP."""


class EpisodeReplay:
    """Replays episodes one after another in the columns of a rollout, across successive rollouts.

    Args:
        columns: C, episodes replayed in parallel.
        actor: computes values, with its recurrent state if it has a memory.
        episodes: to draw from.
        generator: of random numbers.
        state: to continue from, as returned by :meth:`state_dict`; None begins with newly drawn episodes.
    """

    def __init__(
        self,
        columns: int,
        actor: Actor,
        episodes: ReplayedEpisodes,
        generator: torch.Generator,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._actor, self.episodes, self._generator = actor, episodes, generator
        if state is None:
            self._kept = [episodes.draw(generator) for _ in range(columns)]
            at, self._largest, rhs = [0] * columns, [-np.inf] * columns, actor.initial_memory(columns)
        else:
            episodes.load_state_dict(state["episodes"])
            self._kept = [stored_episode_of(each) for each in state["kept"]]
            at, self._largest, rhs = state["at"], list(state["largest"]), state["rhs"]
        self._cursors = [_cursor(kept, begin) for kept, begin in zip(self._kept, at, strict=True)]
        self._rhs = None if rhs is None else rhs.to(actor.device)

    def fill(self, rollout: Storage, evaluate: EvaluatePolicy, *, with_skips: bool) -> None:
        """Fill the rollout with replayed steps.

        Args:
            rollout: empty.
            evaluate: computes the current actor's fields.
            with_skips: store SKIPPED, too, which rollouts of environments that skip steps have.
        """
        assert rollout.size is not None
        for _ in range(rollout.size):
            sample = self._next_step()
            begins = torch.from_numpy(sample[DONE].astype(np.float32)).to(self._actor.device)
            obs, action = self._on_device(sample[OBS]), self._on_device(sample[ACT])
            with self._actor.acting(noisy=True):
                view = self._actor.view(obs, self._rhs, begins)
                sample |= evaluate(view, action)
                after = view.rhs_after()
            if self._rhs is not None:
                sample |= {RHS: self._rhs, RHS2: after}
            if with_skips:
                sample[SKIPPED] = np.zeros_like(sample[DONE])
            rollout.insert_transition(sample)
            self._rhs = after
            self._go_on(sample[VAL].flatten().tolist())

    def _next_step(self) -> dict[str, Any]:
        steps = [cursor.take(1) for cursor in self._cursors]
        return nest({path: np.concatenate([step[path] for step in steps]) for path in steps[0] if path != (VAL,)})

    def _go_on(self, values: list[float]) -> None:
        """Draw the next episode in columns where one has ended."""
        for column, (cursor, value) in enumerate(zip(self._cursors, values, strict=True)):
            self._largest[column] = max(self._largest[column], value)
            if not cursor.left:
                self.episodes.set_value(self._kept[column].number, self._largest[column])
                self._kept[column], self._largest[column] = self.episodes.draw(self._generator), -np.inf
                self._cursors[column] = _cursor(self._kept[column])

    def _on_device(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._on_device(part) for name, part in value.items()}
        return torch.from_numpy(np.ascontiguousarray(value)).to(self._actor.device)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all replays, as tensors and plain data."""
        return {
            "episodes": self.episodes.state_dict(),
            "kept": [state_of(kept) for kept in self._kept],
            "at": [cursor.at for cursor in self._cursors],
            "largest": list(self._largest),
            "rhs": self._rhs,
        }


def _cursor(kept: StoredEpisode, at: int = 0) -> EpisodeCursor:
    cursor = EpisodeCursor(kept.episode, 0, len(kept.episode))
    cursor.at = at
    return cursor


class JoinedRollouts:
    """Concatenates the batches of several rollouts; their sequences must be of equal length.

    Args:
        rollouts: each must divide into the requested number of batches.
    """

    def __init__(self, rollouts: Sequence[Storage]) -> None:
        self._rollouts = rollouts

    def before_gradients(self) -> None:
        """Compute returns and advantages of each rollout."""
        for rollout in self._rollouts:
            rollout.before_gradients()

    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None = None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """Yield batches with every transition once per epoch, as :class:`VanillaOnPolicyBuffer` does."""
        each = [rollout.generate_batches(num_mini_batch, mini_batch_size, num_epochs) for rollout in self._rollouts]
        for batches in zip(*each, strict=True):
            # In sequences, the first axis is time, which the initial recurrent state does not have.
            axis = int(batches[0][DONE].ndim == 3)
            yield {key: _joined([batch[key] for batch in batches], 0 if key == RHS else axis) for key in batches[0]}

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return the info unchanged; rollouts have no metrics."""
        return dict(info)


def _joined(parts: Sequence[Any], axis: int) -> Any:
    if isinstance(parts[0], Mapping):
        return {name: _joined([part[name] for part in parts], axis) for name in parts[0]}
    return torch.cat(list(parts), dim=axis)
