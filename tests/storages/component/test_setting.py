"""Settings are validated when they are created, comparable, and have a config of plain data."""

import dataclasses
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest

from storages import Component, Episodes, Factory, LinearSchedule, ReplayBuffer, Schedule, Sequences, Storage
from storages.component.hyper_parameters import Count, Positive, UnitIntervalOrSchedule, Within
from storages.component.setting import Setting


@dataclass(frozen=True)
class Greedy(Setting):
    epsilon: UnitIntervalOrSchedule = 0.1


@dataclass(frozen=True)
class Until(Setting):
    """Holds other settings, and a factory."""

    steps: Count
    then: Setting = Greedy()
    scales: tuple[Positive, ...] = (1.0,)
    source: Factory[Storage] | None = None
    kinds: tuple[type[Component], ...] = ()
    function: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Sine(Schedule):
    """A user-defined schedule."""

    top: Annotated[float, Within(0, 1)] = 1.0

    def at(self, steps: int, target_steps: int) -> float:
        return self.top * float(np.sin(steps / target_steps) ** 2)

    @property
    def extremes(self) -> tuple[float, ...]:
        return (0.0, self.top)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Greedy(2), r"Greedy: epsilon must lie in \[0, 1\], got 2"),
        (lambda: Greedy("much"), "Greedy: epsilon must be a float, or must be a Schedule, got 'much'"),
        (lambda: Greedy(LinearSchedule(2, 0)), r"Greedy: epsilon must lie in \[0, 1\], got LinearSchedule"),
        (lambda: Greedy(float("nan")), "Greedy: epsilon must be a number, or must be a Schedule, got nan"),
        (lambda: Until(0), "Until: steps must be at least 1, got 0"),
        (lambda: Until(1, then=0.5), "Until: then must be a Setting, got 0.5"),
        (lambda: Until(1, scales=[0]), "Until: scales holds a value that must be greater than 0, got 0"),
        (lambda: Until(1, source=Storage), "Until: source must be a Factory, got <class"),
        (lambda: Until(1, kinds=(Greedy,)), "Until: kinds holds a value that must be a class that extends Component"),
        (lambda: Sine(3), r"Sine: top must lie in \[0, 1\], got 3"),
        (lambda: LinearSchedule("much", 0), "LinearSchedule: initial must be a float, got 'much'"),
        (lambda: Sequences(0), "Sequences: length must be at least 1, got 0"),
        (lambda: Episodes(eta=2), r"Episodes: eta must lie in \[0, 1\], got 2"),
    ],
)
def test_an_invalid_field_raises_an_error_that_names_it(make: Callable[[], Setting], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_settings_of_equal_values_are_equal_for_different_input_types() -> None:
    assert Until(np.int64(3), scales=[1, 2]) == Until(3, scales=(1.0, 2.0))
    assert len({Until(3, scales=[1, 2]), Until(3, scales=(1.0, 2.0)), Until(4)}) == 2
    assert LinearSchedule(1, 0) == LinearSchedule(1.0, 0.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Until(3).steps = 4  # type: ignore[misc]


def test_the_config_is_json_and_includes_nested_settings_and_factories() -> None:
    setting = Until(5, then=Greedy(Sine(0.5)), source=ReplayBuffer.create_factory(7), function=len)
    config = json.loads(json.dumps(setting.config))
    assert config["name"] == "Until"
    values = config["hyper_parameters"]
    assert values["then"] == {
        "name": "Greedy",
        "hyper_parameters": {"epsilon": {"name": "Sine", "hyper_parameters": {"top": 0.5}}},
    }
    assert values["source"]["hyper_parameters"]["size"] == 7
    assert (values["steps"], values["scales"], values["function"]) == (5, [1.0], {"callable": "len"})
    assert pickle.loads(pickle.dumps(setting)) == setting
    assert LinearSchedule(1, 0.1).config == {
        "name": "LinearSchedule",
        "hyper_parameters": {"initial": 1.0, "final": 0.1, "fraction": 1.0},
    }


def test_a_user_defined_schedule_is_accepted_as_a_hyper_parameter() -> None:
    assert Greedy(Sine()).epsilon == Sine(1)
    with pytest.raises(TypeError, match="abstract"):
        Schedule()  # type: ignore[abstract]


class Halved(Greedy):
    """A value that is no field, and would be unknown to a resumed run."""

    def __init__(self, factor: float = 0.5) -> None:
        self.factor = factor


class Constant(Schedule):
    """A schedule that is not decorated."""

    def at(self, steps: int, target_steps: int) -> float:
        return 1.0

    @property
    def extremes(self) -> tuple[float, ...]:
        return (1.0,)


@pytest.mark.parametrize("cls", [Halved, Constant])
def test_a_class_whose_values_would_not_be_recorded_is_refused(cls: Any) -> None:
    with pytest.raises(TypeError, match=rf"{cls.__name__}: decorate it with @dataclass\(frozen=True\)"):
        cls()
