"""Inspection of the hyper-parameters that a component class declares, as attributes or in ``__init__``."""

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, NamedTuple

Parameters = dict[str, Parameter]
_NOT_NAMED = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def hyper_parameters_of(cls: type[Any]) -> Parameters:
    """Return a class's hyper-parameters by name, annotations resolved, those of ``__init__`` before its fields."""
    return dict(_declarations_of(cls).hyper_parameters)


def fields_of(cls: type[Any]) -> Parameters:
    """Return the hyper-parameters that are annotated attributes and not parameters of an ``__init__``."""
    return dict(_declarations_of(cls).fields)


def defaults_of(cls: type[Any]) -> dict[str, Any]:
    """Return the defaults of all hyper-parameters of a class and its base classes."""
    return dict(_declarations_of(cls).defaults)


class _Declarations(NamedTuple):
    """Results of inspecting a class."""

    hyper_parameters: Parameters
    fields: Parameters
    defaults: dict[str, Any]


def _declarations_of(cls: type[Any]) -> _Declarations:
    # Inspecting a class takes longer than making most parts. Decorators replace `__init__` after a class was inspected.
    kept = _kept_declarations(cls, cls.__init__)
    if any(getattr(cls, name, Parameter.empty) is not field.default for name, field in kept.fields.items()):
        # A default was assigned to the class later.
        return _inspected(cls)
    return kept


def _inspected(cls: type[Any]) -> _Declarations:
    classes = _component_classes(cls)
    defaults = {
        name: parameter.default
        for position in reversed(range(len(classes)))
        for name, parameter in _hyper_parameters_of(cls, classes[position:]).items()
        if parameter.default is not Parameter.empty
    }
    return _Declarations(_hyper_parameters_of(cls, classes), _fields_of(cls, classes), defaults)


def _inspect(cls: type[Any], init: object) -> _Declarations:
    return _inspected(cls)


# The cast is for mypy, which considers classes unhashable.
_kept_declarations = typing.cast(
    "Callable[[type[Any], object], _Declarations]", functools.lru_cache(maxsize=1024)(_inspect)
)


def _hyper_parameters_of(cls: type[Any], classes: list[type[Any]]) -> Parameters:
    return _parameters_of_init(cls, classes) | _fields_of(cls, classes)


def _component_classes(cls: type[Any]) -> list[type[Any]]:
    # The attributes of other base classes, such as torch's modules, are not hyper-parameters.
    return [each for each in cls.__mro__ if hasattr(each, "context")]


def _fields_of(cls: type[Any], classes: list[type[Any]]) -> Parameters:
    found: Parameters = {}
    for each in reversed(classes):
        annotations = inspect.get_annotations(each)
        adds_fields = not _own_parameters(cls, each)
        for name, value in vars(each).items():
            annotation = annotations.get(name)
            if annotation is None or name.startswith("_") or is_class_variable(annotation):
                if name in found and (annotation is not None or hasattr(value, "__get__")):
                    # A method, a property or a ClassVar in its place fixes the value.
                    del found[name]
                elif name in found:
                    found[name] = found[name].replace(default=value)
            elif adds_fields or name in found:
                resolved = _resolved(each, name)
                found[name] = Parameter(name, Parameter.KEYWORD_ONLY, default=value, annotation=resolved)
    taken = {name for each in classes for name in _own_parameters(cls, each)}
    return {name: field for name, field in found.items() if name not in taken}


def _parameters_of_init(cls: type[Any], classes: list[type[Any]]) -> Parameters:
    """Return the parameters of the first of some classes, each of which extends the next, without ``cls.context``."""
    if not classes:
        return {}
    first, *extended = classes
    if "__init__" not in vars(first):
        return _with_other_defaults(first, _parameters_of_init(cls, extended))
    own = _own_parameters(cls, first)
    kinds = {parameter.kind for parameter in _signature_of(first.__init__).values()}
    if Parameter.VAR_KEYWORD not in kinds:
        return own
    inherited = _parameters_of_init(cls, extended)
    others = {name: other for name, other in inherited.items() if name not in own}
    if Parameter.VAR_POSITIONAL in kinds and all(p.kind is p.KEYWORD_ONLY for p in own.values()):
        return others | own
    return own | {name: other.replace(kind=other.KEYWORD_ONLY) for name, other in others.items()}


def _with_other_defaults(cls: type[Any], parameters: Parameters) -> Parameters:
    """Return parameters of a base class's ``__init__``, with the defaults that attributes of ``cls`` override."""
    changed, annotations = dict(parameters), inspect.get_annotations(cls)
    for name in parameters.keys() & annotations.keys() & vars(cls).keys():
        annotation = _resolved(cls, name)
        changed[name] = parameters[name].replace(default=vars(cls)[name], annotation=annotation)
    # Python allows a parameter without a default after one with a default only if it is keyword-only.
    has_default, keyword_only = False, False
    for name, parameter in changed.items():
        keyword_only = keyword_only or (has_default and parameter.default is Parameter.empty)
        has_default = has_default or parameter.default is not Parameter.empty
        if keyword_only:
            changed[name] = parameter.replace(kind=Parameter.KEYWORD_ONLY)
    return changed


def _own_parameters(cls: type[Any], each: type[Any]) -> Parameters:
    """Return the hyper-parameters in the signature of a class's own ``__init__``."""
    if "__init__" not in vars(each):
        return {}
    return {
        name: parameter
        for name, parameter in _signature_of(each.__init__).items()
        if name not in cls.context and parameter.kind not in _NOT_NAMED
    }


# Cached, because reading a signature or an annotation is slow, and base classes are inspected repeatedly.
@functools.lru_cache(maxsize=256)
def _signature_of(init: Callable[..., None]) -> Mapping[str, Parameter]:
    """Return the parameters after ``self``, annotations resolved."""
    hints = typing.get_type_hints(init, include_extras=True)
    parameters = list(inspect.signature(init).parameters.items())[1:]
    return {name: parameter.replace(annotation=hints.get(name, Any)) for name, parameter in parameters}


def is_class_variable(annotation: Any) -> bool:
    """Whether an annotation, resolved or not, is a ``ClassVar``."""
    if isinstance(annotation, str):
        return annotation.removeprefix("typing.").startswith("ClassVar")
    return annotation is typing.ClassVar or typing.get_origin(annotation) is typing.ClassVar


def _resolve(cls: type[Any], name: str) -> Any:
    """Return the resolved annotation of an attribute that a class itself declares."""
    module = sys.modules.get(cls.__module__)
    holder = types.SimpleNamespace(__annotations__={"field": inspect.get_annotations(cls)[name]})
    names = vars(module) if module is not None else {}
    return typing.get_type_hints(holder, names, dict(vars(cls)), include_extras=True)["field"]


# The cast is for mypy, which considers classes unhashable.
_resolved = typing.cast("Callable[[type[Any], str], Any]", functools.lru_cache(maxsize=1024)(_resolve))
