"""Learning from sequences, and from whole episodes: what a network with a memory makes of a batch of them.

Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning" (R2D2, ICLR 2019): memory
begins with what was stored, or with nothing, and is warmed up by the steps of a burn-in, from which nothing is learnt.
"""

import torch
from torch import Tensor

from pytorchrl.agent.actors.memory import RecurrentBody, flat
from storages.transition import BURN_IN, DONE, LEAD_OUT, MASK, OBS, OBS2, RHS, WEIGHTS, WINDOW, Batch


def unrolled(body: RecurrentBody, batch: Batch, *, stored: bool) -> tuple[Tensor, Tensor]:
    """What a body makes of a batch of sequences.

    Args:
        body: of the network.
        batch: of sequences (T, B, ...).
        stored: begin with the stored memory, which is this body's; else with none.

    Returns:
        Features (T, B, size), with a gradient, and the memory after each step (T + n - 1, B, state_size), that of the
        steps that lead out included, without.
    """
    begin = body.initial_state(batch[DONE].shape[1])
    if BURN_IN in batch:
        burn_in = batch[BURN_IN]
        with torch.no_grad():
            _, states = body.unroll(burn_in[OBS], burn_in[RHS] if stored else begin, burn_in[DONE], states=False)
        begin = states[-1]
    elif stored:
        begin = batch[RHS]
    features, states = body.unroll(batch[OBS], begin, batch[DONE])
    states = states.detach()
    if LEAD_OUT in batch:
        lead_out = batch[LEAD_OUT]
        with torch.no_grad():
            _, more = body.unroll(lead_out[OBS], states[-1], lead_out[DONE])
        states = torch.cat([states, more])
    return features, states


@torch.no_grad()
def features_of_next(body: RecurrentBody, batch: Batch, states: Tensor) -> Tensor:
    """(T * B, size): what a body makes of OBS2, having seen what led up to it.

    Args:
        body: of the network.
        batch: of sequences (T, B, ...).
        states: its memory after each step, as :func:`unrolled` returns it.
    """
    steps = batch[WINDOW].shape[0]
    after = torch.arange(steps, device=states.device)[:, None, None] + batch[WINDOW] - 1
    before_next = states.gather(0, after.expand(-1, -1, states.shape[2])).flatten(0, 1)
    features: Tensor = body(flat(batch[OBS2]), before_next, torch.zeros_like(before_next[:, :1]))[0]
    return features


def weights_of_steps(batch: Batch) -> Tensor:
    """(T * B, 1): what each step counts in a mean over all real ones, importance weights in it."""
    mask: Tensor = batch[MASK]
    weights: Tensor = (mask * batch[WEIGHTS] / mask.sum()).flatten(0, 1)
    return weights
