"""Components whose hyper-parameters may change while they are in use, and states that hold the changes.

A state may come from an untrusted file. Of objects, only settings are made from it, of the classes that the annotation
of the hyper-parameter admits. A function is saved by its name, and never looked up by it.
"""

import inspect
import sys
import types
import typing
import warnings
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union

from storages.component.annotations import MisfitError, conform, conform_named
from storages.component.assignments import assign, set_directly
from storages.component.declared import defaults_of, hyper_parameters_of
from storages.component.factory import Component
from storages.component.other_names import unknown_hyper_parameters
from storages.component.setting import Setting, plain, text_of

CHANGED = "changed"
"""Entry of a component's state that holds its changed hyper-parameters."""
_SETTING, _FUNCTION, _NOTHING = {"name", "hyper_parameters"}, {"callable"}, object()


class Changeable(Component):
    """A component whose hyper-parameters may change while it is in use, and whose state holds the changed ones."""

    unchangeable: ClassVar[frozenset[str]] = frozenset()
    """Hyper-parameters that are fixed after construction, and that :meth:`_update_parameters` refuses.

    Those of all base classes are among them.
    """
    _assignable: frozenset[str] = frozenset()
    """Names of the hyper-parameters; empty until the object is made, while it may set them."""
    _is_made = False
    """Whether ``__init__`` has returned, which may set attributes of any name."""
    _as_made: Mapping[str, Any] = MappingProxyType({})
    """Values with which the object was made, of the hyper-parameters that were changed since."""

    if not TYPE_CHECKING:  # for which each attribute would exist
        __setattr__, _set = assign, set_directly

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.unchangeable = frozenset().union(*(vars(base).get("unchangeable", ()) for base in cls.__mro__))

    @property
    def changed_parameters(self) -> dict[str, Any]:
        """Hyper-parameters whose values differ from those with which the object was made, by name."""
        present = {name: getattr(self, name) for name in self._as_made}
        return {name: value for name, value in present.items() if value != self._as_made[name]}

    def take_changes(self, changes: Mapping[str, Any]) -> None:
        """Take the changed hyper-parameters of another object; all others return to the values as made.

        Args:
            changes: as ``changed_parameters`` of an object of the same class.

        Raises:
            TypeError: the explorer of an algorithm does not support the output of its policy.
            ValueError: there is no such hyper-parameter, it cannot change, or a value is outside its range. Nothing
                was changed.
        """
        wanted = {**self._as_made, **changes}
        different = {name: value for name, value in wanted.items() if getattr(self, name, _NOTHING) != value}
        if different:
            self._update_parameters(different)

    def _update_parameters(self, values: Mapping[str, Any]) -> None:
        """Change hyper-parameters together, if they exist and may change; an error changes nothing.

        Raises:
            TypeError: raised by :meth:`_use_parameters`.
            ValueError: there is no such hyper-parameter, it cannot change, or the value is outside its range, or
                conflicts with others.
        """
        declared, owner = hyper_parameters_of(type(self)), type(self).__name__
        if unknown := [name for name in values if name not in declared]:
            raise ValueError(unknown_hyper_parameters(type(self), unknown, declared))
        for name in values:
            if name in self.unchangeable:
                raise ValueError(f"{owner}: {name} is fixed once the object is made; make a new one")
        new = {
            name: conform_named(value, declared[name].annotation, f"{owner}: {name}") for name, value in values.items()
        }
        before = {name: getattr(self, name, None) for name in new}
        self._set(new)
        try:
            present = {name: getattr(self, name) for name in declared if hasattr(self, name)}
            self.check_hyper_parameters(defaults_of(type(self)) | present)
            self._use_parameters()
        except (TypeError, ValueError):
            self._set(before)
            raise
        self._as_made = {**before, **self._as_made}

    def _use_parameters(self) -> None:
        """Pass changed hyper-parameters on to the parts of the object; an error must leave these as they are."""

    def _end_init(self) -> None:
        set_directly(self, {"_assignable": frozenset(hyper_parameters_of(type(self))), "_is_made": True})

    if TYPE_CHECKING:

        def _set(self, values: Mapping[str, Any]) -> None:
            """Set attributes, without changing hyper-parameters."""

    def _changes_to_save(self) -> dict[str, Any]:
        """Return the changed hyper-parameters as the entry of a state, as plain data; functions by name alone."""
        return {CHANGED: as_plain_data(self.changed_parameters, type(self))}

    def _load_changes(self, state: Mapping[str, Any]) -> None:
        """Restore the entry that :meth:`_changes_to_save` returned; states of earlier versions lack it.

        Raises:
            TypeError: as :meth:`take_changes`.
            ValueError: it is no such entry, or as :meth:`take_changes`. Nothing was changed.
        """
        if CHANGED in state:
            self.take_changes(from_plain_data(state[CHANGED], type(self), self.changed_parameters))


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
            raise ValueError(unknown_hyper_parameters(cls, [str(name)], declared))
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
