"""Hyper-parameters as classes declare them: annotated attributes, and arguments of an ``__init__`` of a user."""

import inspect
from inspect import Parameter
from typing import Any, NamedTuple

from storages.component.annotations import annotation_of, is_class_variable
from storages.component.own_init import Bound, Parameters, with_own_inits


class _Declared:
    """An attribute that :func:`parameter` declares, which reads as its default."""

    def __init__(self, default: Any, kw_only: bool, after: str | None) -> None:
        self.default, self.after = default, after
        self.kind = Parameter.KEYWORD_ONLY if kw_only else Parameter.POSITIONAL_OR_KEYWORD

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        if self.default is Parameter.empty:
            raise AttributeError("a hyper-parameter without a default")
        return self.default


def parameter(*, default: Any = Parameter.empty, kw_only: bool = True, after: str | None = None) -> Any:
    """Declare a hyper-parameter without a default, or one that may be passed by position.

    Args:
        default: its default; without one it is required.
        kw_only: whether it is keyword-only.
        after: the hyper-parameter that it follows; the last one where None.
    """
    return _Declared(default, kw_only, after)


def hyper_parameters_of(cls: type[Any]) -> Parameters:
    """Return a class's hyper-parameters by name, annotations resolved."""
    return dict(declarations_of(cls).bound.hyper_parameters)


def defaults_of(cls: type[Any]) -> dict[str, Any]:
    """Return the defaults of all hyper-parameters of a class and its base classes."""
    return dict(declarations_of(cls).defaults)


class Declarations(NamedTuple):
    """Hyper-parameters as a class and its base classes declare them."""

    fields: Parameters
    """Annotated attributes, also those that an ``__init__`` of a user's class does not pass on."""
    bound: Bound
    """Hyper-parameters of the class."""
    defaults: dict[str, Any]
    """Defaults of both, and of attributes that the class has fixed."""


def declarations_of(cls: type[Any]) -> Declarations:
    """Return what a class and its base classes declare."""
    # Kept, because reading a class takes longer than making most parts.
    kept: Declarations | None = vars(cls).get("_declarations")
    if kept is None or any(getattr(cls, k, Parameter.empty) is not one.default for k, one in kept.fields.items()):
        # A default was assigned to the class later.
        kept = cls._declarations = _read(cls)
    return kept


def _read(cls: type[Any]) -> Declarations:
    """Read the bodies of a class and its base classes, the base classes first."""
    fields: Parameters = {}
    introduced: dict[str, type[Any]] = {}
    defaults: dict[str, Any] = {}
    # The attributes of other base classes, such as torch's modules, are not hyper-parameters.
    for each in (each for each in reversed(cls.__mro__) if hasattr(each, "context")):
        annotations = inspect.get_annotations(each)
        for name, value in vars(each).items():
            annotation = annotations.get(name)
            if name.startswith("_") or name in cls.context:
                continue
            if annotation is not None and not is_class_variable(annotation):
                fields = _with_field(fields, name, value, annotation_of(each, name))
                introduced.setdefault(name, each)
            elif name in fields and (annotation is not None or hasattr(value, "__get__")):
                # A method, a property or a ClassVar in its place fixes the value.
                del fields[name]
            elif name in fields:
                fields[name] = fields[name].replace(default=value)
            if name in fields and fields[name].default is not Parameter.empty:
                defaults[name] = fields[name].default
    fields = _in_order(fields)
    bound = with_own_inits(cls, fields, introduced)
    bound = bound._replace(hyper_parameters=_in_order(bound.hyper_parameters))
    of_init = {k: one.default for k, one in bound.hyper_parameters.items() if one.default is not Parameter.empty}
    return Declarations(fields, bound, defaults | of_init)


def _with_field(fields: Parameters, name: str, value: Any, annotation: Any) -> Parameters:
    """Return hyper-parameters with another one, or with one redeclared in its place."""
    before = fields.get(name)
    if isinstance(value, _Declared):
        field = Parameter(name, value.kind, default=value.default, annotation=annotation)
        if value.after is not None and before is None:
            place = list(fields).index(value.after) + 1
            return dict([*list(fields.items())[:place], (name, field), *list(fields.items())[place:]])
    else:
        kind = Parameter.KEYWORD_ONLY if before is None else before.kind
        field = Parameter(name, kind, default=value, annotation=annotation)
    return {**fields, name: field}


def _in_order(parameters: Parameters) -> Parameters:
    """Return parameters in an order that Python allows: none without a default follows one with, but by keyword."""
    has_default, positional, keyword_only = False, {}, {}
    for name, one in parameters.items():
        if one.kind is Parameter.KEYWORD_ONLY or (has_default and one.default is one.empty):
            keyword_only[name] = one.replace(kind=Parameter.KEYWORD_ONLY)
        else:
            positional[name], has_default = one, has_default or one.default is not one.empty
    return positional | keyword_only
