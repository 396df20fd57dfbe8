"""Unrolling of recurrent bodies over a batch of sequences, or of whole episodes, padded or packed.

Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning" (R2D2, ICLR 2019): the
recurrent state begins with the stored one, or with zeros, and is warmed up by the steps of a burn-in, which are not
trained on.
"""

from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.bodies import Body, RecurrentBody, VectorBody, flat
from storages.transition import (
    BATCH_SIZES,
    BURN_IN,
    DONE,
    LEAD_OUT,
    MASK,
    OBS,
    OBS2,
    RHS,
    SORTED_INDICES,
    WINDOW,
    Batch,
)


class Unrolling:
    """Features and recurrent states of each body over the steps of a batch, cached.

    Args:
        batch: of sequences (T, B, ...), or of packed episodes (N, ...).
        exact: the same before observations were rounded to float32, for bodies that normalise; None where none were.
    """

    def __init__(self, batch: Batch, exact: Batch | None = None) -> None:
        self.batch = batch
        self._exact = batch if exact is None else exact
        self.is_packed = BATCH_SIZES in batch
        self._unrolled: dict[RecurrentBody, tuple[Tensor, Tensor]] = {}
        self._memoryless: dict[tuple[Body | VectorBody, str, bool], Tensor] = {}

    @property
    def next_observations(self) -> Any:
        """Field OBS2 as rows (N, *obs)."""
        return self.rows(OBS2)

    def rows(self, key: str) -> Any:
        """Return a field of all steps as rows (N, ...)."""
        return self.batch[key] if self.is_packed else flat(self.batch[key])

    def memoryless(self, body: Body | VectorBody, key: str) -> Tensor:
        """Return the features (N, size) of OBS or OBS2 by a feed-forward body."""
        where = body, key, torch.is_grad_enabled()
        if where not in self._memoryless:
            # Bodies that normalise subtract the mean before they round to float32.
            observed = (self.batch if body.normalization is None else self._exact)[key]
            self._memoryless[where] = body(observed if self.is_packed else flat(observed))
        return self._memoryless[where]

    def of(self, body: RecurrentBody) -> tuple[Tensor, Tensor]:
        """Return the features of OBS by a recurrent body, and its states.

        Returns:
            Features (N, size), with gradients where the body is trained, and the state after each step, including those
            of the lead-out, without gradients.
        """
        if body not in self._unrolled:
            # With gradients even under `no_grad`: a target that is computed first must not cache features without them.
            with torch.set_grad_enabled(body.learns):
                self._unrolled[body] = self._packed(body) if self.is_packed else self._padded(body)
        return self._unrolled[body]

    def states_before_next(self, body: RecurrentBody) -> Tensor:
        """Return the state (N, state_size) after the last step of each row's n-step window, without gradients."""
        _, states = self.of(body)
        window = self.batch[WINDOW]
        if not self.is_packed:
            steps = torch.arange(window.shape[0], device=states.device)[:, None, None]
            after = steps + window - 1
            return states.gather(0, after.expand(-1, -1, states.shape[2])).flatten(0, 1)
        sizes = self.batch[BATCH_SIZES].to(states.device)
        starts = sizes.cumsum(0) - sizes
        step = torch.repeat_interleave(torch.arange(len(sizes), device=states.device), sizes, output_size=len(window))
        position = torch.arange(len(window), device=states.device) - starts[step]
        return states[starts[step + window[:, 0] - 1] + position]

    def _padded(self, body: RecurrentBody) -> tuple[Tensor, Tensor]:
        batch = self.batch
        begin = self._begin(body, batch[DONE].shape[1], batch.get(BURN_IN, batch))
        if BURN_IN in batch:
            begin = _after_burn_in(body, begin, batch[BURN_IN])
        # Only n-step windows need the state after each step.
        features, states = body.unroll(batch[OBS], begin, batch[DONE], states=WINDOW in batch)
        states = states.detach()
        if LEAD_OUT in batch:
            lead_out = batch[LEAD_OUT]
            with torch.no_grad():
                _, more = body.unroll(lead_out[OBS], states[-1], lead_out[DONE])
            states = torch.cat([states, more])
        return features.flatten(0, 1), states

    def _packed(self, body: RecurrentBody) -> tuple[Tensor, Tensor]:
        batch, sizes = self.batch, self.batch[BATCH_SIZES]
        begin = self._begin(body, len(batch[SORTED_INDICES]), batch)[batch[SORTED_INDICES]]
        features, states = body.unroll_packed(batch[OBS], begin, batch[DONE], sizes.tolist())
        return features, states.detach()

    def _begin(self, body: RecurrentBody, episodes: int, fields: Batch) -> Tensor:
        """Return the initial states (B, state_size): those stored if the body acts, else zeros."""
        if body.stored_at is None or RHS not in fields:
            return body.initial_state(episodes, self.batch[DONE].device)
        begin: Tensor = fields[RHS][:, body.stored_at]
        return begin


@torch.no_grad()
def _after_burn_in(body: RecurrentBody, state: Tensor, burn_in: Batch) -> Tensor:
    """Return the states (B, state_size) after a burn-in, which begins with those given.

    Padding in front of a burn-in leaves a state as it is, because it is that before the first real step.
    """
    done, real = burn_in[DONE], burn_in[MASK]
    features = body.features(burn_in[OBS], done)
    # The host must not wait for a mask on the device, where steps are computed one by one anyway.
    padded = len(real) if real.device.type != "cpu" else int((real == 0).flatten(1).any(1).sum())
    for step in range(padded):
        _, after = body.memory(features[step], state, done[step])
        state = torch.where(real[step] > 0, after, state)
    if padded == len(real):
        return state
    _, states = body.memory.unroll(features[padded:], state, done[padded:], states=False)
    return states[-1]
