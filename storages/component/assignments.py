"""Assignment to the attributes of a component in use: changes of hyper-parameters, and warnings of misspelt ones."""

import difflib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from storages.component.other_names import OtherNames, hint_for

_SAME = 0.85
"""Similarity of names, from 0 to 1, above which an attribute is taken for a misspelt hyper-parameter.

It exceeds that of arguments, which are wrong in any case, while an attribute may be a user's own.
"""


def assign(component: Any, name: str, value: Any) -> None:
    """Set an attribute, called by ``__setattr__``; a hyper-parameter of a component that is made is changed.

    A new attribute with nearly the name of a hyper-parameter, or its name in another library, is set with a warning.

    Raises:
        TypeError: the value does not fit the hyper-parameter.
        ValueError: it cannot be changed, or the value is outside its range.
    """
    # An __init__ of a user's class may set its own hyper-parameters only after the object is made.
    if name in component._assignable and name in vars(component):
        component._update_parameters({name: value})
        return
    if component._is_made and not name.startswith("_") and not hasattr(component, name):
        meant = _hyper_parameter_meant(name, component._assignable, component.other_names)
        if meant:
            warnings.warn(
                f"{type(component).__name__}: there is no hyper-parameter {name!r}, so that setting it changes "
                f"nothing; {meant}",
                stacklevel=2,
            )
    object.__setattr__(component, name, value)


def set_directly(component: Any, values: Mapping[str, Any]) -> None:
    """Set attributes, without changing hyper-parameters as :func:`assign` does."""
    for name, value in values.items():
        object.__setattr__(component, name, value)


def _hyper_parameter_meant(name: str, declared: Iterable[str], other_names: OtherNames) -> str:
    known = dict.fromkeys(declared)
    if hint := hint_for(name, known, other_names):
        return hint.removesuffix(". ")
    near = difflib.get_close_matches(name, known, n=1, cutoff=_SAME)
    return f"did you mean {near[0]!r}?" if near else ""
