"""Callbacks that evaluate elsewhere than in the test environments, or show what the policy does."""

import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.experiments.callbacks.callback import Callback, is_due
from pytorchrl.experiments.recordings.filming import film
from pytorchrl.experiments.recordings.video import refuse_missing_encoder
from pytorchrl.scheme.evaluation import MAX_EPISODE_STEPS, Evaluation, EvaluationStoppedError, evaluate
from storages.component.factory import Factory
from storages.component.hyper_parameters import Count
from storages.datasets import normalised

if TYPE_CHECKING:
    from pytorchrl.learner import Learner

# Streams of random numbers that follow from the run's seed; the scheme has those of one and two numbers.
_EVALUATION, _VIDEO = 100, 101


@dataclass(eq=False)
class EvaluateIn(Callback):
    """Evaluates in further environments, which are made for each evaluation and closed after it.

    Logs "test/NAME/return" and the like. The episodes follow from the run's seed, the name and the steps so far.

    Args:
        envs: the environments.
        name: of the evaluation.
        every: steps of the run between evaluations.
        episodes: how many; None where ``steps`` are given.
        steps: steps of an evaluation, in all environments; episodes that have ended by then count. None where
            ``episodes`` are given.
        explore: choose actions as the explorer does in training, instead of the best ones.
        max_episode_steps: the longest episode; a longer one is cut there and counts with its return up to there.

    Raises:
        ValueError: ``episodes`` and ``steps`` are both given, or neither.
    """

    envs: Factory[VecEnv]
    name: str
    every: Count
    episodes: Count | None = 10
    steps: Count | None = None
    explore: bool = False
    max_episode_steps: Count = MAX_EPISODE_STEPS

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.episodes is None) == (self.steps is None):
            raise ValueError(
                f"EvaluateIn: give either episodes or steps, and the other as None; got episodes={self.episodes} and "
                f"steps={self.steps}"
            )
        self._evaluated_at = 0

    def on_run_begin(self, learner: "Learner") -> None:
        """Make an evaluation that was stopped by a signal."""
        self.on_step(learner)

    def on_step(self, learner: "Learner") -> None:
        """Evaluate where it is due."""
        if not is_due(self.every, self._evaluated_at, learner.scheme.steps):
            return
        with suppress(EvaluationStoppedError):
            evaluation = self._evaluation(learner)
            self._evaluated_at = learner.scheme.steps
            learner.log(
                {
                    f"test/{self.name}/{metric.removeprefix('test/')}": value
                    for metric, value in evaluation.metrics.items()
                }
            )

    def state_dict(self) -> dict[str, Any]:
        """After how many steps the last evaluation was."""
        return {"evaluated_at": self._evaluated_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._evaluated_at = state["evaluated_at"]

    def _evaluation(self, learner: "Learner") -> Evaluation:
        scheme = learner.scheme
        key = (_EVALUATION, zlib.crc32(self.name.encode()), scheme.steps)
        envs = self.envs()
        try:
            return evaluate(
                scheme.algorithm,
                envs,
                self.episodes,
                np.random.SeedSequence(scheme.run_seed, spawn_key=key),
                self.max_episode_steps,
                learner.is_interrupted,
                steps=self.steps,
                explore_at=(scheme.steps, learner.target_steps) if self.explore else None,
            )
        finally:
            envs.close()


@dataclass(eq=False)
class NormalizedScore(Callback):
    """Logs "test/normalized_score" with each evaluation: 0 for the return of random actions, 1 for an expert's.

    Fu et al., "D4RL: Datasets for Deep Data-Driven Reinforcement Learning" (arXiv 2004.07219), section 5, without the
    factor of 100. A run of `train --data` has it where the data set says both returns.

    Args:
        low: return that is 0.
        high: return that is 1.

    Raises:
        ValueError: ``high`` is not above ``low``.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise ValueError(f"NormalizedScore: high must be above low, got low={self.low:g} and high={self.high:g}")

    def on_evaluation(self, learner: "Learner", evaluation: Evaluation) -> None:
        """Log the score."""
        score = normalised([evaluation.mean_return], (self.low, self.high))[0]
        learner.log({"test/normalized_score": float(score)})


@dataclass(eq=False)
class RecordVideos(Callback):
    """Films episodes of the best actions after evaluations, into ``videos`` of the run folder, and for wandb.

    One copy of the test environment is made for it, however many are evaluated in, with ``render_mode="rgb_array"``.

    Args:
        every: evaluations between videos; the first evaluation has one.
        episodes: of a video.
        longest: steps of the actor that an episode is filmed for at most.
        frames_per_second: of the video; None takes what the environment says of itself, else 30.
        suffix: ".mp4", or ".gif", which is larger.

    Raises:
        ImportError: ".mp4" needs a package that is not installed.
    """

    every: Count = 1
    episodes: Count = 1
    longest: Count = 1_000
    frames_per_second: Count | None = None
    suffix: str = ".mp4"

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_missing_encoder(self.suffix)
        self._evaluations = 0

    def on_evaluation(self, learner: "Learner", evaluation: Evaluation) -> None:
        """Film the policy, of every so many evaluations."""
        self._evaluations += 1
        if (self._evaluations - 1) % self.every == 0:
            path = learner.log_dir / "videos" / f"steps-{learner.scheme.steps:09}{self.suffix}"
            scheme = learner.scheme
            assert scheme.test_envs_factory is not None  # there was an evaluation
            seed = np.random.SeedSequence(scheme.run_seed, spawn_key=(_VIDEO, scheme.steps))
            envs, fps = scheme.test_envs_factory, self.frames_per_second
            film(path, scheme.algorithm, envs, self.episodes, self.longest, seed, frames_per_second=fps)
            learner.log_video("test/video", path)

    def state_dict(self) -> dict[str, Any]:
        """How many evaluations there were."""
        return {"evaluations": self._evaluations}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._evaluations = state["evaluations"]
