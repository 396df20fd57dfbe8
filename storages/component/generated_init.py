"""The decorator by which storages declared hyper-parameters, for classes that still have it.

It goes with the next version, as hyper-parameters are annotated attributes without it.
"""

import warnings
from typing import Any, TypeVar

from storages.component.declared import parameter as parameter

C = TypeVar("C", bound=type[Any])


def with_hyper_parameters(cls: C) -> C:
    """Return the class as it is, and warn that the decorator does nothing."""
    warnings.warn(
        f"{cls.__name__}: leave out @with_hyper_parameters; annotated attributes are hyper-parameters without it",
        DeprecationWarning,
        stacklevel=2,
    )
    return cls
