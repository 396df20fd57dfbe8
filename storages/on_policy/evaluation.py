"""Evaluation of a rollout by the current actor, with checks of the result."""

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
"""Transitions per call; 512 stacks of four frames of 84 x 84 are 58 MB as float32."""


class RolloutEvaluation:
    """Evaluates values and importance ratios of a rollout with the actor.

    Args:
        ring: holds the rollout.
        device: of the actor.
    """

    def __init__(self, ring: Ring, device: torch.device) -> None:
        self._ring, self._device = ring, device

    def values(self, ask: Callable[[Any, Any, torch.Tensor], torch.Tensor]) -> NDArray[np.float32]:
        """Return the values (T, E) of all observations.

        Args:
            ask: the actor's method for the values of observations.

        Raises:
            ValueError: its result is not one finite number for each observation.
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
        without_value: NDArray[np.bool_],
        ask: Callable[[Any, Any, torch.Tensor], torch.Tensor],
    ) -> NDArray[np.float32]:
        """Return the values (T, E) of the next observations.

        Args:
            values: (T, E), of the observations.
            ends: (T, E), where the next row does not continue a transition's episode.
            without_value: (T, E), where the next value is 0 at an end, as after a termination.
            ask: the actor's method for the values of observations.

        Raises:
            ValueError: its result is not one finite number for each observation.
        """
        ring = self._ring
        next_values = np.empty(values.shape, np.float32)
        next_values[:-1] = values[1:]
        unknown = ends.copy()
        unknown[-1] = True
        next_values[unknown & without_value] = 0
        unknown &= ~without_value
        transitions = ring.oldest * ring.envs + np.flatnonzero(unknown)
        if len(transitions):
            followed = to_batch(ring.gather(transitions, {OBS2, RHS2}), self._device)
            # A next observation continues its episode, so the recurrent state must not be reset.
            done = torch.zeros((len(transitions), 1), device=self._device)
            with torch.no_grad():
                estimated = ask(followed[OBS2], followed.get(RHS2), done)
            next_values[unknown] = self._checked(estimated, (len(transitions), 1), ask)
        return next_values

    def ratios_and_values(
        self, ask: Callable[..., tuple[torch.Tensor, ...]], answers: int
    ) -> list[NDArray[np.float32]]:
        """Return the importance ratios of the actions, and the other results of a method, (T, E) each.

        Args:
            ask: a method of the actor, called with observations, the recurrent state before the first one, DONE and
                actions, (T, B, ...), whose first result is the log-probability of the actions.
            answers: how many tensors (T, B, 1) it returns.

        Raises:
            ValueError: a result is not one finite number for each observation.
        """
        ring, envs = self._ring, self._ring.envs
        remembers = (RHS,) in ring.layout
        # A recurrent state needs the whole rollout; otherwise parts bound the memory of activations.
        steps = ring.live_steps if remembers else max(1, _EVALUATED_AT_ONCE // envs)
        evaluated = [np.empty((ring.live_steps, envs), np.float32) for _ in range(answers)]
        for start in range(0, ring.live_steps, steps):
            part = slice(start, min(start + steps, ring.live_steps))
            transitions = np.arange((ring.oldest + part.start) * envs, (ring.oldest + part.stop) * envs)
            shape = (part.stop - part.start, envs)
            seen = ring.gather(transitions, {OBS, DONE, ACT, LOGP})
            fields = {key: in_time(value, shape) for key, value in seen.items()}
            if remembers:
                # The recurrent state does not carry over to experience of another worker.
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
        """Return a checked result, one number for each observation, as an array without the last axis."""
        ring = self._ring
        asked = f"{ring.owner}: actor.{ask.__name__}"
        if not isinstance(answer, torch.Tensor) or tuple(answer.shape) != shape:
            got = tuple(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
            raise ValueError(
                f"{asked} must return a tensor of shape {shape}, one number for each observation, got {got}; "
                f"no returns were computed"
            )
        as_stored = answer if answer.dtype is torch.float32 else answer.float()
        numbers: NDArray[np.float32] = as_stored.detach().cpu().numpy()[..., 0]
        if not ring.allow_nonfinite and not all_finite(numbers.reshape(-1)):
            where = tuple(int(axis[0]) for axis in np.nonzero(~np.isfinite(numbers)))
            raise ValueError(
                f"{asked} returned {numbers[where]} at position {where}; no returns were computed. The "
                f"network has diverged; allow_nonfinite=True would ignore that"
            )
        return numbers


def begins_of(ring: Ring) -> NDArray[np.float32]:
    """(T * E, 1): 1 where a step does not continue the episode of the step before it."""
    broken = ring.broken()
    begins = np.zeros(broken.shape, np.float32)
    begins[1:] = broken[:-1]
    return begins.reshape(-1, 1)
