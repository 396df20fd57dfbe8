"""Components whose hyper-parameters may change while they are in use."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from storages.component.annotations import conform_named
from storages.component.declared import defaults_of, hyper_parameters_of
from storages.component.factory import Component, unknown_hyper_parameter
from storages.component.saved_values import as_plain_data, from_plain_data

CHANGED = "changed"
"""Entry of a component's state that holds its changed hyper-parameters."""


class Changeable(Component):
    """A component whose hyper-parameters may change while it is in use, and whose state holds the changed ones."""

    unchangeable: ClassVar[frozenset[str]] = frozenset()
    """Hyper-parameters that are fixed after construction, and that :meth:`_update_parameters` refuses.

    Those of all base classes are among them.
    """
    _as_made: Mapping[str, Any] = MappingProxyType({})
    """Values with which the object was made, of the hyper-parameters that were changed since."""

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
        for name in values:
            if name not in declared:
                raise ValueError(unknown_hyper_parameter(type(self), name, declared))
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

    def _set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

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


_NOTHING = object()
