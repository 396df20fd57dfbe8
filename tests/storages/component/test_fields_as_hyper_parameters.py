"""Hyper-parameters that are attributes of a class are declared once and inherited by its subclasses."""

import copy
import inspect
import json
import pickle
import pydoc
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
from torch import nn

from storages import Factory, GAEBuffer, LinearSchedule, PERBuffer, ReplayBuffer, Storage
from storages.component.factory import Component
from storages.component.generated_init import with_hyper_parameters
from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
    Within,
)
from storages.component.other_names import OtherNames
from storages.component.setting import Setting
from storages.transition import REW
from tests.support.model import Stream

ALGORITHM = SimpleNamespace(gamma=0.9)


@dataclass(frozen=True)
class Optimizer(Setting):
    betas: tuple[float, ...] = (0.9, 0.999)
    eps: Positive = 1e-8


@dataclass(frozen=True)
class Explorer(Setting):
    epsilon: Annotated[float | LinearSchedule, Within(0, 1)] = 0.1


class Learner(Component):
    """Learns.

    Args:
        gamma: discount factor.
    """

    context = ("device", "envs")
    other_names: ClassVar[OtherNames] = {"learning_rate": {"lr": "lr"}, "buffer_size": {"": "size of the storage"}}
    gamma: UnitInterval = 0.99
    test_every: CountOrZero = 5_000
    on_policy: ClassVar[bool] = False
    device: str
    _private: int = 3

    def __init__(self, device: str, envs: Any) -> None:
        self.device, self.envs = device, envs
        self.seen = self.gamma
        self.built = self.build()

    def build(self) -> str:
        return "learner"


class Q(Learner):
    lr: NonNegativeOrSchedule = 1e-3
    hidden_sizes: tuple[Count, ...] = (64, 64)
    optimizer: Optimizer = Optimizer()
    explorer: "Explorer | None" = None
    memory: Factory[Storage] | None = None

    def build(self) -> str:
        return f"q {self.lr} {self.hidden_sizes}"


class Deeper(Q):
    lr = 5e-4
    gamma: UnitInterval = 0.9
    quantiles: Count = 200


class Fixed(Q):
    test_every: ClassVar[int] = 7

    @property
    def gamma(self) -> float:  # type: ignore[override]
        return 0.5


def test_a_subclass_adds_one_hyper_parameter_and_repeats_none() -> None:
    assert list(Q.create_factory().hyper_parameters) == [
        "gamma", "test_every", "lr", "hidden_sizes", "optimizer", "explorer", "memory",
    ]  # fmt: skip
    factory = Deeper.create_factory(test_every=3)
    assert factory.hyper_parameters == {
        "gamma": 0.9,
        "test_every": 3,
        "lr": 5e-4,
        "hidden_sizes": (64, 64),
        "optimizer": Optimizer(),
        "explorer": None,
        "memory": None,
        "quantiles": 200,
    }
    assert Q.create_factory().hyper_parameters["gamma"] == 0.99


def test_hyper_parameters_are_set_before_the_object_is_initialised() -> None:
    made = Q.create_factory(gamma=0.5, lr=1, hidden_sizes=[8])("cpu", "envs")
    assert (made.device, made.envs, made.seen, made.built) == ("cpu", "envs", 0.5, "q 1.0 (8,)")
    assert vars(made)["optimizer"] == Optimizer()
    assert Q.gamma == 0.99


def test_a_class_that_is_called_directly_has_its_defaults() -> None:
    made = Deeper("cpu", None)  # type: ignore[call-arg, misc]
    assert (made.seen, made.lr, made.quantiles) == (0.9, 5e-4, 200)


def test_a_pytorch_module_may_have_attributes_as_hyper_parameters() -> None:
    class Network(Component, nn.Module):
        context = ("device",)
        units: Count = 3
        body: nn.Module = nn.Identity()

        def __init__(self, device: str) -> None:
            super().__init__()
            self.layer = nn.Linear(self.units, 1)

    factory = Network.create_factory(units=5, body=nn.ReLU())
    assert list(factory.hyper_parameters) == ["units", "body"]
    network = factory("cpu")
    assert network.layer.in_features == 5
    assert [name for name, _ in network.named_modules()] == ["", "layer"]
    assert isinstance(copy.deepcopy(network).body, nn.ReLU)


