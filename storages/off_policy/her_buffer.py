"""Hindsight: what was reached is taken for what was meant, so that failures teach too."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch

from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    InitialError,
    NonNegative,
    UnitInterval,
    UnitIntervalOrSchedule,
    Within,
)
from storages.core.parts import Relabeler
from storages.core.windows.hindsight import GoalReward, HerFunction, Hindsight, Strategy
from storages.off_policy.ere_buffer import EREBuffer
from storages.storage import Discounting, Environments
from storages.windows import Episodes, Sequences


class HERBuffer(EREBuffer):
    """Hindsight experience replay: Andrychowicz et al., arXiv 1707.01495; composes with n-step, PER and ERE.

    A part of each batch is given another goal, one that its episode reached. Goals come from dict observations
    ("achieved_goal", "desired_goal", as gymnasium-robotics has them) and rewards from the environments' vectorised
    ``compute_reward(achieved_goal, desired_goal, info)``, ``info`` being empty, or all of it from ``her_function``.
    What is stored stays as it is; all rewards of an n-step window follow from the new goal. Whether the environment
    terminated is kept too, and not asked anew of the new goal.

    Args:
        size: capacity along the time axis; ``size * num_envs`` transitions fit, the newest stay.
        her_function: ``(obs, rhs, obs2, rhs2, rew, initial_state, final_state) -> (obs, rhs, obs2, rhs2, rew)``, called
            with whole batches (N, ...), rhs and rhs2 None without a memory; what it returns has the shapes of what it
            is given, or is None to change nothing but rewards. None relabels goals of dict observations.
        n_step: rewards in a return.
        epsilon: added to errors.
        alpha: 0 draws uniformly, 1 in proportion to errors.
        beta: how much importance weights make up for it, from 0 to 1.
        default_error: error of a transition that no update has met yet; it counts as at most the largest error of any
            update so far, once there is one. "largest": that one. "first": such transitions are drawn before others.
        eta: 1 draws from everything, less emphasises recent experience.
        cmin: transitions that are drawn from at least.
        her_ratio: part of a batch that is relabelled; the paper's ``k`` goals beside the original are ``k / (k + 1)``.
        strategy: where a goal comes from: "future" (later in the episode), "final" (its end, or its newest step while
            it runs), "episode" (anywhere in it), "random" (anywhere).
        adapt_eta: let eta move between its value here, while returns rise as fast as ever, and 1, when they do not.
        weights_over: what the largest weight is 1 of: all that is "stored", or the "batch".
        stratified: draw each row of a batch from its own part of the whole priority instead of independently.
        sequences: make batches of sequences of steps, or of whole episodes, instead of single transitions.
        prefetch: how many batches of an update phase a thread makes ahead while the learner computes with one; where
            ``alpha`` is not 0, each is drawn before the errors of the last ``prefetch`` updates are known. Functions
            that relabel are called by that thread, also for batches that nobody asks for in the end.
        keep_on_device: keep observations and hidden states on ``device`` too, and make batches of them there.
        directory: where it is kept on disk too, as :mod:`storages.persistent` says; None keeps it in memory alone.
        commit_every: steps that are missing on disk at most.
        durable: whether what is there survives a power cut as well as the death of the process.
        allow_nonfinite: keep NaN and infinity in observations, actions, rewards and values instead of refusing them.

    Raises:
        ValueError: there is no ``her_function``, and the environments have no ``compute_reward``.
    """

    follows_episodes = True

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
        default_error: InitialError = 1_000_000.0,
        eta: Annotated[float, Within(0, 1)] = 1.0,
        cmin: Count = 5_000,
        *,
        her_ratio: UnitInterval = 0.8,
        strategy: Strategy = "future",
        adapt_eta: bool = False,
        weights_over: Literal["stored", "batch"] = "stored",
        stratified: bool = True,
        sequences: Sequences | Episodes | None = None,
        prefetch: CountOrZero = 0,
        keep_on_device: bool = False,
        directory: str | Path | None = None,
        commit_every: Count = 1_000,
        durable: bool = False,
        allow_nonfinite: bool = False,
    ) -> None:
        self.her_function = her_function
        self.her_ratio = her_ratio
        self.strategy: Strategy = strategy
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
            prefetch=prefetch,
            keep_on_device=keep_on_device,
            directory=directory,
            commit_every=commit_every,
            durable=durable,
            allow_nonfinite=allow_nonfinite,
        )

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse what cannot be relabelled where it is, too."""
        super().check_hyper_parameters(hyper_parameters)
        if hyper_parameters["keep_on_device"] and hyper_parameters["her_function"] is not None:
            raise ValueError(
                f"{cls.__name__}: keep_on_device must be False with a her_function, which changes observations as "
                f"arrays; goals of dict observations (her_function=None) are relabelled with either"
            )

    def make_relabeler(self) -> Relabeler:
        """Make the part that gives rows other goals."""
        assert self._tracker is not None
        return Hindsight(self._tracker, self.her_function, self._reward)

    def configure(self) -> None:
        """Give the parts the present values of hyper-parameters."""
        super().configure()
        assert isinstance(self.relabeler, Hindsight)
        self.relabeler.ratio, self.relabeler.strategy = self.her_ratio, self.strategy

    def handle_end_of_episode(self) -> None:
        """Say that the running episodes are over although no step said so; what comes next does not continue them."""
        self._tell_of_change()
        self._ring.break_off()
