"""User-defined subclasses extend storages without repeating their hyper-parameters."""

import pickle
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from storages import GAEBuffer, MultiStepRows, PERBuffer, ReplayBuffer, Sequences
from storages.component.factory import Component, hyper_parameters_of
from storages.component.hyper_parameters import Count, UnitInterval
from storages.core.windows.segments import SequenceWindow
from storages.transition import REW
from tests.support.model import Stream

ALGORITHM = SimpleNamespace(gamma=0.9)


class Clipped(ReplayBuffer):
    """Declares its hyper-parameters itself and inherits none."""

    def __init__(self, device: Any, actor: Any, algorithm: Any, envs: Any, size: Count, clip: float = 1.0) -> None:
        self.clip = clip
        super().__init__(device, actor, algorithm, envs, size)


class Fixed(GAEBuffer):
    """Sets its size itself."""

    def __init__(self, device: Any, actor: Any, algorithm: Any, envs: Any) -> None:
        super().__init__(device, actor, algorithm, envs, 7)


class Scaled(PERBuffer):
    """Inherits all hyper-parameters, with a different default for ``alpha``."""

    def __init__(
        self,
        device: Any,
        actor: Any,
        algorithm: Any,
        envs: Any,
        scale: UnitInterval = 0.5,
        alpha: UnitInterval = 0.6,
        **others: Any,
    ) -> None:
        self.scale = scale
        super().__init__(device, actor, algorithm, envs, alpha=alpha, **others)

    def insert_transition(self, sample: Any, envs: Any = None) -> None:
        super().insert_transition({**sample, REW: sample[REW] * self.scale}, envs)


class Twice(Scaled):
    """Inherits the hyper-parameters that its base inherits."""

    def __init__(self, *context: Any, more: int = 2, **others: Any) -> None:
        self.more = more
        super().__init__(*context, **others)


def test_a_subclass_that_drops_hyper_parameters_of_its_base_can_be_used() -> None:
    factory = Clipped.create_factory(100, clip=0.5)
    assert factory.config == {"name": "Clipped", "hyper_parameters": {"size": 100, "clip": 0.5}}
    storage = factory("cpu", None, ALGORITHM, None)
    storage.insert_transition(Stream(2, "vector", False, np.random.default_rng(0)).step())
    assert len(next(storage.generate_batches(1, 4))[REW]) == 4
    with pytest.raises(TypeError, match="Clipped: unknown hyper-parameter 'directory'; there are size, clip"):
        Clipped.create_factory(100, directory="here")
    assert Fixed.create_factory()("cpu", None, ALGORITHM, None).size == 7


class Longer(Clipped):
    """Adds an attribute to the hyper-parameters of an ``__init__``, and changes the default of another."""

    extra: Count = 3
    clip: float = 0.25


def test_an_attribute_of_a_subclass_adds_to_the_hyper_parameters_of_an_init() -> None:
    factory = Longer.create_factory(100, extra=2)
    assert factory.hyper_parameters == {"size": 100, "extra": 2, "clip": 0.25}
    storage = factory("cpu", None, ALGORITHM, None)
    assert (storage.size, storage.clip, storage.extra) == (100, 0.25, 2)


