"""Hyper-parameters in the signature of an ``__init__`` that a user's class defines itself."""

import inspect
import typing
from collections.abc import Callable, Mapping
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

    An ``__init__`` without ``**kwargs`` passes on no hyper-parameters of base classes that take them as arguments, which
    are then left out. Where it has hyper-parameters itself, annotated attributes of the same class are left out, too.

    Args:
        cls: the class.
        fields: its annotated attributes.
        introduced: by the name of an attribute, the first class that declares it.
    """
    parameters, passed, names = dict(fields), frozenset[str](), list(cls.context)
    for each in reversed(cls.__mro__):
        if "__init__" not in vars(each) or not hasattr(each, "context") or "takes_hyper_parameters" in vars(each):
            continue
        signature = dict(list(inspect.signature(each.__init__).parameters.items())[1:])
        names, kinds = list(signature), {one.kind for one in signature.values()}
        own = _own_parameters(cls, each, signature, fields)
        passes_on, bases = Parameter.VAR_KEYWORD in kinds, each.__mro__[1:]
        inherited = {
            name: one
            for name, one in parameters.items()
            if name not in own
            and (passes_on or name not in passed)
            and not (own and introduced.get(name) is each)
            and not (cls.takes_hyper_parameters and not passes_on and introduced.get(name) in bases)
        }
        if Parameter.VAR_POSITIONAL not in kinds or any(one.kind is not one.KEYWORD_ONLY for one in own.values()):
            kept = inherited if not own else {k: one.replace(kind=one.KEYWORD_ONLY) for k, one in inherited.items()}
            parameters = own | kept
        else:
            parameters = inherited | own
        passed = own.keys() | (passed if passes_on else frozenset())
        if passes_on and cls.takes_hyper_parameters:
            passed = frozenset(parameters)
    follows = bool(cls.context) and names[:1] != [cls.context[0]] and cls.context[0] in names
    return Bound(parameters, frozenset(passed), follows)


def _own_parameters(
    cls: type[Any], each: type[Any], signature: Parameters, fields: Mapping[str, Parameter]
) -> Parameters:
    """Return the hyper-parameters of the signature of a base class's ``__init__``, with the defaults of ``cls``."""
    hidden = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    own = {name: one for name, one in signature.items() if name not in cls.context and one.kind not in hidden}
    hints = typing.get_type_hints(each.__init__, include_extras=True) if own else {}
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
