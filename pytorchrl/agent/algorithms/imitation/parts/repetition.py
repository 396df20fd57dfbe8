"""Episodes repeated as if the policy had acted so: what a rollout holds of them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.imitation.parts.replayed_episodes import Kept, ReplayedEpisodes, kept_of, state_of
from storages.core.ring.layout import nest
from storages.datasets.fill import EpisodeCursor
from storages.storage import Storage
from storages.transition import ACT, DONE, OBS, RHS, RHS2, VAL

Judge = Callable[[View, Tensor], Mapping[str, Tensor]]
"""What the present actor says of observations and of the actions (C, *action) that are repeated there."""


class Repetition:
    """Columns of a rollout in which episodes are repeated one after the other, from one rollout to the next.

    Args:
        columns: C, how many.
        actor: values what is seen, with its memory if it has one.
        episodes: what there is to repeat.
        generator: draws among them.
        state: of which it goes on, as :meth:`state_dict` returned it; None begins with other episodes.
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
            self._kept = [kept_of(each) for each in state["kept"]]
            at, self._largest, rhs = state["at"], list(state["largest"]), state["rhs"]
        self._cursors = [_cursor(kept, begin) for kept, begin in zip(self._kept, at, strict=True)]
        self._rhs = None if rhs is None else rhs.to(actor.device)

    def fill(self, rollout: Storage, judge: Judge) -> None:
        """Repeat as many steps as the rollout holds."""
        assert rollout.size is not None
        for _ in range(rollout.size):
            sample = self._next_step()
            begins = torch.from_numpy(sample[DONE].astype(np.float32)).to(self._actor.device)
            obs, action = self._on_device(sample[OBS]), self._on_device(sample[ACT])
            with self._actor.acting(noisy=True):
                view = self._actor.view(obs, self._rhs, begins)
                sample |= judge(view, action)
                after = view.rhs_after()
            if self._rhs is not None:
                sample |= {RHS: self._rhs, RHS2: after}
            rollout.insert_transition(sample)
            self._rhs = after
            self._go_on(sample[VAL].flatten().tolist())

    def _next_step(self) -> dict[str, Any]:
        steps = [cursor.take(1) for cursor in self._cursors]
        return nest({path: np.concatenate([step[path] for step in steps]) for path in steps[0] if path != (VAL,)})

    def _go_on(self, values: list[float]) -> None:
        """Begin another episode where one has ended."""
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
        """What is being repeated, as tensors and plain data."""
        return {
            "episodes": self.episodes.state_dict(),
            "kept": [state_of(kept) for kept in self._kept],
            "at": [cursor.at for cursor in self._cursors],
            "largest": list(self._largest),
            "rhs": self._rhs,
        }


def _cursor(kept: Kept, at: int = 0) -> EpisodeCursor:
    cursor = EpisodeCursor(kept.episode, 0, len(kept.episode))
    cursor.at = at
    return cursor
