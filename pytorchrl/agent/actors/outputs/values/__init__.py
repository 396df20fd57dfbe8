"""Values of actions: expected returns, or distributions of returns, as quantiles or as probabilities of atoms."""

from pytorchrl.agent.actors.outputs.values.categorical import CategoricalValue, CategoricalValues
from pytorchrl.agent.actors.outputs.values.component import ComponentValue
from pytorchrl.agent.actors.outputs.values.implicit_quantile import ImplicitQuantileValue, ImplicitQuantileValues
from pytorchrl.agent.actors.outputs.values.quadratic import QuadraticValues
from pytorchrl.agent.actors.outputs.values.quantile import QuantileValue, QuantileValues, quantile_midpoints
from pytorchrl.agent.actors.outputs.values.rescaled import RescaledValue, RescaledValues
from pytorchrl.agent.actors.outputs.values.scalar import ScalarValue, ScalarValues
from pytorchrl.agent.actors.outputs.values.value import ActionValueFunction, ActionValues, Value

__all__ = [
    "ActionValueFunction",
    "ActionValues",
    "CategoricalValue",
    "CategoricalValues",
    "ComponentValue",
    "ImplicitQuantileValue",
    "ImplicitQuantileValues",
    "QuadraticValues",
    "QuantileValue",
    "QuantileValues",
    "RescaledValue",
    "RescaledValues",
    "ScalarValue",
    "ScalarValues",
    "Value",
    "quantile_midpoints",
]
