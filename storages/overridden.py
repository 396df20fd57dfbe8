"""Adaptation of methods and attributes that a subclass of a storage overrides."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from storages.component.declared import defaults_of
from storages.component.factory import Factory
from storages.other_names import NEVER_CALLED, STORAGE_ARGUMENTS
from storages.renamed import appends_to_dict, both_spellings
from storages.transition import ACTPROBS, IREW, IVAL, LOGP, REQUIRED, REWC, RHS, RHS2, SKIPPED, TRUNC2, VAL, Sample

T = TypeVar("T")
_OF_LEARNING = (TRUNC2, RHS, RHS2, IREW, REWC, ACTPROBS, VAL, LOGP, IVAL, SKIPPED)
"""Fields that samples have only where environments, actor or algorithm need them."""


def adapt_overrides(cls: type[Any]) -> None:
    """Adapt the overrides of a subclass of ``Storage`` to how they are called.

    Raises:
        TypeError: a name of PyTorchRL's storages is overridden, which nothing calls here; or ``storage_tensors`` are no
            names. The text says what is called instead.
    """
    own = dict(vars(cls))
    for name, instead in NEVER_CALLED.items():
        if name in own and _has_bases_with(cls, name):
            raise TypeError(f"{cls.__name__}.{name} would never be used: {instead}")
    for name in STORAGE_ARGUMENTS:
        if callable(method := own.get(name)):
            setattr(cls, name, both_spellings(method))
    if isinstance(method := own.get("create_factory"), classmethod):
        cls.create_factory = _returning_factories(method.__func__)
    if callable(method := own.get("insert_single_tensor_slice")):
        _refuse_appending(cls.__name__, method)
        cls.insert_single_tensor_slice = appends_to_dict(method)
    if callable(method := own.get("insert_transition")):
        cls.insert_transition = _called_with_whole_steps(method)
        cls.stores_slices_whole = False
    if callable(own.get("init_tensors")):
        cls.insert_transition = _initialising_first(cls.insert_transition)
    if "storage_tensors" in own and _has_bases_with(cls, "storage_tensors"):
        cls.stored_fields = _fields_named(cls.__name__, own["storage_tensors"])


def _initialising_first(insert_transition: Callable[..., None]) -> Callable[..., None]:
    """Return an ``insert_transition`` that calls the class's own ``init_tensors`` with the first step."""

    @functools.wraps(insert_transition)
    def call(self: Any, sample: Sample, envs: Any = None) -> None:
        if envs is None and not self.layout:
            self.init_tensors(sample)
        insert_transition(self, sample, envs)

    return call


def _has_bases_with(cls: type[Any], name: str) -> bool:
    return any(vars(base).get(name) for base in cls.__mro__[1:])


def _fields_named(owner: str, names: Any) -> frozenset[str]:
    """Return the fields that ``storage_tensors`` names, and those that samples have because they are needed."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{owner}.storage_tensors must be a tuple of names of fields, got {names!r}")
    return frozenset((*names, *REQUIRED, *_OF_LEARNING))


def _refuse_appending(owner: str, method: Callable[..., Any]) -> None:
    old = [name for name in inspect.signature(method).parameters if name.startswith("tensor_")]
    if old:
        raise TypeError(
            f"{owner}.insert_single_tensor_slice with {', '.join(old)} would never be used: it is called as "
            f"insert_single_tensor_slice(key, values, start=0), to overwrite a field; override insert_data_slice"
        )


def _called_with_whole_steps(method: Callable[..., None]) -> Callable[..., None]:
    """Return an ``insert_transition`` that takes ``envs``, and calls one without them with whole steps."""
    parameters = inspect.signature(method).parameters
    if "envs" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return method

    @functools.wraps(method)
    def insert_transition(self: Any, sample: Sample, envs: Any = None) -> None:
        if envs is None:
            method(self, sample)
        else:
            self.insert_in_part(sample, envs, lambda step: method(self, step))

    return insert_transition


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


def _returning_factories(create_factory: Callable[..., Any]) -> Any:
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
