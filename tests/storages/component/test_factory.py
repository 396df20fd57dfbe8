"""Factories are validated when they are created, comparable and picklable, and have a config of plain data."""

import inspect
import json
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

import storages
from storages import (
    Component,
    Factory,
    GAEBuffer,
    LinearSchedule,
    ReplayBuffer,
    Storage,
    VanillaOnPolicyBuffer,
)
from storages.component.declared import hyper_parameters_of
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule, UnitInterval


class Example(Component):
    context = ("device",)
    unchangeable = frozenset({"sizes"})

    def __init__(
        self,
        device: str,
        sizes: Sequence[Count],
        rate: NonNegativeOrSchedule = 0.1,
        *,
        share: UnitInterval = 0.5,
        mode: Literal["fast", "slow"] = "fast",
        part: Factory[Any] | None = None,
        function: Callable[..., Any] | None = None,
    ) -> None:
        self.made_with = (device, sizes, rate, share, mode, part, function)


def test_calling_a_factory_creates_its_class_with_the_bound_hyper_parameters() -> None:
    factory = Example.create_factory([1, 2], share=1)
    assert factory("cpu").made_with == ("cpu", (1, 2), 0.1, 1.0, "fast", None, None)
    assert factory.cls is Example
    assert factory.name == "Example"
    assert factory.hyper_parameters["sizes"] == (1, 2)


def test_factories_with_equal_hyper_parameters_are_equal() -> None:
    assert Example.create_factory([1, 2], 1) == Example.create_factory(sizes=(1, 2), rate=1.0)
    assert Example.create_factory((np.int64(3),)) == Example.create_factory([3])
    assert Example.create_factory([1]) != Example.create_factory([2])
    assert ReplayBuffer.create_factory(5) != GAEBuffer.create_factory(5)
    assert ReplayBuffer.create_factory(5) != 5
    assert len({ReplayBuffer.create_factory(5), ReplayBuffer.create_factory(size=5)}) == 1


def test_the_repr_of_a_factory_is_the_call_that_creates_it() -> None:
    factory = GAEBuffer.create_factory(5, gae_lambda=0.9)
    assert (
        repr(factory) == "GAEBuffer.create_factory(size=5, gae_lambda=0.9, allow_nonfinite=False, sequence_length=None)"
    )


def test_a_factory_can_be_pickled() -> None:
    factory = Example.create_factory([1], LinearSchedule(1.0, 0.0), part=ReplayBuffer.create_factory(5))
    assert pickle.loads(pickle.dumps(factory)) == factory


