"""Contexts of a decision transformer: random windows of whole episodes, and the last steps while acting."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pytorchrl.agent.actors.layers.trajectory_network import Trajectories
from pytorchrl.agent.explorers import Exploration
from storages.transition import ACT, MASK, OBS, REW, WEIGHTS, Batch


class Windows(NamedTuple):
    """N windows of K steps within an episode; padding repeats the last step."""

    obs: Any
    """(N * K, *obs), or a dict of such, the steps of a window consecutively."""
    action: Tensor
    """(N * K, *action), as stored."""
    returns: Tensor
    """(N, K, 1): undiscounted returns-to-go."""
    first: Tensor
    """(N, 1) int64: timestep at which a window begins."""
    weight: Tensor
    """(N, K, 1): weight of each step in a loss, 0 for padding; sums to 1 without importance weights, which multiply
    it."""
    episode_returns: Tensor
    """(B, 1): returns of the batch's episodes."""

    def per_episode(self, values: Tensor) -> Tensor:
        """Return the mean (B, 1) of values (N, K, 1) over the steps of an episode's windows."""
        episodes = len(self.episode_returns)
        real = (self.weight > 0).float()
        sums = [each.view(-1, episodes, *each.shape[1:]).sum((0, 2)) for each in (real * values, real)]
        return sums[0] / sums[1]


def draw_windows(batch: Batch, length: int, each: int, generator: torch.Generator) -> Windows:
    """Draw windows that begin at uniformly drawn steps of their episodes.

    Windows are weighted by the length of their episode, because storages draw episodes with equal probability: each
    step of the data is then equally likely as a beginning.

    Args:
        batch: of whole episodes (T, B, ...), padded.
        length: K, steps of a window.
        each: windows per episode, so that N is ``each * B``.
        generator: of random numbers.
    """
    mask = batch[MASK]
    lengths = mask.sum(0).long()[:, 0].repeat(each)
    returns = (batch[REW] * mask).flip(0).cumsum(0).flip(0)
    drawn = torch.empty(len(lengths), device=mask.device).uniform_(generator=generator)
    # Rounding can make the product equal to the length.
    first = (drawn * lengths).long().minimum(lengths - 1)
    steps = first[:, None] + torch.arange(length, device=mask.device)
    is_real = steps < lengths[:, None]
    steps = steps.minimum(lengths[:, None] - 1)
    episodes = torch.arange(mask.shape[1], device=mask.device).repeat(each)[:, None]
    share = is_real * lengths[:, None]
    weight = share / share.sum()
    if WEIGHTS in batch:
        weight = weight * batch[WEIGHTS][episodes[:, 0]]
    obs, action = (_taken(batch[field], steps, episodes) for field in (OBS, ACT))
    return Windows(obs, action, returns[steps, episodes], first[:, None], weight[..., None], returns[0])


def _taken(field: Any, steps: Tensor, episodes: Tensor) -> Any:
    if isinstance(field, dict):
        return {name: _taken(part, steps, episodes) for name, part in field.items()}
    return field[steps, episodes].flatten(0, 1)


_NAMES = ("to_go", "step", "returns", "states", "actions")


@dataclass(frozen=True)
class ActingHistory:
    """The last K steps of ``E`` environments, including the present one."""

    to_go: Tensor
    """(E, 1): return-to-go of the present step."""
    step: Tensor
    """(E, 1) int64: timestep of the present step in its episode, from 0."""
    returns: Tensor
    """(E, K, 1), from the episode's first or the oldest kept step on; entries after the present step are invalid."""
    states: Tensor
    """(E, K, size)."""
    actions: Tensor
    """(E, K, A); the present step's action is not set yet."""

    @classmethod
    def continued(
        cls, exploration: Exploration, states: Tensor, length: int, action_size: int, target_return: float | Tensor
    ) -> "ActingHistory":
        """Return an exploration's history extended by the present step, or reset where an episode begins.

        Args:
            exploration: holds the history in ``state``, episode starts in ``starts``, and the last rewards in
                ``rewards``.
            states: (E, size), of the present step.
            length: K.
            action_size: A.
            target_return: return-to-go at the start of an episode.
        """
        state, rows = exploration.state, len(states)
        if "to_go" in state:
            before = cls(*(state[name] for name in _NAMES))
        else:
            blank = [states.new_zeros((rows, length, size)) for size in (1, states.shape[1], action_size)]
            before = cls(states.new_zeros((rows, 1)), states.new_full((rows, 1), -1, dtype=torch.int64), *blank)
        paid = 0.0 if exploration.rewards is None else exploration.rewards
        begins = before.step < 0 if exploration.starts is None else exploration.starts > 0
        to_go = torch.where(begins, target_return, before.to_go - paid)
        step = torch.where(begins, 0, before.step + 1)
        here, is_full = _is_present(step, length), (step >= length).unsqueeze(2)

        def moved(field: Tensor) -> Tensor:
            return torch.where(is_full, field.roll(-1, dims=1), field)

        returns = torch.where(here, to_go.unsqueeze(1), moved(before.returns))
        seen = torch.where(here, states.unsqueeze(1), moved(before.states))
        return cls(to_go, step, returns, seen, moved(before.actions))

    def steps(self, return_scale: float) -> Trajectories:
        """Return the network's inputs."""
        return Trajectories(self.returns / return_scale, self.states, self.actions, self.step - self._position)

    def present(self, of_steps: Tensor) -> Tensor:
        """Return the features (E, size) of the present step among those of all steps (E, K, size)."""
        return of_steps.take_along_dim(self._position.unsqueeze(2), dim=1)[:, 0]

    def with_action(self, action: Tensor) -> "ActingHistory":
        """Return the history with actions (E, A) for the present step."""
        here = _is_present(self.step, self.actions.shape[1])
        return replace(self, actions=torch.where(here, action.unsqueeze(1), self.actions))

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors that an exploration keeps."""
        return {name: getattr(self, name) for name in _NAMES}

    @property
    def _position(self) -> Tensor:
        """(E, 1) int64: index of the present step."""
        return self.step.clamp(max=self.returns.shape[1] - 1)


def _is_present(step: Tensor, length: int) -> Tensor:
    """Return a mask (E, K, 1) of the present step."""
    return (torch.arange(length, device=step.device) == step.clamp(max=length - 1)).unsqueeze(2)
