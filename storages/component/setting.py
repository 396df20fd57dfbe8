"""Values of hyper-parameters that consist of several numbers, and the plain data that describes them."""

import dataclasses
import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from storages.component.annotations import conform_named


class Configured(ABC):
    """An object that plain data describes."""

    @property
    @abstractmethod
    def cls(self) -> type:
        """The class that is named."""

    @property
    @abstractmethod
    def hyper_parameters(self) -> dict[str, Any]:
        """All of them, those left at their defaults included."""

    @property
    def config(self) -> dict[str, Any]:
        """Plain data (as JSON holds it) from which it can be made again: logged, and kept in every checkpoint."""
        return {"name": self.cls.__name__, "hyper_parameters": {k: plain(v) for k, v in self.hyper_parameters.items()}}


class Setting(Configured):
    """Base of frozen dataclasses that are values of hyper-parameters, such as schedules.

    A subclass is decorated with ``@dataclass(frozen=True)``. Its fields are annotated like hyper-parameters and checked
    when it is made: ``epsilon: Annotated[float, Within(0, 1)] = 0.1``. They may be other settings, or factories. Checks
    of several fields belong into ``__post_init__``, after ``super().__post_init__()``. A run that is resumed from its
    folder finds the class by its name.

    Raises:
        ValueError: a field is of a wrong type or outside its range.
    """

    def __post_init__(self) -> None:
        annotations = typing.get_type_hints(type(self), include_extras=True)
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            what = f"{type(self).__name__}: {field.name}"
            value = conform_named(getattr(self, field.name), annotations[field.name], what)
            object.__setattr__(self, field.name, value)

    @property
    def cls(self) -> type:
        """Its class."""
        return type(self)

    @property
    def hyper_parameters(self) -> dict[str, Any]:
        """Its fields."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """A hyper-parameter as JSON holds it; a function has no plain form, and is there by its name, for people."""
    if isinstance(value, Configured):
        return value.config
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return {"callable": text_of(value)}


def text_of(value: Any) -> str:
    """A hyper-parameter as a line of Python, the same in every process."""
    if isinstance(value, type) or (isinstance(value, Callable) and hasattr(value, "__name__")):  # type: ignore[arg-type]
        return str(value.__name__)
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
