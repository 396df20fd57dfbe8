"""Hindsight: what was reached is taken for what was meant, so that failures teach too."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.episodes import Episodes
from storages.core.relabel import (
    GoalReward,
    HerFunction,
    Strategy,
    check_goals,
    choose_goals,
    relabel_by_function,
    relabel_goals,
    steps_of,
)
from storages.core.windows import windows_of
from storages.hyper_parameters import Count, NonNegative, UnitInterval, UnitIntervalOrSchedule, Within
from storages.off_policy.ere_buffer import EREBuffer
from storages.sequences import Sequences
from storages.storage import Discounting, Environments
from storages.transition import Sample


class HERBuffer(EREBuffer):
    """Hindsight experience replay: Andrychowicz et al., arXiv 1707.01495; composes with n-step, PER and ERE.

    A part of each batch is given another goal, one that its episode reached. Goals come from dict observations
    ("achieved_goal", "desired_goal", as gymnasium-robotics has them) and rewards from the environments' vectorised
    ``compute_reward(achieved_goal, desired_goal, info)``, or all of it from ``her_function``. What is stored stays as
    it is; all rewards of an n-step window follow from the new goal. Whether the environment terminated is kept too.

    Args:
        size: capacity along the time axis; ``size * num_envs`` transitions fit, the newest stay.
        her_function: ``(obs, rhs, obs2, rhs2, rew, initial_state, final_state) -> (obs, rhs, obs2, rhs2, rew)``, called
            with whole batches (N, ...), rhs and rhs2 None without a memory; None relabels goals of dict observations.
        n_step: rewards in a return.
        epsilon: added to errors.
        alpha: 0 draws uniformly, 1 in proportion to errors.
        beta: how much importance weights make up for it, from 0 to 1.
        default_error: error of a transition that no update has met yet; "largest": the largest of any update so far.
        eta: 1 draws from everything, less emphasises recent experience.
        cmin: transitions that are drawn from at least.
        her_ratio: part of a batch that is relabelled; the paper's ``k`` goals beside the original are ``k / (k + 1)``.
        strategy: where a goal comes from: "future" (later in the episode), "final" (its end), "episode" (anywhere in
            it), "random" (anywhere).
        adapt_eta: let eta move between its value here, while returns rise as fast as ever, and 1, when they do not.
        weights_over: what the largest weight is 1 of: all that is "stored", or the "batch".
        stratified: draw each row of a batch from its own part of the whole priority instead of independently.
        sequences: make batches of sequences of steps, time first, instead of single transitions.
        directory: where it is kept on disk too, as :mod:`storages.persistent` says; None keeps it in memory alone.
        commit_every: steps that are missing on disk at most.
        durable: whether what is there survives a power cut as well as the death of the process.
        allow_nonfinite: keep NaN and infinity in rewards and observations instead of refusing them.

    Raises:
        ValueError: there is no ``her_function``, and the environments have no ``compute_reward``.
    """

    def __init__(
        self,
        device: torch.device | str,
        actor: Any,
        algorithm: Discounting,
        envs: Environments | None,
        size: Count,
        her_function: HerFunction | None = None,
        n_step: Count = 1,
        epsilon: NonNegative = 0.0,
        alpha: UnitIntervalOrSchedule = 0.0,
        beta: UnitIntervalOrSchedule = 1.0,
        default_error: Annotated[float, Within(0, open=True)] | Literal["largest"] = 1_000_000.0,
        eta: Annotated[float, Within(0, 1)] = 1.0,
        cmin: Count = 5_000,
        *,
        her_ratio: UnitInterval = 0.8,
        strategy: Strategy = "future",
        adapt_eta: bool = False,
        weights_over: Literal["stored", "batch"] = "stored",
        stratified: bool = True,
        sequences: Sequences | None = None,
        directory: str | Path | None = None,
        commit_every: Count = 1_000,
        durable: bool = False,
        allow_nonfinite: bool = False,
    ) -> None:
        self.her_function = her_function
        self.her_ratio = her_ratio
        self.strategy: Strategy = strategy
        self._episodes: Episodes | None = None
        self._reward: GoalReward | None = getattr(envs, "compute_reward", None)
        if her_function is None and self._reward is None:
            raise ValueError(
                f"{type(self).__name__}: the environments have no compute_reward(achieved_goal, desired_goal, info); "
                f"give a her_function that says what a reward would have been"
            )
        super().__init__(
            device,
            actor,
            algorithm,
            envs,
            size,
            n_step,
            epsilon,
            alpha,
            beta,
            default_error,
            eta,
            cmin,
            adapt_eta=adapt_eta,
            weights_over=weights_over,
            stratified=stratified,
            sequences=sequences,
            directory=directory,
            commit_every=commit_every,
            durable=durable,
            allow_nonfinite=allow_nonfinite,
        )

    def insert_transition(self, sample: Sample) -> None:
        """Store one step, a transition for each environment.

        Raises:
            SampleError: the sample does not fit, or has no goals where there is no ``her_function``; nothing of it was
                stored.
        """
        if self._episodes is None:
            self._ring.init_columns(sample)
            if self.her_function is None:
                self._refuse_without_goals()
            self._episodes = Episodes(self._ring)
        super().insert_transition(sample)
        self._episodes.inserted()

    def handle_end_of_episode(self) -> None:
        """Say that the running episodes are over although no step said so; what comes next does not continue them."""
        self._ring.break_off()

    def _fields(
        self, transitions: NDArray[np.int64], keys: set[str] | None = None, apart: int | None = None
    ) -> dict[str, Any]:
        fields = super()._fields(transitions, keys, apart)
        # All steps of a sequence are given one goal.
        apart = apart or len(transitions)
        rows = np.flatnonzero(self._generator.random(apart) < self.her_ratio)
        if not len(rows):
            return fields
        ring, episodes, gamma = self._ring, self._episodes, self.algorithm.gamma
        assert episodes is not None
        steps_each = len(transitions) // apart
        meant = rows
        if steps_each > 1:
            # One that any of its steps may have led to.
            meant = rows + apart * self._generator.integers(0, steps_each, len(rows))
            rows = (apart * np.arange(steps_each)[:, None] + rows).ravel()
        chosen = transitions[rows]
        goals = np.tile(choose_goals(self.strategy, self._generator, ring, episodes, transitions[meant]), steps_each)
        steps = steps_of(windows_of(ring, chosen, self.n_step, gamma), ring.envs)
        if self.her_function is not None:
            initial = episodes.first_of(chosen)
            relabel_by_function(ring, fields, rows, steps, goals, gamma, self.her_function, initial)
        else:
            assert self._reward is not None
            relabel_goals(ring, fields, rows, steps, goals, gamma, self._reward)
        return fields

    def _refuse_without_goals(self) -> None:
        try:
            check_goals(self._ring)
        except ValueError:
            self._ring.forget_columns()
            raise

    @property
    def nbytes(self) -> int:
        """Bytes of memory that everything takes, free room included."""
        return super().nbytes + (self._episodes.nbytes if self._episodes is not None else 0)

    def _load_beside_the_ring(self, state: Mapping[str, Any]) -> None:
        super()._load_beside_the_ring(state)
        if self._ring.layout and self.her_function is None:
            check_goals(self._ring)
        self._episodes = Episodes(self._ring) if self._ring.layout else None