def test_a_value_that_a_subclass_fixes_is_no_hyper_parameter_of_it() -> None:
    assert not {"gamma", "test_every"} & Fixed.create_factory().hyper_parameters.keys()
    made = Fixed.create_factory()("cpu", None)
    assert (made.seen, made.test_every) == (0.5, 7)
    with pytest.raises(TypeError, match="Fixed: unknown hyper-parameter 'gamma'"):
        Fixed.create_factory(gamma=0.9)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"gama": 1}, TypeError, "Deeper: unknown hyper-parameter 'gama'; did you mean 'gamma'"),
        ({"learning_rate": 1}, TypeError, "Deeper: unknown hyper-parameter 'learning_rate'; here it is lr. There are"),
        ({"buffer_size": 1}, TypeError, "unknown hyper-parameter 'buffer_size'; here it is size of the storage"),
        ({"device": "cpu"}, TypeError, "Deeper: unknown hyper-parameter 'device'"),
        ({"on_policy": True}, TypeError, "Deeper: unknown hyper-parameter 'on_policy'"),
        ({"_private": 1}, TypeError, "Deeper: unknown hyper-parameter '_private'"),
        ({"gamma": 2}, ValueError, r"Deeper: gamma must lie in \[0, 1\], got 2"),
        ({"quantiles": 0}, ValueError, "Deeper: quantiles must be at least 1, got 0"),
        ({"lr": LinearSchedule(1, -1)}, ValueError, "Deeper: lr must be at least 0, got LinearSchedule"),
        ({"optimizer": 3}, ValueError, "Deeper: optimizer must be an Optimizer, got 3"),
        ({"explorer": Optimizer()}, ValueError, "Deeper: explorer must be an Explorer, got Optimizer"),
        ({"memory": 3}, ValueError, "Deeper: memory must be a Factory, got 3"),
        ({"memory": Q.create_factory()}, ValueError, "Deeper: memory must make a Storage, got Q.create_factory"),
    ],
)
def test_a_wrong_value_is_refused_when_the_factory_is_made(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        Deeper.create_factory(**arguments)


def test_a_factory_can_be_pickled_and_its_config_is_json() -> None:
    factory = Deeper.create_factory(explorer=Explorer(LinearSchedule(1, 0)), memory=ReplayBuffer.create_factory(5))
    assert pickle.loads(pickle.dumps(factory)) == factory
    config = json.loads(json.dumps(factory.config))["hyper_parameters"]
    assert config["optimizer"] == {"name": "Optimizer", "hyper_parameters": {"betas": [0.9, 0.999], "eps": 1e-8}}
    assert config["explorer"]["hyper_parameters"]["epsilon"]["name"] == "LinearSchedule"
    assert config["memory"]["hyper_parameters"]["size"] == 5


def test_incompatible_values_are_refused_with_defaults_taken_into_account() -> None:
    class Bounded(Component):
        low: float = 0.0
        high: float = 1.0

        @classmethod
        def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
            if hyper_parameters["low"] > hyper_parameters["high"]:
                raise ValueError("low lies above high")

    assert Bounded.create_factory(high=2)().high == 2.0
    with pytest.raises(ValueError, match="low lies above high"):
        Bounded.create_factory(low=2)


class Sharp(PERBuffer):
    """Adds a hyper-parameter, and changes the default of another."""

    sharpness: Positive = 1.0
    alpha: UnitInterval = 0.6

    def insert_transition(self, sample: Any, envs: Any = None) -> None:
        super().insert_transition({**sample, REW: sample[REW] * self.sharpness}, envs)


class Sharper(Sharp):
    """Adds a further hyper-parameter in its ``__init__``."""

    def __init__(self, *context: Any, more: Count = 2, **others: Any) -> None:
        self.more = more
        super().__init__(*context, **others)


@pytest.mark.parametrize("cls", [Sharp, Sharper])
def test_a_subclass_of_a_storage_adds_a_hyper_parameter_without_repeating_any(cls: Any) -> None:
    factory = cls.create_factory(9, sharpness=2, n_step=3)
    config = factory.config["hyper_parameters"]
    assert (config["size"], config["sharpness"], config["n_step"], config["alpha"], config["beta"]) == (9, 2, 3, 0.6, 1)
    assert cls.create_factory(**config) == factory
    storage = pickle.loads(pickle.dumps(factory))("cpu", None, ALGORITHM, None)
    assert (storage.sharpness, storage.alpha, storage.n_step) == (2.0, 0.6, 3)
    storage.insert_transition(Stream(1, "vector", False, np.random.default_rng(0)).step())
    storage.update_storage_parameter("sharpness", 3)
    assert storage.sharpness == 3.0
    with pytest.raises(TypeError, match="unknown hyper-parameter 'sharpnes'; did you mean 'sharpness'"):
        cls.create_factory(9, sharpnes=2)
    with pytest.raises(ValueError, match="sharpness must be greater than 0, got 0"):
        cls.create_factory(9, sharpness=0)
    with pytest.raises(TypeError, match="missing a required argument: 'size'"):
        cls.create_factory()


def test_an_init_that_passes_keywords_on_adds_a_hyper_parameter_to_attributes() -> None:
    class More(Q):
        def __init__(self, *context: Any, more: Count = 2, **others: Any) -> None:
            super().__init__(*context, **others)
            self.more = more

    made = More.create_factory(more=3, lr=0.5)("cpu", "envs")
    assert (made.more, made.lr, made.device) == (3, 0.5, "cpu")


def test_a_required_hyper_parameter_may_get_a_default_from_a_subclass() -> None:
    class Small(GAEBuffer):
        size: Count = 7

    assert Small.create_factory()("cpu", None, ALGORITHM, None).size == 7
    assert Small.create_factory(5)("cpu", None, ALGORITHM, None).size == 5


def test_annotated_attributes_beside_an_init_add_no_hyper_parameters() -> None:
    class Signed(Component):
        num_epochs: int = 1

        def __init__(self, rate: float = 1.0) -> None: ...

    assert list(Signed.create_factory().hyper_parameters) == ["rate"]


def test_a_component_without_hyper_parameters_can_be_created() -> None:
    class Empty(Component): ...

    assert isinstance(Empty.create_factory()(), Empty)


def test_the_signature_and_help_show_only_the_hyper_parameters() -> None:
    signature = inspect.signature(Deeper.create_factory)
    assert list(signature.parameters) == list(Deeper.create_factory().hyper_parameters)
    assert signature.parameters["gamma"].default == 0.9
    assert signature.parameters["gamma"].annotation == UnitInterval
    assert signature.return_annotation == Factory[Deeper]
    assert list(inspect.signature(PERBuffer.create_factory).parameters)[:2] == ["size", "n_step"]
    text = pydoc.plain(pydoc.render_doc(Deeper.create_factory))
    assert "quantiles: " in text
    assert "device" not in text.split("Bind")[0]
    assert "gamma: discount factor." in pydoc.plain(pydoc.render_doc(Learner.create_factory))
    assert pickle.loads(pickle.dumps(Deeper.create_factory))() == Deeper.create_factory()


def test_the_signature_of_a_class_made_directly_shows_its_context_and_hyper_parameters() -> None:
    assert list(inspect.signature(GAEBuffer).parameters)[:6] == [
        "device", "actor", "algorithm", "envs", "size", "gae_lambda",
    ]  # fmt: skip
    assert list(inspect.signature(Sharper).parameters) == ["context", "more", "others"]


def test_a_default_that_is_assigned_to_a_class_after_its_first_use_is_that_of_later_factories() -> None:
    class Later(Component):
        rate: float = 0.5

    class Last(Later):
        size: int = 3

    assert Last.create_factory().hyper_parameters == {"rate": 0.5, "size": 3}
    Later.rate = 0.25
    assert Last.create_factory().hyper_parameters == {"rate": 0.25, "size": 3}


def test_the_decorator_of_the_version_before_warns_and_changes_nothing() -> None:
    class Plain(ReplayBuffer):
        keep: Positive = 2.0

    with pytest.warns(DeprecationWarning, match=r"^Plain: leave out @with_hyper_parameters"):
        decorated = with_hyper_parameters(Plain)
    assert decorated is Plain
    factory = decorated.create_factory(size=10, keep=3)
    assert factory("cpu", None, SimpleNamespace(gamma=0.9), None).keep == 3.0
