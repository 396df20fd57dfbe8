"""Recurrent layers, the memory of earlier observations of an episode."""

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor, nn

MemoryKind: TypeAlias = Literal["gru", "lstm"]


class RecurrentModule(Protocol):
    """What bodies need of a memory, which is a module."""

    @property
    def output_size(self) -> int:
        """Features out."""

    @property
    def state_size(self) -> int:
        """Numbers of its state."""

    def __call__(self, features: Tensor, state: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one step; see :meth:`Memory.forward`."""

    def unroll(self, features: Tensor, state: Tensor, done: Tensor, *, states: bool = True) -> tuple[Tensor, Tensor]:
        """Compute a sequence of steps; see :meth:`Memory.unroll`."""


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
        check_sequence(features, done)
        if features.device.type != "cpu" or (states and not self._is_gru):
            return unrolled_step_by_step(self, features, state, done)
        shown_parts: list[Tensor] = []
        for start, end in spans_of_episodes(done):
            state = state * (1 - done[start])
            if self._is_gru:
                part, _ = self.cells(features[start:end], state[None])
                state = part[-1]
            else:
                before = tuple(half[None].contiguous() for half in state.chunk(2, dim=1))
                part, (last_shown, last_kept) = self.cells(features[start:end], before)
                state = torch.cat([last_shown[0], last_kept[0]], dim=1)
            shown_parts.append(part)
        shown_all = torch.cat(shown_parts)
        return shown_all, (shown_all if self._is_gru else state[None])


def check_sequence(features: Tensor, done: Tensor) -> None:
    """Assert that a sequence is (T, B, features), and DONE (T, B, 1)."""
    assert features.ndim == 3, f"sequences are (T, B, features), got {tuple(features.shape)}"
    assert done.shape == (*features.shape[:2], 1), f"done must be (T, B, 1), got {tuple(done.shape)}"


def spans_of_episodes(done: Tensor) -> list[tuple[int, int]]:
    """Return begin and end of each span of steps, one span after each beginning of an episode.

    Loops of torch are faster than single steps, but cannot reset states: they are called for each span.

    Args:
        done: (T, B, 1) float, 1 where an episode begins; on a CPU, because the host waits for it.
    """
    begins = (done[1:].flatten(1).any(1).nonzero()[:, 0] + 1).tolist()
    return list(zip([0, *begins], [*begins, len(done)], strict=True))


Step: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def unrolled_step_by_step(step: Step, features: Tensor, state: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
    """Compute :meth:`Memory.unroll` by single steps, with the state after each."""
    shown, states = [], []
    for number in range(len(features)):
        output, state = step(features[number], state, done[number])
        shown.append(output)
        states.append(state)
    return torch.stack(shown), torch.stack(states)
