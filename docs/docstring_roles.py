"""Docstrings on the site: roles as code, and all hyper-parameters with their types and defaults.

A docstring describes hyper-parameters, which are attributes, as arguments; what a reader of the source sees at the
attribute is read from the class. A component's are listed with those that it inherits, and with its own defaults.
"""

import importlib
import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

import griffe

from docs.algorithm_parameters import rows_of, shown, values
from storages.component.declared import hyper_parameters_of
from storages.component.factory import Component

ROLE = re.compile(r":\w+:`~?([^`]*)`")
OPTIONS: Mapping[str, Any] = {"warnings": False}
"""Of the parser; a test compares docstrings with hyper-parameters."""


class PlainRoles(griffe.Extension):
    """Shows what a role refers to by its name, and the types and defaults of hyper-parameters."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that is shown."""
        if not obj.docstring:
            return
        obj.docstring.value = ROLE.sub(r"`\1`", obj.docstring.value)
        if not obj.is_class:
            return
        sections = obj.docstring.parse("google", **OPTIONS)
        declared = declared_by(obj.path)
        for section in sections:
            if section.kind is griffe.DocstringSectionKind.parameters:
                for parameter in section.value:
                    _complete(parameter, declared)
        if hyper_parameters := list(_hyper_parameters(obj.path)):
            sections = _with_parameters(sections, hyper_parameters)
        # What the site's templates read is computed once.
        vars(obj.docstring)["parsed"] = sections


def declared_by(path: str) -> dict[str, tuple[str, str | None]]:
    """Return the type and the default, None where it is required, of each hyper-parameter or field of a class."""
    if (cls := _class_of(path)) is None:
        return {}
    if issubclass(cls, Component):
        found = {name: (one.annotation, one.default) for name, one in hyper_parameters_of(cls).items()}
    elif is_dataclass(cls):
        hints = typing.get_type_hints(cls, include_extras=True)
        found = {field.name: (hints[field.name], _default_of(field)) for field in fields(cls)}
    else:
        return {}
    return {
        name: (values(annotation).replace("`", ""), None if default is inspect.Parameter.empty else shown(default))
        for name, (annotation, default) in found.items()
    }


def _class_of(path: str) -> type[Any] | None:
    module, _, name = path.rpartition(".")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        # Of a class within another, or of a package that is not installed.
        return None
    return cls if inspect.isclass(cls) else None


def _hyper_parameters(path: str) -> Iterator[griffe.DocstringParameter]:
    """All hyper-parameters of a component; those that it inherits say of which class."""
    cls = _class_of(path)
    if cls is None or not issubclass(cls, Component):
        return
    declared = declared_by(path)
    for name, _default, _values, meaning, base in rows_of([cls]):
        name, base = name.strip("`"), base.strip("`")
        kind, default = declared[name]
        text = meaning if base == cls.__name__ else f"{meaning} Of `{base}`."
        kind = kind if default else f"{kind}, required"
        yield griffe.DocstringParameter(name=name, description=text, annotation=kind, value=default)


def _with_parameters(
    sections: list[griffe.DocstringSection], parameters: list[griffe.DocstringParameter]
) -> list[griffe.DocstringSection]:
    """The sections of a docstring, with these parameters instead of those that it describes."""
    others = [section for section in sections if section.kind is not griffe.DocstringSectionKind.parameters]
    described = {each.name for each in parameters}
    for section in sections:
        if section.kind is griffe.DocstringSectionKind.parameters:
            # Arguments of an ``__init__`` of its own come first.
            parameters = [*(each for each in section.value if each.name not in described), *parameters]
    texts = [section for section in others if section.kind is griffe.DocstringSectionKind.text]
    rest = [section for section in others if section not in texts]
    return [*texts, griffe.DocstringSectionParameters(parameters), *rest]


def _default_of(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is MISSING else field.default


def _complete(parameter: griffe.DocstringParameter, declared: Mapping[str, tuple[str, str | None]]) -> None:
    """Set the type and the default of a described hyper-parameter, unless its signature has them."""
    if parameter.annotation is None and parameter.name in declared:
        parameter.annotation, default = declared[parameter.name]
        if default is not None:
            parameter.value = default
