"""Latent states of replayed steps, inferred by a recurrent state-space model, and the model's losses in them."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.bodies import flat
from pytorchrl.agent.actors.heads.two_hot import TwoHotPrediction
from pytorchrl.agent.actors.view import Observations
from pytorchrl.agent.algorithms.model_based.latent_states import Latent, divergence, drawn, joined, random_draw, where
from pytorchrl.agent.algorithms.model_based.observation_decoder import squared_error
from pytorchrl.agent.algorithms.model_based.recurrent_state_space_model import RecurrentStateSpaceModel
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import ACT, BATCH_SIZES, BURN_IN, DONE, MASK, OBS, OBS2, RHS, SORTED_INDICES


class Replayed(NamedTuple):
    """Latent states of the N steps of a batch, inferred from its observations."""

    now: Latent
    """Of OBS, in which the actions were taken."""
    inferred: Latent
    """All states: N of OBS2, followed by M of those OBS that follow no other step of the batch."""
    logits: Tensor
    """(N + M, num_latents, num_classes), of the posteriors that these were drawn from."""
    firsts: Tensor
    """(M,), the rows of those OBS."""
    is_first: Tensor
    """(M, 1), 1, or 0 for a row that is none of them, and is computed lest the host waits for the device."""


def replay(model: RecurrentStateSpaceModel, rows: Rows, generator: torch.Generator) -> Replayed:
    """Infer the latent states of a batch of sequences or episodes, from the stored recurrent states on.

    The state of the step after is inferred from OBS2, so that the last observation of an episode is learnt from, too.
    """
    batch, begins, draw = rows.batch, rows[DONE], random_draw(generator)
    if BATCH_SIZES in batch:
        sizes, stored = batch[BATCH_SIZES].tolist(), batch[RHS][batch[SORTED_INDICES]][:, model.stored_at]
    else:
        steps, width = batch[DONE].shape[:2]
        sizes, stored = [width] * steps, _stored_states(model, batch, generator)
    count, width = len(begins), sizes[0]
    before = F.pad(stored * (1 - begins[:width]), (0, 0, 0, count - width))
    begins = torch.cat([torch.ones_like(begins[:width]), begins[width:]])
    # Most steps follow another one. Of a device, the host would have to wait for the answer which do not.
    is_on_cpu = begins.device.type == "cpu"
    firsts = begins[:, 0].nonzero()[:, 0] if is_on_cpu else torch.arange(count, device=begins.device)
    of_firsts = model.posterior(before[firsts], model.encoder(_rows_of(rows[OBS], firsts)))
    initial = drawn(before[firsts], of_firsts, draw)
    stochastic = before.new_zeros((count, model.stochastic_size)).index_copy(0, firsts, initial.stochastic)

    latent, now, following, logits = None, [], [], []
    given = (begins, before, stochastic, model.encoder(rows[OBS2]), rows.action)
    for begin, recurrent, chosen, encoded, action in zip(*(torch.split(each, sizes) for each in given), strict=True):
        fresh = Latent(recurrent, chosen)
        latent = fresh if latent is None else where(begin > 0, fresh, latent)
        now.append(latent)
        recurrent_after = model.advance(latent, action)
        logits.append(model.posterior(recurrent_after, encoded))
        latent = drawn(recurrent_after, logits[-1], draw)
        following.append(latent)
    return Replayed(joined(now), joined([*following, initial]), torch.cat([*logits, of_firsts]), firsts, begins[firsts])


@torch.no_grad()
def _stored_states(model: RecurrentStateSpaceModel, batch: dict[str, Any], generator: torch.Generator) -> Tensor:
    """Return the recurrent states (B, memory size) before the first steps: those stored, or those after a burn-in."""
    if BURN_IN not in batch:
        stored: Tensor = batch[RHS][:, model.stored_at]
        return stored
    burn_in, draw = batch[BURN_IN], random_draw(generator)
    width = burn_in[DONE].shape[1]
    actions = torch.split(model.codec.from_storage(flat(burn_in[ACT])), width)
    seen = torch.split(model.encoder(flat(burn_in[OBS])), width)
    state: Tensor = burn_in[RHS][:, model.stored_at]
    for encoded, action, done, real in zip(seen, actions, burn_in[DONE], burn_in[MASK], strict=True):
        recurrent = state * (1 - done)
        latent = drawn(recurrent, model.posterior(recurrent, encoded), draw)
        # Padding in front leaves the state as it is, because it is that before the first real step.
        state = torch.where(real > 0, model.advance(latent, action), state)
    return state


class ModelLosses(NamedTuple):
    """Parts of the loss of a batch, of each inferred state, (N + M, 1), or of each step, (N, 1)."""

    observation: Tensor
    """(N + M, 1), squared error."""
    reward: Tensor
    """(N, 1), cross-entropy."""
    goes_on: Tensor
    """(N, 1), cross-entropy."""
    dynamics: Tensor
    """(N + M, 1), divergence of the prior from the posterior, which trains the prior."""
    representation: Tensor
    """(N + M, 1), the same, which trains the posterior."""


def model_losses(model: RecurrentStateSpaceModel, rows: Rows, replayed: Replayed, free_nats: float) -> ModelLosses:
    """Return the parts of the model's loss (equations 2 and 3 of DreamerV3's paper).

    Args:
        model: that is trained.
        rows: of the batch.
        replayed: the latent states of its steps.
        free_nats: divergence in nats below which its losses have no gradient.
    """
    features, observations = replayed.inferred.features, (rows[OBS2], _rows_of(rows[OBS], replayed.firsts))
    targets = [torch.cat(parts) for parts in zip(*map(model.targets, observations), strict=True)]
    states, of_steps = Observations(features), Observations(features[: len(rows)])
    reward: TwoHotPrediction = model.reward(of_steps)
    # A truncated episode would have gone on.
    goes_on = (rows.discount != 0).float()
    prior = model.prior(replayed.inferred.recurrent)
    return ModelLosses(
        squared_error(model.decoder(states), targets),
        reward.loss(reward.code(rows.reward)),
        F.binary_cross_entropy_with_logits(model.goes_on(of_steps), goes_on, reduction="none"),
        divergence(replayed.logits.detach(), prior).clamp_min(free_nats),
        divergence(replayed.logits, prior.detach()).clamp_min(free_nats),
    )


def _rows_of(observation: Any, rows: Tensor) -> Any:
    """Return some rows of observations (N, *obs), or of a dict of such."""
    if isinstance(observation, dict):
        return {name: part[rows] for name, part in observation.items()}
    return observation[rows]


def replayed_returns(rows: Rows, values: Tensor, trace_lambda: float) -> tuple[Tensor, Tensor]:
    """Return lambda returns (N, 1) of replayed steps, and 1 where they are known, else 0, (N, 1).

    ``R_t = r_t + d_t ((1 - lambda) v_{t+1} + lambda R_{t+1})`` of received rewards (DreamerV3's paper, "Critic
    learning"). They are known where an episode ends, or where the next step is in the batch; where the return of that
    is not known, its value is taken.

    Args:
        rows: of a batch of sequences or episodes.
        values: (N, 1), of OBS: the returns of sequences imagined from there.
        trace_lambda: weight of longer returns.
    """
    batch, begins = rows.batch, rows[DONE]
    sizes = batch[BATCH_SIZES].tolist() if BATCH_SIZES in batch else [batch[DONE].shape[1]] * len(batch[DONE])
    is_real = (rows.mean_weights > 0).to(begins.dtype)
    given = (rows.reward, rows.discount, values, is_real * (1 - begins))
    reward, discount, value, continues = (torch.split(each, sizes) for each in given)
    # Nothing is known of what comes after the last step of the batch.
    goes_on = following = next_value = torch.zeros_like(value[-1])
    returns, is_known = [], []
    for step in reversed(range(len(sizes))):
        target = torch.lerp(next_value, following, trace_lambda)
        returns.append(reward[step] + discount[step] * target)
        is_known.append(torch.maximum(goes_on, (discount[step] == 0).to(goes_on.dtype)))
        # Of packed episodes, the step before has as many rows or more.
        room = (0, 0, 0, sizes[max(step - 1, 0)] - sizes[step])
        best_known = torch.where(is_known[-1] > 0, returns[-1], value[step])
        following, next_value, goes_on = (F.pad(each, room) for each in (best_known, value[step], continues[step]))
    return torch.cat(returns[::-1]), torch.cat(is_known[::-1])
