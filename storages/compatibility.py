"""Storages written for PyTorchRL: its names of methods and parameters, and its way of overriding methods."""

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from storages.component.declared import defaults_of
from storages.component.factory import Factory
from storages.component.other_names import answer_missing
from storages.other_names import NEVER_CALLED, NO_ITEMS, STORAGE_ARGUMENTS
from storages.saving import load_state_without_contents, state_without_contents
from storages.slices import append_values, steps_of
from storages.transition import ACTPROBS, IREW, IVAL, LOGP, REQUIRED, REWC, RHS, RHS2, SKIPPED, TRUNC2, VAL, Sample

T = TypeVar("T")
P = ParamSpec("P")
_ADAPTED = "_takes_both_spellings"
_OF_LEARNING = (TRUNC2, RHS, RHS2, IREW, REWC, ACTPROBS, VAL, LOGP, IVAL, SKIPPED)
"""Fields that samples have only where environments, actor or algorithm need them."""
_MOVED: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "observe": ("observers.add", lambda storage: storage.observers.add),
    "attach": ("observers.attach", lambda storage: storage.observers.attach),
    "state_without_contents": (
        "storages.saving.state_without_contents(storage)",
        lambda storage: functools.partial(state_without_contents, storage),
    ),
    "load_state_without_contents": (
        "storages.saving.load_state_without_contents(storage, state)",
        lambda storage: functools.partial(load_state_without_contents, storage),
    ),
    "layout": ("insertion.ring.layout", lambda storage: storage.insertion.ring.layout),
}
"""Attributes of storages of earlier versions, what they are called now, and how to get them."""


def missing_attribute(storage: Any, name: str) -> Any:
    """Return an attribute of a storage by its name in earlier versions, with a warning.

    Raises:
        AttributeError: there never was such an attribute; the text says what is here instead.
    """
    owner = type(storage).__name__
    if name in _MOVED and "observers" in vars(storage):
        here, found = _MOVED[name]
        warnings.warn(
            f"{owner}.{name} is now {here}; the old name goes with the next version", DeprecationWarning, stacklevel=2
        )
        return found(storage)
    return answer_missing(storage, name)


def refuse_index(storage: Any, index: Any) -> Any:
    """Refuse ``storage[index]``, also that of a loop over a storage; the text says what is here instead.

    Raises:
        TypeError: always.
    """
    raise TypeError(f"{type(storage).__name__!r} object has no items: {NO_ITEMS}")


def copied_tensor(storage: Any, key: str, position: int) -> Any:
    """Return a copy of one field of the ``position``-th oldest step, (E, ...), or a dict of such.

    Raises:
        IndexError: the step is not stored.
        KeyError: there is no such field.
    """
    step = steps_of(storage.ring, position, position + 1, storage.device)
    if key not in step:
        raise KeyError(f"{type(storage).__name__}: there is no field {key!r}, only {', '.join(step)}")
    value = step[key]
    return {name: leaf[0] for name, leaf in value.items()} if isinstance(value, dict) else value[0]


def both_spellings(method: Callable[P, T]) -> Callable[P, T]:
    """Let keyword arguments of a method have the names here or those of PyTorchRL, whichever it has itself.

    A call that names a parameter twice, or not at all, raises a TypeError with both names.
    """
    pairs = STORAGE_ARGUMENTS.get(method.__name__, {})
    if getattr(method, _ADAPTED, False):
        return method
    parameters = inspect.signature(method).parameters
    own_names = {
        other: own
        for theirs, ours in pairs.items()
        for own, other in ((ours, theirs), (theirs, ours))
        if own in parameters and other not in parameters
    }
    if not own_names:
        return method
    order = list(parameters)

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        place = f"{type(args[0]).__name__}.{method.__name__}" if args else method.__name__
        positional = order[: len(args)]
        for other, own in own_names.items():
            if other in kwargs and (own in kwargs or own in positional):
                raise TypeError(f"{place}: {own} and {other} are one parameter; give one of them")
        named: Any = {own_names.get(name, name): value for name, value in kwargs.items()}
        for other, own in own_names.items():
            if own not in named and own not in positional and parameters[own].default is inspect.Parameter.empty:
                raise TypeError(f"{place}: {own}, which may be named {other}, is missing")
        return method(*args, **named)

    setattr(call, _ADAPTED, True)
    return call


def appends_to_dict(method: Callable[..., int]) -> Callable[..., int]:
    """Let a method that overwrites a field append values to a dict instead, where it is called as in PyTorchRL."""
    overwriting, appending = inspect.signature(method), inspect.signature(append_values)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> int:
        place = f"{type(self).__name__}.{method.__name__}"
        appends = not kwargs.keys().isdisjoint(appending.parameters) or (bool(args) and not isinstance(args[0], str))
        try:
            if appends:
                appending.bind(*args, **kwargs)
            else:
                overwriting.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"{place}: {error}; {place}(key, values, start=0) overwrites a field, and "
                f"{place}(tensor_storage, tensor_key, tensor_values) appends to a dict"
            ) from None
        if not appends:
            return method(self, *args, **kwargs)
        return append_values(*args, **kwargs)

    return call


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
        if envs is None and not self.insertion.ring.layout:
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
            self.insertion.insert_in_part(sample, envs, lambda step: method(self, step))

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
