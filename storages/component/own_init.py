"""Hyper-parameters in the signature of an ``__init__`` that a user's class defines itself."""

import inspect
import typing
from collections.abc import Mapping
from inspect import Parameter
from typing import Any, NamedTuple

Parameters = dict[str, Parameter]


class Bound(NamedTuple):
    """The hyper-parameters of a class, and which of them its ``__init__`` takes."""

    hyper_parameters: Parameters
    passed: frozenset[str]
    """Names of those that are arguments of ``__init__``; all others are set on the object before it runs."""
    context_follows: bool
    """Whether ``__init__`` takes hyper-parameters before the context, as in PyTorchRL."""


def with_own_inits(cls: type[Any], fields: Mapping[str, Parameter], introduced: Mapping[str, type[Any]]) -> Bound:
    """Return the hyper-parameters of a class: its annotated attributes, and parameters of the ``__init__`` of users.

    An ``__init__`` without ``**kwargs`` drops the hyper-parameters that those of base classes take as arguments. Where
    it has hyper-parameters itself, annotated attributes of the same class are none.

    Args:
        cls: the class.
        fields: its annotated attributes.
        introduced: by the name of an attribute, the first class that declares it.
    """
    found, passed, names = dict(fields), frozenset[str](), list[str]()
    for each in reversed(cls.__mro__):
        if "__init__" not in vars(each) or not hasattr(each, "context") or "takes_hyper_parameters" in vars(each):
            continue
        signature = dict(list(inspect.signature(vars(each)["__init__"]).parameters.items())[1:])
        kinds, names = {one.kind for one in signature.values()}, list(signature)
        own = _own_parameters(cls, each, signature, fields)
        passes_on = Parameter.VAR_KEYWORD in kinds
        dropped = set(own)
        if own:
            dropped |= {name for name, owner in introduced.items() if owner is each}
        if not passes_on:
            dropped, passed = dropped | passed, frozenset()
        if not passes_on and cls.takes_hyper_parameters:
            dropped |= {name for name, owner in introduced.items() if owner in each.__mro__[1:]}
        inherited = {name: one for name, one in found.items() if name not in dropped}
        takes_positional = Parameter.VAR_POSITIONAL in kinds and all(p.kind is p.KEYWORD_ONLY for p in own.values())
        if own and not takes_positional:
            inherited = {name: one.replace(kind=one.KEYWORD_ONLY) for name, one in inherited.items()}
        found = own | inherited
        passed = frozenset(found) if passes_on and cls.takes_hyper_parameters else passed | own.keys()
    return Bound(found, passed, context_follows=bool(cls.context) and cls.context[0] in names[1:])


def _own_parameters(
    cls: type[Any], each: type[Any], signature: Parameters, fields: Mapping[str, Parameter]
) -> Parameters:
    """Return the hyper-parameters in the signature of a base class's ``__init__``, with the defaults of ``cls``."""
    hidden = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    own = {name: one for name, one in signature.items() if name not in cls.context and one.kind not in hidden}
    hints = typing.get_type_hints(vars(each)["__init__"], include_extras=True) if own else {}
    subclasses = cls.__mro__[: cls.__mro__.index(each)]
    for name, one in own.items():
        own[name] = one.replace(annotation=hints.get(name, Any))
        if name in fields and any(name in vars(subclass) for subclass in subclasses):
            # An attribute of a subclass changes the default.
            own[name] = own[name].replace(default=fields[name].default, annotation=fields[name].annotation)
    return own


def context_by_name(context: tuple[str, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return arguments of a call with the context by name, for an ``__init__`` that takes others before it."""
    return args[len(context) :], {**dict(zip(context, args, strict=False)), **kwargs}
