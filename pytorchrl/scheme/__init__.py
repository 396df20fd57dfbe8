"""Who collects, who computes gradients, who updates."""

from pytorchrl.scheme.collector import Episode
from pytorchrl.scheme.evaluation import Evaluation, evaluate
from pytorchrl.scheme.scheme import CompositionError, Scheme

__all__ = ["CompositionError", "Episode", "Evaluation", "Scheme", "evaluate"]
