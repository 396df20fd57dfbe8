"""Factories of classes whose own ``create_factory`` returns a function, as those of PyTorchRL do."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from storages.component.declared import defaults_of
from storages.component.factory import Factory

T = TypeVar("T")


class FunctionFactory(Factory[T]):
    """A factory that makes its part by a function, which the class's own ``create_factory`` returned.

    Args:
        cls: the class.
        function: called with the context; it makes the part.
        arguments: those of ``create_factory``, by name.
    """

    def __init__(self, cls: type[T], function: Callable[..., T], arguments: Mapping[str, Any]) -> None:
        super().__init__(cls, arguments)
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        """Make the part; the arguments are the ``context`` of the class."""
        return self._function(*args, **kwargs)

    def __reduce__(self) -> Any:
        # Functions inside of others cannot be pickled, but made again.
        return _made_again, (self._cls, self._hyper_parameters)


def returning_factories(create_factory: Callable[..., Any]) -> Any:
    """Return a class method that wraps what a class's own one returns in a :class:`Factory`, if it is a function."""
    signature = inspect.signature(create_factory)

    def wrapped(cls: type[Any], /, *args: Any, **kwargs: Any) -> Any:
        made = create_factory(cls, *args, **kwargs)
        if isinstance(made, Factory) or not callable(made):
            return made
        bound = signature.bind(cls, *args, **kwargs)
        bound.apply_defaults()
        _, *names = bound.arguments
        arguments = {name: bound.arguments[name] for name in names}
        cls.check_hyper_parameters(defaults_of(cls) | arguments)
        return FunctionFactory(cls, made, arguments)

    wrapped.__doc__, wrapped.__name__ = create_factory.__doc__, "create_factory"
    return classmethod(wrapped)


def _made_again(cls: Any, arguments: Mapping[str, Any]) -> Any:
    return cls.create_factory(**arguments)
