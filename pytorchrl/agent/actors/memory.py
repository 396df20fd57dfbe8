"""Recurrent layers, the memory of earlier observations of an episode."""

from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.bodies import Body

MemoryKind: TypeAlias = Literal["gru", "lstm"]


class Memory(nn.Module):
    """A GRU (Cho et al., arXiv 1406.1078) or an LSTM (Hochreiter and Schmidhuber, 1997) over features.

    Its state is one tensor (B, state_size), all zeros where an episode begins; that of an LSTM is the hidden state and
    the cell state, concatenated.

    Args:
        kind: "gru" or "lstm".
        input_size: features in.
        size: features out.
    """

    def __init__(self, kind: MemoryKind, input_size: int, size: int) -> None:
        super().__init__()
        self.cells = nn.GRU(input_size, size) if kind == "gru" else nn.LSTM(input_size, size)
        self.output_size = size
        self.state_size = size if kind == "gru" else 2 * size
        self._is_gru = kind == "gru"
        for name, parameter in self.cells.named_parameters():
            if name.startswith("weight"):
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)

    def forward(self, features: Tensor, state: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one step.

        Args:
            features: (B, input_size).
            state: (B, state_size), before the step; not changed.
            done: (B, 1) float, 1 where an episode begins: the state is reset to zeros.

        Returns:
            Features (B, size), and the state after the step (B, state_size).
        """
        state = state * (1 - done)
        weights = [parameter for parameter in self.cells._parameters.values() if parameter is not None]
        if self._is_gru:
            state = torch.gru_cell(features, state, *weights)
            return state, state
        shown, kept = torch.lstm_cell(features, state.chunk(2, dim=1), *weights)
        return shown, torch.cat([shown, kept], dim=1)

    def unroll(self, features: Tensor, state: Tensor, done: Tensor, *, states: bool = True) -> tuple[Tensor, Tensor]:
        """Compute a sequence of steps.

        Args:
            features: (T, B, input_size).
            state: (B, state_size), before the first; not changed.
            done: (T, B, 1) float, 1 where an episode begins.
            states: whether all states are needed, or only the last one, which is faster with an LSTM.

        Returns:
            Features (T, B, size), and the states after each step (T, B, state_size), or perhaps only after the last
            (1, B, state_size) where ``states`` is false.
        """
        assert features.ndim == 3, f"sequences are (T, B, features), got {tuple(features.shape)}"
        assert done.shape == (*features.shape[:2], 1), f"done must be (T, B, 1), got {tuple(done.shape)}"
        if features.device.type != "cpu" or (states and not self._is_gru):
            shown, after = zip(*self._steps(features, state, done), strict=True)
            return torch.stack(shown), torch.stack(after)
        # torch's own loop is faster but cannot reset states: it is called for each span in which no episode begins.
        begins = done[1:].flatten(1).any(1).nonzero()[:, 0] + 1
        ends = [*begins.tolist(), len(features)]
        shown_parts: list[Tensor] = []
        start = 0
        for end in ends:
            state = state * (1 - done[start])
            if self._is_gru:
                part, _ = self.cells(features[start:end], state[None])
                state = part[-1]
            else:
                before = tuple(half[None].contiguous() for half in state.chunk(2, dim=1))
                part, (last_shown, last_kept) = self.cells(features[start:end], before)
                state = torch.cat([last_shown[0], last_kept[0]], dim=1)
            shown_parts.append(part)
            start = end
        shown_all = torch.cat(shown_parts)
        return shown_all, (shown_all if self._is_gru else state[None])

    def _steps(self, features: Tensor, state: Tensor, done: Tensor) -> Any:
        for step in range(len(features)):
            shown, state = self(features[step], state, done[step])
            yield shown, state


class RecurrentBody(nn.Module):
    """A body followed by a recurrent layer.

    Args:
        body: from an observation to features.
        kind: of the recurrent layer, as of :class:`Memory`.
        size: features out.
    """

    def __init__(self, body: Body, kind: MemoryKind, size: int) -> None:
        super().__init__()
        self.body = body
        self.memory = Memory(kind, body.output_size, size)
        self.output_size = size
        self.state_size = self.memory.state_size
        self.stored_at: slice | None = None
        """Slice of its state in the stored recurrent state (RHS) of a transition; None where it is not stored."""

    @property
    def learns(self) -> bool:
        """Whether its weights require gradients."""
        return next(self.memory.parameters()).requires_grad

    def forward(self, obs: Any, state: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one step: features (B, size) of observations (B, *obs), and the next state; see :class:`Memory`."""
        features: tuple[Tensor, Tensor] = self.memory(self.body(obs), state, done)
        return features

    def unroll(self, obs: Any, state: Tensor, done: Tensor, *, states: bool = True) -> tuple[Tensor, Tensor]:
        """Compute many steps: features (T, B, size) of observations (T, B, *obs), and states; see :class:`Memory`."""
        return self.memory.unroll(self.features(obs, done), state, done, states=states)

    def features(self, obs: Any, done: Tensor) -> Tensor:
        """Return the inputs (T, B, features) of the memory for observations (T, B, *obs), of the sizes of DONE."""
        features: Tensor = self.body(flat(obs)).unflatten(0, done.shape[:2])
        return features

    def unroll_packed(self, obs: Any, state: Tensor, done: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
        """Compute packed episodes, laid out as in torch's ``PackedSequence``.

        Args:
            obs: (N, *obs): first steps of all episodes, the longest episode first, then the second steps, and so on.
            state: (B, state_size) before the first steps, the longest episode first.
            done: (N, 1).
            sizes: for each of T steps, the number of episodes that have it.

        Returns:
            Features (N, size), and the state after each step (N, state_size).
        """
        shown, states = [], []
        for features, begins in zip(torch.split(self.body(obs), sizes), torch.split(done, sizes), strict=True):
            output, state = self.memory(features, state[: len(features)], begins)
            shown.append(output)
            states.append(state)
        return torch.cat(shown), torch.cat(states)

    def initial_state(self, batch: int) -> Tensor:
        """Return (batch, state_size) zeros."""
        weight = next(self.memory.parameters())
        return weight.new_zeros((batch, self.state_size))


def flat(value: Any) -> Any:
    """Flatten (T, B, ...) to (T * B, ...), of a tensor or a dict of such."""
    if isinstance(value, dict):
        return {name: part.flatten(0, 1) for name, part in value.items()}
    return value.flatten(0, 1)
