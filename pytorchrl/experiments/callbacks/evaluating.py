"""Callbacks for further evaluations, normalised scores and videos."""

import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.global_generators import seeding_processes
from pytorchrl.experiments.callbacks.callback import Callback, TrainingRun, is_due, refuse_without_evaluations
from pytorchrl.experiments.recordings.filming import check_renders, film
from pytorchrl.experiments.recordings.video import refuse_missing_encoder
from pytorchrl.run_files import RunFiles
from pytorchrl.scheme.evaluation import MAX_EPISODE_STEPS, Evaluation, EvaluationStoppedError, evaluate
from storages.component.factory import Factory
from storages.component.hyper_parameters import Count
from storages.datasets import normalised

# First spawn keys of seeds derived from the run's seed; the scheme's keys are smaller numbers.
_EVALUATION, _VIDEO = 100, 101


@dataclass(eq=False)
class EvaluateIn(Callback):
    """Evaluates in further environments, which are made for each evaluation and closed after it.

    Logs "test/NAME/return" and the like. The seed is derived from the run's seed, the name and the steps so far.

    Args:
        envs: the environments.
        name: of the evaluation.
        every: steps of the run between evaluations.
        episodes: how many; None where ``steps`` is given.
        steps: steps of an evaluation, in all environments; the episodes that end within them count. None where
            ``episodes`` is given.
        explore: act with the exploration of training, instead of deterministically.
        max_episode_steps: the longest episode; a longer one is truncated there and counts with its return so far.

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
        if not self.name or "/" in self.name:
            raise ValueError(f"EvaluateIn: name must be a word without slashes, got {self.name!r}")
        self._evaluated_at = 0

    def on_run_begin(self, learner: TrainingRun) -> None:
        """Repeat an evaluation that a signal stopped."""
        self.on_step(learner)

    def on_step(self, learner: TrainingRun) -> None:
        """Evaluate if it is due."""
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
        """Return the steps at the last evaluation."""
        return {"evaluated_at": self._evaluated_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._evaluated_at = state["evaluated_at"]

    def _evaluation(self, learner: TrainingRun) -> Evaluation:
        scheme = learner.scheme
        key = (_EVALUATION, zlib.crc32(self.name.encode()), scheme.steps)
        seed = np.random.SeedSequence(scheme.run_seed, spawn_key=key)
        with seeding_processes(np.random.SeedSequence(scheme.run_seed, spawn_key=(*key, 0))), self.envs() as envs:
            return evaluate(
                scheme.algorithm,
                envs,
                self.episodes,
                seed,
                self.max_episode_steps,
                learner.is_interrupted,
                steps=self.steps,
                explore_at=(scheme.steps, learner.target_steps) if self.explore else None,
            )


@dataclass(eq=False)
class NormalizedScore(Callback):
    """Logs "test/normalized_score" with each evaluation: 0 for the return of random actions, 1 for an expert's.

    Fu et al., "D4RL: Datasets for Deep Data-Driven Reinforcement Learning" (arXiv 2004.07219), section 5, without the
    factor of 100. `train --data` adds it if the data set contains both reference returns.

    Args:
        low: return with the score 0.
        high: return with the score 1.

    Raises:
        ValueError: ``high`` is not above ``low``.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise ValueError(f"NormalizedScore: high must be above low, got low={self.low:g} and high={self.high:g}")

    def on_evaluation(self, learner: TrainingRun, evaluation: Evaluation) -> None:
        """Log the score."""
        score = normalised([evaluation.mean_return], (self.low, self.high))[0]
        learner.log({"test/normalized_score": float(score)})


@dataclass(eq=False)
class RecordVideos(Callback):
    """Records videos of deterministic episodes after evaluations, in ``videos`` of the run folder and for loggers.

    For each video, a single copy of the test environment is made, with ``render_mode="rgb_array"``.

    Args:
        every: evaluations between videos; the first evaluation has one.
        episodes: number of episodes in a video.
        longest: maximum length of an episode, in steps of the actor.
        frames_per_second: of the video; None uses the environment's ``render_fps``, else 30.
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

    def on_run_begin(self, learner: TrainingRun) -> None:
        """Refuse a run that makes no evaluations, or whose environment cannot be rendered."""
        refuse_without_evaluations(self, learner)
        if learner.scheme.test_envs_factory is not None:
            # Now instead of after the hours until an evaluation.
            check_renders(learner.scheme.test_envs_factory)

    def on_evaluation(self, learner: TrainingRun, evaluation: Evaluation) -> None:
        """Record a video, if one is due."""
        self._evaluations += 1
        if (self._evaluations - 1) % self.every == 0:
            path = RunFiles(learner.log_dir).video_file(learner.scheme.steps, self.suffix)
            scheme = learner.scheme
            assert scheme.test_envs_factory is not None  # there was an evaluation
            seed = np.random.SeedSequence(scheme.run_seed, spawn_key=(_VIDEO, scheme.steps))
            envs, fps = scheme.test_envs_factory, self.frames_per_second
            film(path, scheme.algorithm, envs, self.episodes, self.longest, seed, frames_per_second=fps)
            learner.log_video("test/video", path)

    def state_dict(self) -> dict[str, Any]:
        """Return the number of evaluations so far."""
        return {"evaluations": self._evaluations}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._evaluations = state["evaluations"]
