"""Schemes: how collection, gradient computation and updates are distributed over processes."""

from pytorchrl.agent.device import DeviceError
from pytorchrl.scheme import distributed
from pytorchrl.scheme.collector import Episode
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.scheme.compilation_notice import announce_compilation
from pytorchrl.scheme.dataset_factory import from_dataset
from pytorchrl.scheme.distributed import RayScheme, WorkerDiedError
from pytorchrl.scheme.evaluation import Evaluation, EvaluationStoppedError, evaluate
from pytorchrl.scheme.hogwild import HogwildScheme
from pytorchrl.scheme.overlap import CollectorError, Overlapped
from pytorchrl.scheme.scheme import Scheme

announce_compilation()

__all__ = [
    "CollectorError",
    "CompositionError",
    "DeviceError",
    "Episode",
    "Evaluation",
    "EvaluationStoppedError",
    "HogwildScheme",
    "Overlapped",
    "RayScheme",
    "Scheme",
    "WorkerDiedError",
    "distributed",
    "evaluate",
    "from_dataset",
]
