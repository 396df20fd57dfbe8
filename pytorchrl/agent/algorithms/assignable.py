"""Assignment to the hyper-parameters of an object in use, which its state keeps as any other change of them."""

from collections.abc import Mapping
from typing import Any

from storages.component.changeable import Changeable
from storages.component.declared import hyper_parameters_of


class Assignable(Changeable):
    """An object whose hyper-parameters may be assigned, ``algorithm.lr = 1e-4``, once it is made."""

    _assignable: frozenset[str] = frozenset()
    """Names of the hyper-parameters; empty until the object is made, as its methods may set them before."""

    def note_assignments(self) -> None:
        """Treat assignments from now on as changes; called when the object is made."""
        self._assignable = frozenset(hyper_parameters_of(type(self)))

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a hyper-parameter of an object that is made is changed.

        Raises:
            TypeError: the value does not fit the hyper-parameter.
            ValueError: it cannot be changed, or the value is outside its range.
        """
        # An __init__ of a user's class may set its own hyper-parameters only after the object is made.
        if name in self._assignable and name in vars(self):
            self._update_parameters({name: value})
        else:
            object.__setattr__(self, name, value)

    def _set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)
