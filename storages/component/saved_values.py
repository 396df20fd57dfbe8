"""Changed hyper-parameters as plain data in the state of a component.

A state may come from an untrusted file. Of objects, only settings are made from it, of the classes that the annotation
of the hyper-parameter admits. A function is saved by its name, and never looked up by it.
"""

import inspect
import sys
import types
import typing
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Union

from storages.component.annotations import MisfitError, conform, conform_named
from storages.component.declared import hyper_parameters_of
from storages.component.factory import unknown_hyper_parameter
from storages.component.setting import Setting, plain, text_of

_SETTING, _FUNCTION = {"name", "hyper_parameters"}, {"callable"}


class _NotSavedError(ValueError):
    """Raised for a value of which only the name was saved."""


def as_plain_data(values: Mapping[str, Any], cls: type[Any]) -> dict[str, Any]:
    """Return hyper-parameters of a class by name, each as plain data; of one that holds functions, its name alone."""
    declared = hyper_parameters_of(cls)
    return {name: _plain(value, declared[name].annotation) for name, value in values.items()}


def from_plain_data(saved: Any, cls: type[Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that were saved as :func:`as_plain_data`, by name.

    Where only the name of a value was saved, it is that of ``present`` if there is one; otherwise it is left out, with
    a warning.

    Args:
        saved: by the name of the hyper-parameter.
        cls: the class of the component, with the names of those that cannot change, ``unchangeable``.
        present: its changed hyper-parameters now.

    Raises:
        ValueError: there is no such hyper-parameter, it cannot change, or a value is not one that it admits; the
            message names the hyper-parameter and the value.
    """
    owner, declared = cls.__name__, hyper_parameters_of(cls)
    if not isinstance(saved, Mapping):
        raise ValueError(f"{owner}: the state has {saved!r} as its changed hyper-parameters, which are values by name")
    values: dict[str, Any] = {}
    for name, data in saved.items():
        if not isinstance(name, str) or name not in declared:
            raise ValueError(unknown_hyper_parameter(cls, str(name), declared))
        what, annotation = f"{owner}: {name}", declared[name].annotation
        if name in cls.unchangeable:
            raise ValueError(
                f"{what} is fixed once the object is made, and the state has {data!r} as its changed value"
            )
        try:
            values[name] = conform_named(_made_of(data, annotation), annotation, what)
        except _NotSavedError:
            if name in present:
                values[name] = present[name]
            else:
                warnings.warn(
                    f"{what} was changed to {data['callable']}, which a state cannot hold; set it again, such as in "
                    f"on_run_begin of a callback",
                    stacklevel=2,
                )
        except MisfitError as misfit:
            raise ValueError(f"{what} {misfit}") from None
    return values


def _plain(value: Any, annotation: Any) -> Any:
    data = plain(value)
    try:
        made = conform(_made_of(data, annotation), annotation)
    except ValueError:
        return {"callable": text_of(value)}
    return data if made == value else {"callable": text_of(value)}


def _made_of(data: Any, *annotations: Any) -> Any:
    """Return the value that plain data describes, not checked against the annotations yet.

    Raises:
        MisfitError: it describes a setting that none of the annotations admits, or one with wrong fields.
    """
    if isinstance(data, list | tuple):
        items = tuple(_items_of(annotations))
        return tuple(_made_of(item, *items) for item in data)
    if not isinstance(data, Mapping):
        return data
    if data.keys() == _FUNCTION:
        raise _NotSavedError
    if data.keys() != _SETTING:
        items = tuple(_items_of(annotations))
        return {key: _made_of(item, *items) for key, item in data.items()}
    return _setting_of(data, annotations)


def _setting_of(data: Mapping[str, Any], annotations: tuple[Any, ...]) -> Setting:
    name, fields = data["name"], data["hyper_parameters"]
    admitted = [one for one in _options_of(annotations) if isinstance(one, type) and issubclass(one, Setting)]
    found = {cls for one in admitted for cls in _with_subclasses(one) if _is_named(cls, name)}
    if len(found) != 1 or not isinstance(fields, Mapping):
        raise MisfitError(f"must be a value that can be made here, got {data!r}")
    (cls,) = found
    of_fields = typing.get_type_hints(cls, include_extras=True)
    try:
        return cls(**{field: _made_of(item, of_fields.get(field, Any)) for field, item in fields.items()})
    except _NotSavedError:
        raise
    except (TypeError, ValueError) as error:
        raise MisfitError(f"must be a valid {cls.__name__}, got {data!r}: {error}") from None


def _is_named(cls: type[Setting], name: Any) -> bool:
    # A class that was defined again, such as in a notebook, is the newest of its module.
    is_newest = getattr(sys.modules.get(cls.__module__), cls.__name__, cls) is cls
    return cls.__name__ == name and is_newest and not inspect.isabstract(cls)


def _with_subclasses(cls: type[Setting]) -> Iterator[type[Setting]]:
    yield cls
    for subclass in cls.__subclasses__():
        yield from _with_subclasses(subclass)


def _options_of(annotations: Iterable[Any]) -> Iterator[Any]:
    """Yield the annotations that annotations consist of, without ranges and unions."""
    for annotation in annotations:
        origin = typing.get_origin(annotation)
        if origin is Annotated:
            yield from _options_of(typing.get_args(annotation)[:1])
        elif origin in (Union, types.UnionType):
            yield from _options_of(typing.get_args(annotation))
        else:
            yield annotation


def _items_of(annotations: Iterable[Any]) -> Iterator[Any]:
    """Yield the annotations of the items of sequences and mappings that annotations admit."""
    for annotation in _options_of(annotations):
        yield from typing.get_args(annotation)
