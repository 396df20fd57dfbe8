"""What the current actor makes of a rollout, checked before returns and advantages follow from it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.device.transfer import to_batch
from storages.core.kernels.insert import all_finite
from storages.core.ring.ring import Ring
from storages.core.windows.segments import in_time
from storages.transition import ACT, DONE, LOGP, OBS, OBS2, RHS, RHS2

_EVALUATED_AT_ONCE = 512
"""Transitions; so many stacks of four frames of 84 x 84 are 58 MB as float32."""


class RolloutEvaluation:
    """Asks the actor for values and probabilities of a rollout.

    Args:
        ring: holds the rollout.
        device: of the actor.
    """

    def __init__(self, ring: Ring, device: torch.device) -> None:
        self._ring, self._device = ring, device

    def values(self, ask: Callable[[Any, Any, torch.Tensor], torch.Tensor]) -> NDArray[np.float32]:
        """(T, E): the values of all observations.

        Args:
            ask: a method of the actor, for the values of observations.

        Raises:
            ValueError: its answer is not one finite number for each observation.
        """
        ring = self._ring
        first, count = ring.oldest * ring.envs, ring.live_steps * ring.envs
        values = np.empty(count, np.float32)
        for start in range(0, count, _EVALUATED_AT_ONCE):
            part = values[start : start + _EVALUATED_AT_ONCE]
            transitions = np.arange(first + start, first + start + len(part))
            seen = to_batch(ring.gather(transitions, {OBS, RHS, DONE}), self._device)
            with torch.no_grad():
                estimated = ask(seen[OBS], seen.get(RHS), seen[DONE])
            part[:] = self._checked(estimated, (len(part), 1), ask)
        return values.reshape(ring.live_steps, ring.envs)

    def next_values(
        self,
        values: NDArray[np.floating],
        ends: NDArray[np.bool_],
        worthless: NDArray[np.bool_],
        ask: Callable[[Any, Any, torch.Tensor], torch.Tensor],
    ) -> NDArray[np.float32]:
        """(T, E): the value of what followed each transition.

        Args:
            values: (T, E), of the observations.
            ends: (T, E), where the next row does not continue a transition.
            worthless: (T, E), where an end has no value after it.
            ask: a method of the actor, for the values of observations.

        Raises:
            ValueError: its answer is not one finite number for each observation.
        """
        ring = self._ring
        next_values = np.empty(values.shape, np.float32)
        next_values[:-1] = values[1:]
        unknown = ends.copy()
        unknown[-1] = True
        next_values[unknown & worthless] = 0
        unknown &= ~worthless
        transitions = ring.oldest * ring.envs + np.flatnonzero(unknown)
        if len(transitions):
            followed = to_batch(ring.gather(transitions, {OBS2, RHS2}), self._device)
            # What followed continues its episode, so the memory before it is not to be reset.
            done = torch.zeros((len(transitions), 1), device=self._device)
            with torch.no_grad():
                estimated = ask(followed[OBS2], followed.get(RHS2), done)
            next_values[unknown] = self._checked(estimated, (len(transitions), 1), ask)
        return next_values

    def ratios_and_values(
        self, ask: Callable[..., tuple[torch.Tensor, ...]], answers: int
    ) -> list[NDArray[np.float32]]:
        """The importance ratio of what was done, and numbers of what was seen and done, (T, E) each.

        Args:
            ask: a method of the actor, called with observations, the memory before the first of them, ends and actions,
                (T, B, ...), whose first answer is the log probability of actions.
            answers: how many tensors (T, B, 1) it returns.

        Raises:
            ValueError: an answer is not one finite number for each observation.
        """
        ring, envs = self._ring, self._ring.envs
        remembers = (RHS,) in ring.layout
        # A memory runs through the whole rollout; else parts bound what an actor's layers take.
        steps = ring.live_steps if remembers else max(1, _EVALUATED_AT_ONCE // envs)
        evaluated = [np.empty((ring.live_steps, envs), np.float32) for _ in range(answers)]
        for start in range(0, ring.live_steps, steps):
            part = slice(start, min(start + steps, ring.live_steps))
            transitions = np.arange((ring.oldest + part.start) * envs, (ring.oldest + part.stop) * envs)
            shape = (part.stop - part.start, envs)
            seen = ring.gather(transitions, {OBS, DONE, ACT, LOGP})
            fields = {key: in_time(value, shape) for key, value in seen.items()}
            if remembers:
                # Another stream of experience does not continue the memory of the one before it.
                fields[DONE] = np.maximum(fields[DONE], begins_of(ring).reshape(*shape, 1))
            batch = to_batch(fields | ring.gather(transitions[:envs], {RHS}), self._device)
            with torch.no_grad():
                found = ask(batch[OBS], batch.get(RHS), batch[DONE], batch[ACT])
            for numbers, answer in zip(evaluated, found, strict=True):
                numbers[part] = self._checked(answer, (*shape, 1), ask)
            ratios = evaluated[0][part]
            np.exp(ratios - seen[LOGP].reshape(shape), out=ratios)
        return evaluated

    def _checked(self, answer: object, shape: tuple[int, ...], ask: Callable[..., Any]) -> NDArray[np.float32]:
        """One number for each observation, as an array without the last axis."""
        ring = self._ring
        asked = f"{ring.owner}: actor.{ask.__name__}"
        if not isinstance(answer, torch.Tensor) or tuple(answer.shape) != shape:
            got = tuple(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
            raise ValueError(
                f"{asked} must return a tensor of shape {shape}, one number for each observation, got {got}; "
                f"no returns were made"
            )
        as_stored = answer if answer.dtype is torch.float32 else answer.float()
        numbers: NDArray[np.float32] = as_stored.detach().cpu().numpy()[..., 0]
        if not ring.allow_nonfinite and not all_finite(numbers.reshape(-1)):
            where = tuple(int(axis[0]) for axis in np.nonzero(~np.isfinite(numbers)))
            raise ValueError(
                f"{asked} returned {numbers[where]} at position {where}; no returns were made. The network "
                f"has diverged; allow_nonfinite=True would go on"
            )
        return numbers


def begins_of(ring: Ring) -> NDArray[np.float32]:
    """(T * E, 1): 1 where a step of the rollout does not continue the step before it."""
    broken = ring.broken()
    begins = np.zeros(broken.shape, np.float32)
    begins[1:] = broken[:-1]
    return begins.reshape(-1, 1)