def test_the_config_is_json_and_complete_and_can_recreate_a_factory() -> None:
    factory = Example.create_factory(
        [1, 2], LinearSchedule(1.0, 0.1, 0.5), part=ReplayBuffer.create_factory(5), function=len
    )
    assert json.loads(json.dumps(factory.config)) == {
        "name": "Example",
        "hyper_parameters": {
            "sizes": [1, 2],
            "rate": {"name": "LinearSchedule", "hyper_parameters": {"initial": 1.0, "final": 0.1, "fraction": 0.5}},
            "share": 0.5,
            "mode": "fast",
            "part": {
                "name": "ReplayBuffer",
                "hyper_parameters": {
                    "size": 5,
                    "max_bytes": None,
                    "sequences": None,
                    "draws": "with replacement",
                    "transforms": None,
                    "prefetch": 0,
                    "keep_on_device": False,
                    "directory": None,
                    "commit_every": 1000,
                    "durable": False,
                    "rate_limit": None,
                    "count_draws": False,
                    "allow_nonfinite": False,
                },
            },
            "function": {"callable": "len"},
        },
    }
    simple = GAEBuffer.create_factory(7)
    assert GAEBuffer.create_factory(**json.loads(json.dumps(simple.config))["hyper_parameters"]) == simple


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, r"Example: missing a required argument: 'sizes'; it takes Example\(sizes, rate=0.1"),
        ({"sizes": [1], "rat": 1}, TypeError, "Example: unknown hyper-parameter 'rat'; did you mean 'rate'"),
        ({"sizes": [1], "zzz": 1}, TypeError, "unknown hyper-parameter 'zzz'; there are sizes, rate, share"),
        (
            {"sizes": [1], "rat": 1, "zzz": 1, "shares": 0},
            TypeError,
            r"hyper-parameters 'rat' \(did you mean 'rate'\?\), 'zzz', 'shares' \(did you mean 'share'\?\); there",
        ),
        ({"sizes": [1], "device": "cpu"}, TypeError, "unknown hyper-parameter 'device'"),
        ({"sizes": [0]}, ValueError, "Example: sizes holds a value that must be at least 1, got 0"),
        ({"sizes": "12"}, ValueError, "sizes must be a sequence, got '12'"),
        ({"sizes": [1.5]}, ValueError, "sizes holds a value that must be an int, got 1.5"),
        ({"sizes": [1], "share": 1.5}, ValueError, r"Example: share must lie in \[0, 1\], got 1.5"),
        ({"sizes": [1], "share": float("nan")}, ValueError, "share must be a number, got nan"),
        ({"sizes": [1], "share": "much"}, ValueError, "share must be a float, got 'much'"),
        ({"sizes": [1], "share": True}, ValueError, "share must be a float, got True"),
        ({"sizes": [1], "mode": "quick"}, ValueError, "mode must be one of 'fast', 'slow', got 'quick'"),
        ({"sizes": [1], "rate": LinearSchedule(1, -1)}, ValueError, "rate must be at least 0, got LinearSchedule"),
        ({"sizes": [1], "rate": "x"}, ValueError, "rate must be a float, or must be a Schedule, got 'x'"),
        ({"sizes": [1], "part": 3}, ValueError, "part must be a Factory, got 3"),
        ({"sizes": [1], "function": 3}, ValueError, "function must be callable, got 3"),
    ],
)
def test_invalid_hyper_parameters_are_refused_when_the_factory_is_made(
    arguments: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        Example.create_factory(**arguments)


def test_later_changes_to_arguments_and_returned_dicts_do_not_change_a_factory() -> None:
    sizes = [1, 2]
    factory = Example.create_factory(sizes)
    sizes.append(3)
    factory.hyper_parameters["sizes"] = ()
    factory.config["hyper_parameters"]["sizes"].append(4)
    assert factory == Example.create_factory([1, 2])


def test_a_class_can_refuse_incompatible_hyper_parameters() -> None:
    class Bounded(Component):
        def __init__(self, low: float, high: float) -> None: ...

        @classmethod
        def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
            if hyper_parameters["low"] > hyper_parameters["high"]:
                raise ValueError(f"Bounded: low lies above high, got {hyper_parameters}")

    assert Bounded.create_factory(1, 2).config["hyper_parameters"] == {"low": 1.0, "high": 2.0}
    with pytest.raises(ValueError, match=r"low lies above high, got {'low': 2.0, 'high': 1.0}"):
        Bounded.create_factory(2, 1)


@pytest.mark.parametrize(
    ("cls", "arguments", "error", "message"),
    [
        (
            ReplayBuffer,
            {},
            TypeError,
            r"ReplayBuffer: missing .*'size'; it takes ReplayBuffer\(size, allow_nonfinite=False, max_bytes",
        ),
        (ReplayBuffer, {"size": 0}, ValueError, "ReplayBuffer: size must be at least 1, got 0"),
        (ReplayBuffer, {"size": 1.5}, ValueError, "ReplayBuffer: size must be an int, got 1.5"),
        (ReplayBuffer, {"sizes": 5}, TypeError, "ReplayBuffer: unknown hyper-parameter 'sizes'; did you mean 'size'"),
        (GAEBuffer, {"size": 5, "lambda_gae": 1}, TypeError, "did you mean 'gae_lambda'"),
        (
            GAEBuffer,
            {"size": 5, "gae_lambda": -0.1},
            ValueError,
            r"GAEBuffer: gae_lambda must lie in \[0, 1\], got -0.1",
        ),
        (
            VanillaOnPolicyBuffer,
            {"size": 5, "gae_lambda": 1},
            TypeError,
            "VanillaOnPolicyBuffer: unknown .*'gae_lambda'",
        ),
    ],
)
def test_invalid_hyper_parameters_of_storages_are_refused(
    cls: type[Component], arguments: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        cls.create_factory(**arguments)


@pytest.mark.parametrize(
    "cls", [one for one in vars(storages).values() if isinstance(one, type) and Storage in one.__mro__[1:]]
)
def test_storages_document_each_hyper_parameter_and_repeat_no_description(cls: type[Component]) -> None:
    documented = [each for each in cls.__mro__[:-1] if each is not Component]
    lines = [line for each in documented for line in inspect.cleandoc(each.__doc__ or "").splitlines()]
    descriptions = [line for line in lines if re.match(r" {4}\w+: ", line)]
    assert len(descriptions) == len(set(descriptions))
    assert set(hyper_parameters_of(cls)) <= {line.split(":")[0].strip() for line in descriptions}


def test_updates_of_a_hyper_parameter_are_validated() -> None:
    storage = GAEBuffer.create_factory(5)("cpu", None, SimpleNamespace(gamma=0.9), None)
    storage.update_storage_parameter("gae_lambda", 1)
    assert storage.gae_lambda == 1.0
    with pytest.raises(ValueError, match=r"GAEBuffer: gae_lambda must lie in \[0, 1\], got 2"):
        storage.update_storage_parameter("gae_lambda", 2)
    assert storage.gae_lambda == 1.0


def test_all_unknown_names_of_a_storage_made_directly_are_in_one_error() -> None:
    with pytest.raises(TypeError, match=r"unknown hyper-parameters 'capacity' \(here it is size.*\), 'zzz'; there are"):
        ReplayBuffer("cpu", None, None, None, 5, capacity=3, zzz=1)  # type: ignore[call-arg]
