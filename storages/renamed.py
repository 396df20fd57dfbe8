"""Names that PyTorchRL's storages have for parameters and methods, beside those of storages here."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from storages.other_names import STORAGE_ARGUMENTS, STORAGE_ATTRIBUTES
from storages.stored_fields import append_values

T = TypeVar("T")
_ADAPTED = "_takes_both_spellings"


def missing_attribute(owner: str, name: str) -> AttributeError:
    """Return the error for an attribute that a storage does not have."""
    hint = f": {STORAGE_ATTRIBUTES[name]}" if name in STORAGE_ATTRIBUTES else ""
    return AttributeError(f"{owner!r} object has no attribute {name!r}{hint}", name=name)


def both_spellings(method: Callable[..., T]) -> Callable[..., T]:
    """Let keyword arguments of a method have the names here or those of PyTorchRL, whichever it has itself.

    A call that names a parameter twice, or not at all, raises a TypeError with both names.
    """
    pairs = STORAGE_ARGUMENTS.get(method.__name__, {})
    if getattr(method, _ADAPTED, False):
        return method
    parameters = inspect.signature(method).parameters
    own_names = {
        other: own
        for theirs, ours in pairs.items()
        for own, other in ((ours, theirs), (theirs, ours))
        if own in parameters and other not in parameters
    }
    if not own_names:
        return method
    order = list(parameters)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> T:
        place = f"{type(args[0]).__name__}.{method.__name__}" if args else method.__name__
        positional = order[: len(args)]
        for other, own in own_names.items():
            if other in kwargs and (own in kwargs or own in positional):
                raise TypeError(f"{place}: {own} and {other} are one parameter; give one of them")
        kwargs = {own_names.get(name, name): value for name, value in kwargs.items()}
        for other, own in own_names.items():
            if own not in kwargs and own not in positional and parameters[own].default is inspect.Parameter.empty:
                raise TypeError(f"{place}: {own}, which may be named {other}, is missing")
        return method(*args, **kwargs)

    setattr(call, _ADAPTED, True)
    return call


def appends_to_dict(method: Callable[..., int]) -> Callable[..., int]:
    """Let a method that overwrites a field append values to a dict instead, where it is called as in PyTorchRL."""
    overwriting, appending = inspect.signature(method), inspect.signature(append_values)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> int:
        place = f"{type(self).__name__}.{method.__name__}"
        appends = not kwargs.keys().isdisjoint(appending.parameters) or (bool(args) and not isinstance(args[0], str))
        try:
            if appends:
                appending.bind(*args, **kwargs)
            else:
                overwriting.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"{place}: {error}; {place}(key, values, start=0) overwrites a field, and "
                f"{place}(tensor_storage, tensor_key, tensor_values) appends to a dict"
            ) from None
        if not appends:
            return method(self, *args, **kwargs)
        return append_values(*args, **kwargs)

    return call
