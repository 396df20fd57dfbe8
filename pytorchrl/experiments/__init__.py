"""Around a run: its folder, its checkpoints, its composition as plain data, and what its agent does."""

from pytorchrl.experiments.callbacks import (
    ActionDifference,
    Callback,
    EvaluateIn,
    FittedQEvaluation,
    InitialValue,
    LogWeights,
    NormalizedScore,
    PruneTrial,
    RecordVideos,
    SavePolicies,
    SetHyperParameter,
    StopAfter,
    StopAtReturn,
    StopAtSuccess,
    TDError,
    TimeParts,
)
from pytorchrl.experiments.checkpoint import CheckpointError
from pytorchrl.experiments.demonstrations import collect_demonstrations
from pytorchrl.experiments.inspection.episode_film import EpisodeFilm, film_transition
from pytorchrl.experiments.inspection.episode_seeds import ReenactmentError
from pytorchrl.experiments.inspection.transitions import TransitionDescription, describe_transition, most_surprising
from pytorchrl.experiments.learnt_reward import LearntReward, RewardFunction
from pytorchrl.experiments.memory_of_episodes import with_memory
from pytorchrl.experiments.run_folder import RunFolder
from pytorchrl.experiments.run_lock import RunInUseError
from pytorchrl.experiments.starting_point import start_from
from pytorchrl.experiments.trained_policy import TrainedPolicy, load_policy

__all__ = [
    "ActionDifference",
    "Callback",
    "CheckpointError",
    "EpisodeFilm",
    "EvaluateIn",
    "FittedQEvaluation",
    "InitialValue",
    "LearntReward",
    "LogWeights",
    "NormalizedScore",
    "PruneTrial",
    "RecordVideos",
    "ReenactmentError",
    "RewardFunction",
    "RunFolder",
    "RunInUseError",
    "SavePolicies",
    "SetHyperParameter",
    "StopAfter",
    "StopAtReturn",
    "StopAtSuccess",
    "TDError",
    "TimeParts",
    "TrainedPolicy",
    "TransitionDescription",
    "collect_demonstrations",
    "describe_transition",
    "film_transition",
    "load_policy",
    "most_surprising",
    "start_from",
    "with_memory",
]
