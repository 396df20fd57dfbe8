"""Changed hyper-parameters are validated together, are told apart from those as made, and survive as plain data."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest

from storages import LinearSchedule, PiecewiseSchedule
from storages.component.changeable import Changeable
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule, UnitIntervalOrSchedule, Within
from storages.component.schedule import FunctionSchedule
from storages.component.setting import Setting


@dataclass(frozen=True)
class Explorer(Setting):
    epsilon: UnitIntervalOrSchedule = 0.1


@dataclass(frozen=True)
class Then(Explorer):
    then: Explorer | None = None


@dataclass(frozen=True)
class Strange(Setting):
    """Not admitted by any hyper-parameter of the learner."""

    made = 0

    def __post_init__(self) -> None:
        type(self).made += 1  # type: ignore[misc]


class Learner(Changeable):
    context = ()
    unchangeable = frozenset({"size"})

    size: Count = 5
    low: Annotated[float, Within(0)] = 0.0
    high: Annotated[float, Within(0)] = 1.0
    lr: NonNegativeOrSchedule = 1e-3
    quantiles: Count = 8
    explorer: Explorer | None = None
    explorers: tuple[Explorer, ...] = ()
    shares: Mapping[str, float] | None = None
    function: Callable[[float], float] | None = None

    def __init__(self) -> None:
        self.used: list[tuple[float, float]] = []

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        super().check_hyper_parameters(hyper_parameters)
        if hyper_parameters["low"] > hyper_parameters["high"]:
            raise ValueError(f"Learner: low must be at most high, got {hyper_parameters['low']:g}")

    def _use_parameters(self) -> None:
        if self.quantiles == 13:
            raise TypeError("Learner: 13 quantiles are refused by a part")
        self.used.append((self.low, self.high))

    def update(self, name: str, value: Any) -> None:
        self._update_parameters({name: value})

    def state_dict(self) -> dict[str, Any]:
        return self._changes_to_save()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._load_changes(state)


def made(**given: Any) -> Learner:
    return Learner.create_factory(**given)()


def test_updates_of_a_hyper_parameter_are_validated() -> None:
    learner = made()
    learner.update("quantiles", np.int64(3))
    assert (learner.quantiles, type(learner.quantiles)) == (3, int)
    with pytest.raises(ValueError, match="Learner: quantiles must be at least 1, got 0"):
        learner.update("quantiles", 0)
    with pytest.raises(ValueError, match="Learner: size is fixed once the object is made"):
        learner.update("size", 6)
    with pytest.raises(ValueError, match="Learner: unknown hyper-parameter 'quantile'; did you mean 'quantiles'"):
        learner.update("quantile", 3)
    with pytest.raises(ValueError, match="Learner: low must be at most high, got 2"):
        learner.update("low", 2)
    with pytest.raises(TypeError, match="refused by a part"):
        learner.update("quantiles", 13)
    assert learner.changed_parameters == {"quantiles": 3}
    assert learner.used == [(0, 1)]


def test_only_what_differs_from_the_values_as_made_is_changed() -> None:
    learner = made(lr=0.5)
    assert (learner.changed_parameters, learner.state_dict()) == ({}, {"changed": {}})
    for name, value in (("lr", 0.25), ("quantiles", 9), ("lr", 0.125), ("quantiles", 8)):
        learner.update(name, value)
    assert learner.changed_parameters == {"lr": 0.125}
    assert learner.state_dict() == {"changed": {"lr": 0.125}}
    assert (made(lr=0.5).changed_parameters, Learner.lr) == ({}, 1e-3)


CHANGES: list[dict[str, Any]] = [
    {"lr": 0.0, "quantiles": 4},
    {"lr": LinearSchedule(1.0, 0.5, 0.25)},
    {"lr": PiecewiseSchedule(((0.0, 1.0), (10.0, 0.5)), positions="steps")},
    {"explorer": Explorer(0.5)},
    {"explorer": Then(LinearSchedule(1.0, 0.0), then=Then(0.2, then=Explorer()))},
    {"explorers": (Explorer(0.5), Then(0.5))},
    {"shares": {"a": 0.5, "b": 0.25}},
    # Each alone would be refused.
    {"high": 5.0, "low": 4.0},
    {"low": 0.0, "high": 0.0},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_changes_survive_as_plain_data(changes: dict[str, Any]) -> None:
    learner, other = made(), made()
    learner.take_changes(changes)
    other.load_state_dict(json.loads(json.dumps(learner.state_dict())))
    assert other.changed_parameters == learner.changed_parameters
    assert {name: getattr(other, name) for name in changes} == changes
    assert [type(getattr(other, name)) for name in changes] == [type(value) for value in changes.values()]


def test_a_state_restores_the_values_as_made_of_what_it_does_not_name() -> None:
    learner = made(lr=0.5)
    learner.update("lr", 0.25)
    learner.update("low", 0.5)
    learner.load_state_dict({"changed": {"quantiles": 2}})
    assert (learner.lr, learner.low, learner.quantiles) == (0.5, 0, 2)
    assert learner.changed_parameters == {"quantiles": 2}
    learner.load_state_dict({"of an earlier version": True})
    assert learner.changed_parameters == {"quantiles": 2}


INVALID: list[tuple[Any, str]] = [
    (None, "the state has None as its changed hyper-parameters"),
    ([3], r"the state has \[3\] as its changed hyper-parameters"),
    ({"quantiles": 0}, "quantiles must be at least 1, got 0"),
    ({"quantiles": [1]}, r"quantiles must be an int, got \(1,\)"),
    ({"quantile": 1}, "unknown hyper-parameter 'quantile'"),
    ({3: 1}, "unknown hyper-parameter '3'"),
    ({"size": 7}, "size is fixed once the object is made, and the state has 7"),
    ({"low": 3.0}, "low must be at most high, got 3"),
    ({"lr": float("nan")}, "lr must be a number"),
    ({"lr": {"name": "LinearSchedule", "hyper_parameters": {"initial": 1.0, "final": -1.0}}}, "lr must be at least 0"),
    ({"lr": {"name": "LinearSchedule", "hyper_parameters": {"initial": 1.0}}}, "lr must be a valid LinearSchedule"),
    ({"lr": {"name": "LinearSchedule", "hyper_parameters": 7}}, "lr must be a value that can be made here"),
    ({"lr": {"name": "Strange", "hyper_parameters": {}}}, "lr must be a value that can be made here, got .*Strange"),
    ({"lr": {"name": "Schedule", "hyper_parameters": {}}}, "lr must be a value that can be made here"),
    ({"lr": {"name": ["os"], "hyper_parameters": {}}}, "lr must be a value that can be made here"),
    ({"explorer": {"name": "LinearSchedule", "hyper_parameters": {}}}, "explorer must be a value that can be made"),
    ({"explorer": {"name": "Explorer", "hyper_parameters": {"epsilon": 3}}}, "explorer must be a valid Explorer"),
    ({"explorer": {"name": "Explorer", "hyper_parameters": {3: 3}}}, "explorer must be a valid Explorer"),
    ({"shares": {"a": {"name": "Strange", "hyper_parameters": {}}}}, "shares must be a value that can be made here"),
    ({"function": "print"}, "function must be callable"),
]


@pytest.mark.parametrize(("changed", "message"), INVALID, ids=str)
def test_a_changed_value_of_a_state_that_is_none_is_refused_by_name(changed: Any, message: str) -> None:
    learner = made()
    learner.update("lr", 0.25)
    with pytest.raises(ValueError, match=f"Learner: .*{message}|Learner: {message}"):
        learner.load_state_dict({"changed": changed})
    assert learner.changed_parameters == {"lr": 0.25}
    assert Strange.made == 0


@pytest.mark.parametrize("name", ["function", "lr", "explorer"])
def test_a_function_is_saved_by_name_alone_and_missed_with_a_warning(name: str) -> None:
    schedule = FunctionSchedule(abs, 0.0, 1.0)
    value: Any = {"function": abs, "lr": schedule, "explorer": Explorer(schedule)}[name]
    learner, other = made(), made()
    learner.update(name, value)
    learner.update("quantiles", 3)
    state = json.loads(json.dumps(learner.state_dict()))
    assert state["changed"][name].keys() == {"callable"}
    with pytest.warns(UserWarning, match=f"Learner: {name} was changed to .*abs.*, which a state cannot hold"):
        other.load_state_dict(state)
    assert other.changed_parameters == {"quantiles": 3}
    learner.load_state_dict(state)
    assert learner.changed_parameters == {name: value, "quantiles": 3}


def test_a_value_that_plain_data_would_change_is_saved_by_name_alone() -> None:
    learner = made()
    learner.update("shares", {3: 0.5})
    state = learner.state_dict()
    assert state == {"changed": {"shares": {"callable": "{3: 0.5}"}}}
    with pytest.warns(UserWarning, match="shares was changed to {3: 0.5}, which a state cannot hold"):
        made().load_state_dict(state)
