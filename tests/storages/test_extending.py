"""User-defined subclasses extend storages without repeating their hyper-parameters."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from storages import GAEBuffer, PERBuffer, ReplayBuffer
from storages.component.factory import Component, hyper_parameters_of
from storages.component.hyper_parameters import Count
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


def test_a_subclass_that_drops_hyper_parameters_of_its_base_can_be_used() -> None:
    factory = Clipped.create_factory(100, clip=0.5)
    assert factory.config == {"name": "Clipped", "hyper_parameters": {"size": 100, "clip": 0.5}}
    storage = factory("cpu", None, ALGORITHM, None)
    storage.insert_transition(Stream(2, "vector", False, np.random.default_rng(0)).step())
    assert len(next(storage.generate_batches(1, 4))[REW]) == 4
    with pytest.raises(TypeError, match="Clipped: unknown hyper-parameter 'directory'; there are size, clip"):
        Clipped.create_factory(100, directory="here")
    assert Fixed.create_factory()("cpu", None, ALGORITHM, None).size == 7


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
def test_hyper_parameter_names_of_other_libraries_are_refused_with_the_name_here(
    cls: Any, name: str, hint: str
) -> None:
    with pytest.raises(TypeError, match=f"{cls.__name__}: unknown hyper-parameter '{name}'; {hint}"):
        cls.create_factory(size=5, **{name: 1})


class ClippedRewards(ReplayBuffer):
    """Clips all rewards, as the documentation shows."""

    def insert_transition(self, sample: Any, envs: Any = None) -> None:
        super().insert_transition({**sample, REW: sample[REW].clip(-1, 1)}, envs)


@pytest.mark.parametrize("size", [20, 6])
def test_an_insertion_of_ones_own_receives_every_step_of_a_slice_once(size: int) -> None:
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
