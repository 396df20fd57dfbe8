"""Hindsight experience replay (HER)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from storages.component.declared import parameter
from storages.component.hyper_parameters import UnitInterval
from storages.core.parts import Relabeler
from storages.core.windows.hindsight import Hindsight, Strategy
from storages.core.windows.relabeling import GoalFunction, HerFunction
from storages.off_policy.ere_buffer import EREBuffer
from storages.protocols import Discounting, Environments


class HERBuffer(EREBuffer):
    """Hindsight experience replay: Andrychowicz et al., arXiv 1707.01495; composes with n-step, PER and ERE.

    A part of each batch is relabelled with a goal that its episode achieved. Goals come from dict observations
    ("achieved_goal", "desired_goal", as in gymnasium-robotics) and rewards from the environments' vectorised
    ``compute_reward(achieved_goal, desired_goal, info)``, or both from ``her_function``. Stored transitions stay as
    they are; all rewards of an n-step window are recomputed for the new goal. Terminations are kept, unless a function
    recomputes them: then DONE2 and DISCOUNT follow, a window ends with the first step that terminates, and an episode
    that would not have terminated counts as truncated. With ``prefetch``, relabelling functions are called by another
    thread, even for batches that are not requested in the end.

    Args:
        her_function: ``(obs, rhs, obs2, rhs2, rew, initial_state, final_state) -> (obs, rhs, obs2, rhs2, rew)``, called
            with whole batches (N, ...), rhs and rhs2 None without a recurrent state; each result has the shape of its
            argument, or is None (but for rewards) to keep it. It may return a sixth value, terminated (N, 1), and is
            given ``info=`` where there are ``info_keys``. Batches of ``sequences`` have the stored recurrent states,
            whatever it returns for them. None relabels goals of dict observations, unlike in PyTorchRL, whose
            default is a function that changes nothing.
        her_ratio: part of a batch that is relabelled; the paper's ``k`` goals beside the original are ``k / (k + 1)``.
        strategy: where a goal comes from: "future" (later in the episode), "final" (its end, or its newest step while
            it runs), "episode" (anywhere in it), "random" (anywhere in the buffer).
        her_terminated: ``(achieved_goal, desired_goal, info) -> (N,)``, whether the environment would terminate, called
            with whole batches. None keeps the recorded terminations.
        info_keys: entries of the environments' infos that are stored with each step, as INFO of samples, and passed to
            these functions: a dict of (N, 1) or (N, *info). They must not depend on the goal.

    Raises:
        ValueError: there is no ``her_function``, and the environments have no ``compute_reward``, or a wrapper changes
            their rewards, but not those of ``compute_reward``.
    """

    her_function: HerFunction | None = parameter(default=None, kw_only=False, after="size")
    her_ratio: UnitInterval = 0.8
    strategy: Strategy = "future"
    her_terminated: Callable[..., Any] | None = None
    info_keys: Sequence[str] = ()

    unchangeable = frozenset({"her_function", "info_keys"})
    follows_episodes = True

    def build(self, device: torch.device | str, actor: Any, algorithm: Discounting, envs: Environments | None) -> None:
        """Make the parts; hyper-parameters are set already."""
        # Environments may refuse to name a function that would compute other rewards than they pay.
        asked = self.her_function is None
        self._reward: GoalFunction | None = getattr(envs, "compute_reward", None) if asked else None
        if asked and self._reward is None:
            raise ValueError(
                f"{type(self).__name__}: the environments have no compute_reward(achieved_goal, desired_goal, info); "
                f"give a her_function that recomputes rewards"
            )
        super().build(device, actor, algorithm, envs)

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse contradictory relabelling functions, and those that cannot work on a device cache, too."""
        super().check_hyper_parameters(hyper_parameters)
        if hyper_parameters["her_terminated"] is not None and hyper_parameters["her_function"] is not None:
            raise ValueError(
                f"{cls.__name__}: her_terminated applies to the goals of dict observations only; let her_function "
                f"return terminations, as its sixth value"
            )
        if hyper_parameters["keep_on_device"] and hyper_parameters["her_terminated"] is not None:
            raise ValueError(
                f"{cls.__name__}: keep_on_device must be False with her_terminated, which truncates windows and so "
                f"changes their next observations in host memory"
            )
        if hyper_parameters["keep_on_device"] and hyper_parameters["her_function"] is not None:
            raise ValueError(
                f"{cls.__name__}: keep_on_device must be False with a her_function, which changes observations in "
                f"host memory; goals of dict observations (her_function=None) can be relabelled with either value"
            )

    def handle_end_of_episode(self) -> None:
        """Do nothing, at the end of an episode, where PyTorchRL's relabels its transitions.

        Goals are chosen when a batch is made, and samples tell where episodes end (DONE2 and TRUNC2 of the last one,
        DONE of the next); :meth:`end_episode` truncates those that no sample ends.
        """

    def make_relabeler(self) -> Relabeler:
        """Make the hindsight relabeler."""
        assert self._tracker is not None
        return Hindsight(self._tracker, self.her_function, self._reward, self.info_keys)

    def configure(self) -> None:
        """Pass the current hyper-parameters on to the parts."""
        super().configure()
        assert isinstance(self.relabeler, Hindsight)
        self.relabeler.ratio, self.relabeler.strategy = self.her_ratio, self.strategy
        self.relabeler.termination = self.her_terminated
