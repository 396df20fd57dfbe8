"""Structured values of hyper-parameters, and their JSON-serialisable form."""

import dataclasses
import functools
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from storages.component.annotations import annotation_of, conform_named
from storages.component.other_names import OtherNames, unknown_names


class Configured(ABC):
    """An object that is described by a class and hyper-parameters, as JSON-serialisable data."""

    @property
    @abstractmethod
    def cls(self) -> type:
        """The class of the object that is described."""

    @property
    @abstractmethod
    def hyper_parameters(self) -> dict[str, Any]:
        """All of them, those left at their defaults included."""

    @property
    def config(self) -> dict[str, Any]:
        """JSON-serialisable data from which it can be made again; logged, and saved in every checkpoint."""
        return {"name": self.cls.__name__, "hyper_parameters": {k: plain(v) for k, v in self.hyper_parameters.items()}}


class Setting(Configured):
    """Base of frozen dataclasses that are values of hyper-parameters, such as schedules.

    A subclass is decorated with ``@dataclass(frozen=True)``. Its fields are annotated like hyper-parameters and checked
    when it is made: ``epsilon: Annotated[float, Within(0, 1)] = 0.1``. They may be other settings, or factories. Checks
    across fields belong in ``__post_init__``, after ``super().__post_init__()``. A run resumed from its folder looks
    the class up by name.

    Raises:
        TypeError: the class is not decorated, or has an ``__init__`` of its own, whose arguments would not be recorded;
            it has no field of a name that is given.
        ValueError: a field is of a wrong type or outside its range.
    """

    other_names: ClassVar[OtherNames] = {}
    """Names that fields have in other libraries."""

    def __new__(cls, *_: Any, **given: Any) -> Self:
        """Refuse a class that is not decorated, or has an ``__init__`` in place of fields, and unknown fields."""
        made = super().__new__(cls)
        owner = next(each for each in cls.__mro__ if "__init__" in vars(each))
        decorated = getattr(cls, "__dataclass_params__", None)
        # Callbacks are not frozen, and may keep what is not recorded.
        if decorated is None or (decorated.frozen and "__dataclass_fields__" not in vars(owner)):
            raise TypeError(
                f"{cls.__name__}: decorate it with @dataclass(frozen=True), and annotate fields instead of an __init__ "
                f"of its own; of its values, only fields are recorded, and restored in a resumed run"
            )
        if "__dataclass_fields__" in vars(owner):
            fields = [field.name for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]
            unknown = [name for name in given if name not in fields]
            # A decorated callback may have an __init__ of its own, with other arguments.
            if unknown and not _takes(vars(owner)["__init__"], unknown):
                raise TypeError(unknown_names(cls.__name__, "argument", unknown, fields, cls.other_names))
        return made

    def __post_init__(self) -> None:
        for name, value in self.hyper_parameters.items():
            annotation = annotation_of(type(self), name)
            object.__setattr__(self, name, conform_named(value, annotation, f"{type(self).__name__}: {name}"))

    @property
    def cls(self) -> type:
        """Its class."""
        return type(self)

    @property
    def hyper_parameters(self) -> dict[str, Any]:
        """Its fields."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


def _takes(function: Callable[..., Any], names: list[str]) -> bool:
    parameters = inspect.signature(function).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return takes_all or parameters.keys() >= set(names)


def plain(value: Any) -> Any:
    """Return a hyper-parameter as JSON-serialisable data.

    Of a class or function, that is its name; of a ``functools.partial`` of one, whose arguments are keywords and plain
    values, also these.
    """
    if isinstance(value, Configured):
        return value.config
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, functools.partial) and _is_named(value.func) and not value.args and _is_plain(value.keywords):
        return {"callable": text_of(value.func), "arguments": plain(value.keywords)}
    return {"callable": text_of(value)}


def is_callable(data: Any) -> bool:
    """Whether plain data describes a class or function, or a ``functools.partial`` of one."""
    return isinstance(data, Mapping) and set(data) in ({"callable"}, {"callable", "arguments"})


def _is_named(function: Any) -> bool:
    return getattr(function, "__qualname__", None) == getattr(function, "__name__", "")


def _is_plain(value: Any) -> bool:
    """Whether a value is its own plain data, but for tuples, which become lists."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def text_of(value: Any) -> str:
    """Return a hyper-parameter as a line of Python, identical in every process."""
    if isinstance(value, type) or (isinstance(value, Callable) and hasattr(value, "__name__")):  # type: ignore[arg-type]
        return str(value.__name__)
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
