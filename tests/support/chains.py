"""Chains of states whose optimal policies are known by dynamic programming, and a check of learnt policies."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Literal, TypeAlias

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.explorers import Exploration
from tests.support.by_hand import exploring

Seen: TypeAlias = Literal["fully", "partly"]
Ends: TypeAlias = Literal["episodic", "endless"]
State: TypeAlias = tuple[int, int]
"""Position and cue."""
Outcome: TypeAlias = tuple[float, State, float, bool]
"""Probability, next state, reward, and whether the episode ends."""

FORWARD = (1, 0, 1)
"""The action that leads forward from each position but the last, where the cue is; the other action leads back."""
LAST, MIDDLE = len(FORWARD), len(FORWARD) // 2
MIDDLE_REWARD, LAST_REWARD = 0.1, 1.0
GAMMA = 0.8
STATES: tuple[State, ...] = tuple(product(range(LAST + 1), range(2)))


def transitions(ends: Ends) -> Mapping[State, tuple[list[Outcome], list[Outcome]]]:
    """The outcomes of each action.

    In the middle, going back gives a small reward at once; at the end, the action named by the cue gives a large one.
    Both end the episode, or lead to the first position of an endless one, with a new cue.
    """
    table = {}
    for position, cue in STATES:
        outcomes = []
        for action in range(2):
            forward = action == (cue if position == LAST else FORWARD[position])
            if position == LAST:
                outcomes.append(_over(LAST_REWARD if forward else 0.0, cue, ends))
            elif position == MIDDLE and not forward:
                outcomes.append(_over(MIDDLE_REWARD, cue, ends))
            else:
                outcomes.append([(1.0, (max(position + (1 if forward else -1), 0), cue), 0.0, False)])
        table[position, cue] = (outcomes[0], outcomes[1])
    return table


def _over(reward: float, cue: int, ends: Ends) -> list[Outcome]:
    if ends == "episodic":
        return [(1.0, (0, cue), reward, True)]
    return [(0.5, (0, new), reward, False) for new in range(2)]


def best_actions(ends: Ends) -> dict[State, int]:
    """The optimal policy under full observation, by value iteration; no two actions have nearly equal values."""
    table, values = transitions(ends), dict.fromkeys(STATES, 0.0)
    for _ in range(500):
        of_actions = {state: [_expected(outcomes, values) for outcomes in table[state]] for state in STATES}
        values = {state: max(both) for state, both in of_actions.items()}
    assert all(abs(one - other) > 0.05 for one, other in of_actions.values())
    return {state: int(np.argmax(both)) for state, both in of_actions.items()}


def _expected(outcomes: list[Outcome], values: Mapping[State, float]) -> float:
    return sum(p * (reward + (0 if over else GAMMA * values[after])) for p, after, reward, over in outcomes)


def observation(state: State, seen: Seen) -> NDArray[np.float32]:
    """One-hot position and one-hot cue; under partial observation, the cue only at the first position."""
    position, cue = state
    vector = np.zeros(LAST + 3, np.float32)
    vector[position] = 1
    if seen == "fully" or position == 0:
        vector[LAST + 1 + cue] = 1
    return vector


class Chain(gym.Env[Any, Any]):
    """Starts at the first position, with a random cue; is truncated after a number of steps.

    Its infos have the two terms of the reward, "middle" and "last".

    Args:
        seen: whether the cue is observed fully, or only at the first position.
        ends: whether a reward ends the episode.
        real: whether actions are real numbers from 1 to 3, whose lower and upper half stand for the two actions.
        several: whether actions are two numbers, 0 or 1, whose sum is odd for the second of the two actions.
        limit: steps until an episode is truncated.
    """

    observation_space = spaces.Box(0, 1, (LAST + 3,), np.float32)

    def __init__(
        self,
        seen: Seen = "fully",
        ends: Ends = "episodic",
        real: bool = False,
        limit: int = 15,
        several: bool = False,
    ) -> None:
        space = spaces.MultiDiscrete([2, 2]) if several else spaces.Discrete(2)
        self.action_space = spaces.Box(1.0, 3.0, (1,), np.float32) if real else space
        self._seen, self._limit = seen, limit
        self._table = transitions(ends)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._state: State = (0, int(self.np_random.integers(2)))
        self._steps = 0
        return observation(self._state, self._seen), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        outcomes = self._table[self._state][_choices(np.atleast_1d(action)[None])[0]]
        chosen = self.np_random.choice(len(outcomes), p=[probability for probability, *_ in outcomes])
        _, self._state, reward, terminated = outcomes[chosen]
        self._steps += 1
        truncated = not terminated and self._steps == self._limit
        info = {"middle": MIDDLE_REWARD, "last": LAST_REWARD}
        terms = {name: reward if reward == each else 0.0 for name, each in info.items()}
        return observation(self._state, self._seen), reward, terminated, truncated, terms


def mistakes(algorithm: Algorithm, seen: Seen, ends: Ends) -> int:
    """Number of states with a wrong greedy action; under partial observation, number of cues with a wrong action."""
    best = best_actions(ends)
    if seen == "fully":
        exploration = exploring(algorithm, len(STATES), deterministic=True)
        seen_at_once = np.stack([observation(state, seen) for state in STATES])
        actions = _greedy(algorithm, seen_at_once, None, exploration, first=True)[0]
        return sum(action != best[state] for action, state in zip(actions, STATES, strict=True))
    return sum(_has_mistake(algorithm, cues, best, seen) for cues in _cues(ends))


def _cues(ends: Ends) -> Iterator[tuple[int, ...]]:
    """The possible cues of the rounds of one episode."""
    return product(range(2), repeat=1 if ends == "episodic" else 2)


def _has_mistake(algorithm: Algorithm, cues: tuple[int, ...], best: dict[State, int], seen: Seen) -> int:
    memory, first = algorithm.actor.initial_memory(1), True
    # Kept for the episode, for algorithms whose actions depend on what it holds.
    exploration = exploring(algorithm, 1, deterministic=True)
    for cue in cues:
        for position in range(LAST + 1):
            actions, memory = _greedy(algorithm, observation((position, cue), seen)[None], memory, exploration, first)
            if actions[0] != best[position, cue]:
                return 1
            first = False
    return 0


def _greedy(
    algorithm: Algorithm, obs: NDArray[np.float32], memory: Any, exploration: Exploration, first: bool
) -> tuple[list[int], Any]:
    exploration.starts = done = torch.full((len(obs), 1), float(first))
    step = algorithm.acting_step(torch.from_numpy(obs), memory, done, exploration)
    return _choices(step.env_action.numpy()), step.rhs


def _choices(actions: NDArray[Any]) -> list[int]:
    """The index, of the two actions, that each action of an environment (N, n) stands for."""
    is_real = np.issubdtype(actions.dtype, np.floating)
    which: list[int] = (actions[:, 0] >= 2 if is_real else actions.sum(1) % 2).astype(int).tolist()
    return which
