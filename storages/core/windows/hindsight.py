"""Hindsight relabelling of transitions with goals that were achieved.

Andrychowicz et al., "Hindsight Experience Replay" (arXiv 1707.01495). Nothing is stored twice: batches are relabelled
when they are made.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.core.parts import Relabeler, Segments, Window
from storages.core.ring.layout import SampleError
from storages.core.ring.ring import Ring
from storages.core.sampling.episode_tracker import EpisodeTracker
from storages.core.windows.relabeling import (
    DESIRED,
    GoalFunction,
    HerFunction,
    RelabeledRows,
    check_functions,
    check_goals,
    relabel_by_function,
    relabel_goals,
    steps_of,
    warn_of_other_rewards,
)
from storages.transition import INFO, OBS, REWC, WINDOW, Sample

Strategy: TypeAlias = Literal["future", "final", "episode", "random"]

_COMPARED_BATCHES = 10
"""Number of batches in which the rewards of the original goals are compared with those that were paid."""


class Hindsight(Relabeler):
    """Relabels a part of the rows with goals that their episodes achieved.

    Args:
        tracker: index of the ring's episodes.
        her_function: relabels whole batches; None relabels goals of dict observations.
        reward: the environments' reward function of goals; needed without a ``her_function``.
        info_keys: entries of INFO that samples must have.
    """

    def __init__(
        self,
        tracker: EpisodeTracker,
        her_function: HerFunction | None,
        reward: GoalFunction | None,
        info_keys: Sequence[str] = (),
    ) -> None:
        self.ratio: float = 0.8
        """Part of the rows that is relabelled."""
        self.strategy: Strategy = "future"
        """Where goals come from, see :class:`storages.HERBuffer`."""
        self.termination: GoalFunction | None = None
        """Termination function of goals; None keeps the recorded terminations."""
        self._tracker, self._her_function, self._reward = tracker, her_function, reward
        self._info_keys = sorted(info_keys)
        self._uncompared = _COMPARED_BATCHES
        self.changed = frozenset({(OBS, DESIRED)})

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Refuse a first step without goals, and functions that take no batches, unless there is a ``her_function``."""
        if self._tracker.is_built:
            return
        ring.init_columns(sample)
        try:
            self._check(ring)
            if self._her_function is None and self.ratio > 0:
                functions = {"compute_reward": self._reward, "her_terminated": self.termination}
                check_functions(ring, sample, functions, self._info_keys)
        except Exception:
            ring.forget_columns()
            raise

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Refuse transitions without goals."""
        if ring.layout:
            self._check(ring)

    def _check(self, ring: Ring) -> None:
        found = {path[1] for path in ring.layout if path[0] == INFO and len(path) == 2}
        if found != set(self._info_keys):
            raise SampleError(
                f"{ring.owner}: {INFO} must be a dict of {', '.join(self._info_keys) or 'nothing'}, which "
                f"info_keys names, got {', '.join(sorted(found)) or 'none'}"
            )
        if (REWC,) in ring.layout:
            raise SampleError(
                f"{ring.owner}: hindsight recomputes rewards, and no function gives their components for other goals; "
                f"leave {REWC} out, or use a buffer without hindsight, such as PERBuffer"
            )
        if self._her_function is None:
            check_goals(ring)

    def choose(
        self, generator: np.random.Generator, ring: Ring, transitions: NDArray[np.int64], segments: Segments | None
    ) -> "Goals | None":
        """Draw the steps to relabel, and their goals; all steps of an episode in a sequence have the same goal."""
        if segments is not None:
            segments = self._within_episodes(transitions, segments)
        first = transitions if segments is None else segments.first
        given = np.flatnonzero(generator.random(len(first)) < self.ratio)
        if not len(given):
            return None
        if segments is None:
            return Goals(given, self._goals(generator, ring, transitions[given]))
        # The goal of these steps is drawn as for a random one of them.
        envs = ring.envs
        lengths = (segments.last - segments.first)[given] // envs + 1
        goal_of = np.full(len(first), -1)
        goal_of[given] = self._goals(generator, ring, segments.first[given] + envs * generator.integers(0, lengths))
        reached = goal_of[segments.of_each(len(transitions))]
        rows = np.flatnonzero(reached >= 0)
        return Goals(rows, reached[rows])

    def _within_episodes(self, transitions: NDArray[np.int64], segments: Segments) -> Segments:
        """Return segments that are cut where their steps (N,) go on in another episode."""
        episodes = self._tracker.index
        if (episodes.last_of(segments.first) >= segments.last).all():
            return segments
        of = segments.of_each(len(transitions))
        begin = np.maximum(episodes.first_of(transitions), segments.first[of])
        (whole, first), of = np.unique([of, begin], axis=1, return_inverse=True)
        return Segments(first, np.minimum(episodes.last_of(first), segments.last[whole]), of.reshape(-1))

    def relabel(
        self,
        ring: Ring,
        window: Window,
        fields: dict[str, Any],
        transitions: NDArray[np.int64],
        chosen: Any,
        gamma: float,
    ) -> None:
        """Relabel observations, rewards and, where they are recomputed, terminations of the chosen steps."""
        rows, reached = chosen
        relabelled = transitions[rows]
        steps = steps_of(window.spans(ring, relabelled, gamma), ring.envs)
        batch = RelabeledRows(ring, fields, rows, steps, reached, gamma, self._info_keys)
        if self._her_function is not None:
            ends = relabel_by_function(batch, self._her_function, self._tracker.index.first_of(relabelled))
        else:
            assert self._reward is not None
            if self._uncompared:
                self._uncompared -= 1
                if warn_of_other_rewards(batch, self._reward):
                    self._uncompared = 0
            ends = relabel_goals(batch, self._reward, self.termination)
        if ends is not steps.ends and window.is_multi_step and (ends < steps.ends).any():
            lengths = window.spans(ring, transitions, gamma).lengths
            lengths[rows] = ends - steps.starts + 1
            fields[WINDOW] = lengths[:, None]

    def _goals(self, generator: np.random.Generator, ring: Ring, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Draw transitions (B,) whose OBS2 has the achieved goals to relabel with; section 4.5.

        "future": the transition or a later one of its episode. "final": the last one of its episode, the newest one
        while it runs. "episode": any of its episode. "random": any stored one.
        """
        if self.strategy == "random":
            return generator.integers(ring.start, ring.end, len(transitions))
        episodes, envs = self._tracker.index, ring.envs
        last = episodes.last_of(transitions)
        if self.strategy == "final":
            return last
        first = episodes.first_of(transitions) if self.strategy == "episode" else transitions
        return first + generator.integers(0, (last - first) // envs + 1) * envs


class Goals(NamedTuple):
    """Rows of a batch to relabel, and their goals."""

    rows: NDArray[np.int64]
    """(R,): indices of the rows."""
    reached: NDArray[np.int64]
    """(R,): transitions whose OBS2 has the new goals."""
