"""Assignment to the hyper-parameters of an algorithm in use, which its state keeps as any other change of them."""

from collections.abc import Mapping
from typing import Any


def assign(algorithm: Any, name: str, value: Any) -> None:
    """Set an attribute, called by ``__setattr__``; a hyper-parameter of an algorithm that is made is changed.

    Raises:
        TypeError: the value does not fit the hyper-parameter.
        ValueError: it cannot be changed, or the value is outside its range.
    """
    # An __init__ of a user's class may set its own hyper-parameters only after the object is made.
    if name in algorithm._assignable and name in vars(algorithm):
        algorithm._update_parameters({name: value})
    else:
        object.__setattr__(algorithm, name, value)


def set_directly(algorithm: Any, values: Mapping[str, Any]) -> None:
    """Set attributes, without changing hyper-parameters as :func:`assign` does."""
    for name, value in values.items():
        object.__setattr__(algorithm, name, value)