@pytest.mark.parametrize("cls", [Scaled, Twice])
def test_a_subclass_that_passes_keywords_on_has_the_hyper_parameters_of_its_base(cls: Any) -> None:
    assert hyper_parameters_of(cls).keys() == {*hyper_parameters_of(PERBuffer), "scale"} | (
        {"more"} if cls is Twice else set()
    )
    factory = cls.create_factory(size=9, n_step=2, scale=0.25, sequences=Sequences(2))
    config = factory.config["hyper_parameters"]
    assert (config["alpha"], config["beta"], config["n_step"], config["scale"]) == (0.6, 1.0, 2, 0.25)
    assert cls.create_factory(**(config | {"sequences": Sequences(2)})) == factory
    storage = pickle.loads(pickle.dumps(factory))("cpu", None, ALGORITHM, None)
    assert (storage.size, storage.alpha, storage.scale, storage.n_step) == (9, 0.6, 0.25, 2)
    storage.update_storage_parameter("beta", 0.5)
    assert storage.beta == 0.5
    storage.insert_transition(Stream(1, "vector", False, np.random.default_rng(0)).step())
    assert len(storage) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"size": 9, "stratify": True}, TypeError, "unknown hyper-parameter 'stratify'; did you mean 'stratified'"),
        ({"size": 0}, ValueError, "Scaled: size must be at least 1, got 0"),
        ({}, TypeError, "Scaled: missing a required argument: 'size'"),
        ({"size": 9, "others": {}}, TypeError, "Scaled: unknown hyper-parameter 'others'"),
        ({"size": 2, "sequences": Sequences(4)}, ValueError, "Scaled: size must be at least"),
        ({"size": 9, "device": "cpu"}, TypeError, "Scaled: unknown hyper-parameter 'device'"),
    ],
)
def test_inherited_hyper_parameters_are_validated(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        Scaled.create_factory(**arguments)


def test_keywords_add_no_hyper_parameters_without_a_base_that_has_some() -> None:
    class Loose(Component):
        def __init__(self, rate: float = 1.0, **unused: Any) -> None: ...

    assert list(hyper_parameters_of(Loose)) == ["rate"]
    with pytest.raises(TypeError, match="Loose: unknown hyper-parameter 'size'; there are rate"):
        Loose.create_factory(size=3)


@pytest.mark.parametrize(
    ("cls", "name", "hint"),
    [
        (PERBuffer, "buffer_size", "here it is size, in steps; size \\* num_envs transitions fit"),
        (PERBuffer, "n_steps", "here it is n_step"),
        (GAEBuffer, "n_steps", "here it is size, the steps of a rollout"),
        (ReplayBuffer, "n_steps", "here it is n_step of NStepReplayBuffer"),
        (ReplayBuffer, "gae_lam", "there are size"),
        (GAEBuffer, "lam", "here it is gae_lambda"),
        (ReplayBuffer, "batch_size", "here it is mini_batch_size or num_mini_batch of the algorithm"),
    ],
)
def test_hyper_parameter_names_of_other_libraries_raise_an_error_with_the_name_used_here(
    cls: Any, name: str, hint: str
) -> None:
    with pytest.raises(TypeError, match=f"{cls.__name__}: unknown hyper-parameter '{name}'; {hint}"):
        cls.create_factory(size=5, **{name: 1})


class ClippedRewards(ReplayBuffer):
    """Clips all rewards, as the documentation shows."""

    def insert_transition(self, sample: Any, envs: Any = None) -> None:
        super().insert_transition({**sample, REW: sample[REW].clip(-1, 1)}, envs)


@pytest.mark.parametrize("size", [20, 6])
def test_an_insertion_of_ones_own_receives_every_step_of_slices_and_of_some_environments_once(size: int) -> None:
    plain, clipped = (
        cls.create_factory(size=size)("cpu", None, ALGORITHM, None) for cls in (ReplayBuffer, ClippedRewards)
    )
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for step in range(14):
        sample = stream.step() | {REW: np.full((2, 1), 1.0 + step, np.float32)}
        plain.insert_transition(sample)
    data = plain.get_all_buffer_data()
    clipped.insert_data_slice(data)
    assert len(clipped) == len(plain)
    assert (clipped.get_all_buffer_data()[REW] == 1).all()
    skipping = {**data, "Skipped": np.random.default_rng(0).random(data[REW].shape) < 0.3}
    clipped.insert_data_slice(skipping)
    assert (clipped.get_all_buffer_data()[REW] == 1).all()


@dataclass(frozen=True)
class Pairs(MultiStepRows):
    """Rows of a step and the one after it."""

    eta: UnitInterval = 0.9
    least_size = longest_row = 2


class PairsBuffer(PERBuffer):
    def make_window(self) -> Any:
        if isinstance(self.sequences, Pairs):
            return SequenceWindow(Sequences(2), self.make_steps())
        return super().make_window()


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_setting_of_ones_own_beside_sequences_decides_the_rows_of_batches(alpha: float) -> None:
    factory = PairsBuffer.create_factory(size=50, alpha=alpha, sequences=Pairs())
    storage = factory("cpu", None, ALGORITHM, SimpleNamespace(num_envs=2))
    stream = Stream(2, "vector", recurrent=False, generator=np.random.default_rng(0))
    for _ in range(30):
        storage.insert_transition(stream.step())
    for batch in storage.generate_batches(3, 8):
        assert batch[REW].shape == (2, 8, 1)
        storage.after_gradients(batch, {"Errors": batch[REW].abs()})
    assert factory.config["hyper_parameters"]["sequences"] == {"name": "Pairs", "hyper_parameters": {"eta": 0.9}}
    with pytest.raises(ValueError, match=r"size must be at least 2 to draw Pairs\(eta=0.9\), got 1"):
        PairsBuffer.create_factory(size=1, sequences=Pairs())
    with pytest.raises(TypeError, match=r"there is no window for Pairs.*override make_window"):
        PERBuffer.create_factory(size=50, sequences=Pairs())("cpu", None, ALGORITHM, SimpleNamespace(num_envs=2))
