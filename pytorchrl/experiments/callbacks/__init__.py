"""Callbacks of a run: the base class :class:`Callback`, and the built-in ones."""

from pytorchrl.experiments.callbacks.callback import Callback, TrainingRun, is_due
from pytorchrl.experiments.callbacks.callback_list import AfterSteps, Callbacks, callbacks_from_config
from pytorchrl.experiments.callbacks.changing import ResetNetworks, SetHyperParameter
from pytorchrl.experiments.callbacks.evaluating import EvaluateIn, NormalizedScore, RecordVideos
from pytorchrl.experiments.callbacks.measuring import LogWeights, TimeParts
from pytorchrl.experiments.callbacks.offline import ActionDifference, FittedQEvaluation, InitialValue, TDError
from pytorchrl.experiments.callbacks.saving import ExportPolicy, SavePolicies
from pytorchrl.experiments.callbacks.stopping import PruneTrial, StopAfter, StopAtReturn, StopAtSuccess

__all__ = [
    "ActionDifference",
    "AfterSteps",
    "Callback",
    "Callbacks",
    "EvaluateIn",
    "ExportPolicy",
    "FittedQEvaluation",
    "InitialValue",
    "LogWeights",
    "NormalizedScore",
    "PruneTrial",
    "RecordVideos",
    "ResetNetworks",
    "SavePolicies",
    "SetHyperParameter",
    "StopAfter",
    "StopAtReturn",
    "StopAtSuccess",
    "TDError",
    "TimeParts",
    "TrainingRun",
    "callbacks_from_config",
    "is_due",
]
