"""Each public method of an algorithm is called in a run, or its override is refused."""

import contextlib
import copy
import inspect
from collections import defaultdict
from functools import cached_property
from typing import Any

import pytest

import pytorchrl as prl
from tests.support.lessons import CASES, Case, collect, learn, lesson, make_scheme

CALLED_BY_OTHERS = frozenset(
    {
        *("train", "variable", "target", "current", "updates", "explorer_of_policy", "exported_reward", "alpha"),
        *("influence", "keeps_acting_state"),
    }
)
"""What algorithms offer to subclasses, users, exports and evaluations from data, rather than call it."""


def cases_of_classes() -> dict[type[prl.Algorithm], list[Case]]:
    """The cases of each exported class: which methods are called may depend on actions and hyper-parameters."""
    found: defaultdict[type[prl.Algorithm], list[Case]] = defaultdict(list)
    for case in CASES:
        if case.algorithm.__module__.startswith("pytorchrl."):
            found[case.algorithm].append(case)
    return found


def public_methods(cls: type[prl.Algorithm]) -> dict[str, Any]:
    """The public methods and properties of an algorithm, which a subclass may override, as they are defined."""
    names = {
        name
        for base in cls.__mro__
        if base.__module__.startswith("pytorchrl.")
        for name in vars(base)
        if not name.startswith("_") and name not in CALLED_BY_OTHERS
    }
    found = {name: inspect.getattr_static(cls, name) for name in names}
    return {
        name: each
        for name, each in found.items()
        if inspect.isfunction(each) or isinstance(each, property | cached_property)
    }


def counting(cls: type[prl.Algorithm], called: set[str]) -> type[prl.Algorithm]:
    """A subclass that overrides each public method, adds its name to a set, and passes the call on."""

    def method(name: str) -> Any:
        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            called.add(name)
            return getattr(super(counted, self), name)(*arguments, **options)

        return call

    def attribute(name: str) -> property:
        def read(self: Any) -> Any:
            called.add(name)
            return getattr(super(counted, self), name)

        return property(read)

    overrides = {
        name: method(name) if inspect.isfunction(each) else attribute(name)
        for name, each in public_methods(cls).items()
    }
    counted: Any = type(f"Counted{cls.__name__}", (cls,), {"unused": {}, **overrides})
    return counted  # type: ignore[no-any-return]


def live(case: Case, cls: type[prl.Algorithm]) -> None:
    """Build, act, learn, evaluate, save, load and exchange weights and gradients."""
    with make_scheme(case, cls) as scheme, make_scheme(case, cls) as another:
        learn(scheme)
        collect(scheme)
        list(scheme.update(measured=True))
        scheme.evaluate(1)
        another.load_state_dict(scheme.state_dict())
        another.set_progress(scheme.steps, 100)
        algorithm = another.algorithm
        assert isinstance(algorithm.optional_fields, dict)  # A mixed source reads them.
        algorithm.update_algorithm_parameter("num_test_episodes", 2)
        algorithm.set_weights(scheme.algorithm.get_weights())
        batches = lesson(case).batches
        # Some learn by a line search, have no batches in the lesson, and refuse to compute gradients apart from it.
        with contextlib.suppress(NotImplementedError, KeyError):
            gradients, _ = algorithm.compute_gradients(copy.deepcopy(batches[0]) if batches else {})
            algorithm.apply_gradients(gradients)


def uncalled_methods(cls: type[prl.Algorithm]) -> set[str]:
    """The public methods that no case of a class calls."""
    called: set[str] = set()
    for case in cases_of_classes()[cls]:
        live(case, counting(cls, called))
        if "explorer" in case.settings:
            called.add("default_explorer")  # which that of the case replaces
    return set(public_methods(cls)) - called


@pytest.mark.quick_share(0.2, long=0.5)
@pytest.mark.parametrize("cls", cases_of_classes())
def test_each_public_method_is_called_or_its_override_is_refused(cls: Any) -> None:
    unused = getattr(cls, "unused", {})
    assert sorted(uncalled_methods(cls)) == sorted(unused)
    for name in unused:
        with pytest.raises(TypeError, match=rf"Own\.{name} would never be called"):
            type("Own", (cls,), {name: inspect.getattr_static(cls, name)})
