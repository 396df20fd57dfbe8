"""Run folders, checkpoints, callbacks, trained policies, recordings, and inspection of runs."""

from pytorchrl.experiments.callbacks import (
    ActionDifference,
    AfterSteps,
    Callback,
    EvaluateIn,
    ExportPolicy,
    FittedQEvaluation,
    InitialValue,
    LogWeights,
    NormalizedScore,
    PruneTrial,
    RecordVideos,
    ResetNetworks,
    SavePolicies,
    SetHyperParameter,
    StopAfter,
    StopAtReturn,
    StopAtSuccess,
    TDError,
    TimeParts,
)
from pytorchrl.experiments.inspection.episode_film import EpisodeFilm, film_transition
from pytorchrl.experiments.inspection.episode_seeds import ReenactmentError
from pytorchrl.experiments.inspection.transitions import TransitionDescription, describe_transition, most_surprising
from pytorchrl.experiments.policies.learnt_reward import LearntReward, RewardFunction
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy, load_policy
from pytorchrl.experiments.recordings.demonstrations import collect_demonstrations
from pytorchrl.experiments.recordings.recurrent_states import with_memory
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.run_lock import RunInUseError
from pytorchrl.experiments.runs.starting_point import start_from

__all__ = [
    "ActionDifference",
    "AfterSteps",
    "Callback",
    "CheckpointError",
    "EpisodeFilm",
    "EvaluateIn",
    "ExportPolicy",
    "FittedQEvaluation",
    "InitialValue",
    "LearntReward",
    "LogWeights",
    "NormalizedScore",
    "PruneTrial",
    "RecordVideos",
    "ReenactmentError",
    "ResetNetworks",
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
