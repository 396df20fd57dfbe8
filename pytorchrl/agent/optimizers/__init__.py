"""Optimisers, which are hyper-parameters of algorithms."""

from pytorchrl.agent.optimizers.elementwise import SGD, ElementwiseOptimizer, RMSprop
from pytorchrl.agent.optimizers.flat_adam import Adam, AdamW
from pytorchrl.agent.optimizers.flat_parameters import FlatParameters
from pytorchrl.agent.optimizers.flat_stepper import FlatStepper
from pytorchrl.agent.optimizers.optimizer import Optimizer, Stepper
from pytorchrl.agent.optimizers.torch_optimizers import LBFGS, TorchOptimizer

__all__ = [
    "LBFGS",
    "SGD",
    "Adam",
    "AdamW",
    "ElementwiseOptimizer",
    "FlatParameters",
    "FlatStepper",
    "Optimizer",
    "RMSprop",
    "Stepper",
    "TorchOptimizer",
]
