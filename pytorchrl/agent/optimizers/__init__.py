"""Optimisers, which are hyper-parameters of algorithms."""

from pytorchrl.agent.optimizers.elementwise import SGD as SGD
from pytorchrl.agent.optimizers.elementwise import ElementwiseOptimizer as ElementwiseOptimizer
from pytorchrl.agent.optimizers.elementwise import RMSprop as RMSprop
from pytorchrl.agent.optimizers.flat_adam import Adam as Adam
from pytorchrl.agent.optimizers.flat_adam import AdamW as AdamW
from pytorchrl.agent.optimizers.flat_parameters import FlatParameters as FlatParameters
from pytorchrl.agent.optimizers.flat_stepper import FlatStepper as FlatStepper
from pytorchrl.agent.optimizers.optimizer import Optimizer as Optimizer
from pytorchrl.agent.optimizers.optimizer import Stepper as Stepper
from pytorchrl.agent.optimizers.torch_optimizers import LBFGS as LBFGS
from pytorchrl.agent.optimizers.torch_optimizers import TorchOptimizer as TorchOptimizer
