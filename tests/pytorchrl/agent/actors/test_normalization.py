"""Observations are normalised with statistics that all copies, target networks and evaluations share."""

import copy
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import pytorchrl as prl
from pytorchrl.agent.actors.layers.normalization import (
    ObservationNormalization,
    RunningNormalization,
    add_to_moments,
    combined_moments,
    moments_since,
)
from storages.transition import OBS
from tests.support.comparison import assert_equal
from tests.support.training import train


class Uneven(gym.Env[Any, Any]):
    """Observes numbers of very different magnitudes; as a dict, also an image and a discrete value."""

    def __init__(self, kind: str = "vector", actions: Any = None) -> None:
        self.vector = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        parts = {"vector": self.vector, "pixels": spaces.Box(0, 255, (5, 5, 1), np.uint8), "gear": spaces.Discrete(3)}
        self.kind = kind
        self.observation_space = spaces.Dict(parts) if kind == "dict" else self.vector  # type: ignore[assignment]
        self.action_space = actions or spaces.Discrete(2)
        self.steps = 0

    def observation(self) -> Any:
        vector = self.np_random.normal([1000.0, 0.0, -3.0], [50.0, 0.001, 2.0])
        if self.kind == "vector":
            return vector
        return {"vector": vector, "pixels": np.full((5, 5, 1), 200, np.uint8), "gear": self.steps % 3}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observation(), float(np.mean(action)), False, self.steps >= 9, {}


BOX = spaces.Box(-1, 1, (1,), np.float32)


def first_part(scheme: prl.Scheme) -> Any:
    """The statistics of a vector, or of the first part of a dict."""
    normalization = scheme.actor.normalization
    assert normalization is not None
    return normalization.parts[0]


def scheme_of(algorithm: str, kind: str = "vector", memory: Any = None, **envs: Any) -> prl.Scheme:
    actor: dict[str, Any] = {
        "hidden_sizes": (8,), "memory": memory, "memory_size": 8, "normalize_observations": True
    }  # fmt: skip
    sequences = prl.Sequences(4) if memory else None
    env: dict[str, Any] = {"kind": kind} | ({"actions": BOX} if algorithm == "sac" else {})
    train_envs = prl.VecEnv.create_factory(Uneven, num_envs=3, env_kwargs=env, **envs)
    if algorithm == "ppo":
        return prl.Scheme(
            prl.PPO.create_factory(num_epochs=1, num_mini_batch=1, test_every=30, num_test_episodes=2),
            prl.OnPolicyActor.create_factory(**actor),
            prl.GAEBuffer.create_factory(size=10),
            train_envs,
        )
    chosen: Any = {"dqn": prl.DQN, "sac": prl.SAC}[algorithm]
    return prl.Scheme(
        chosen.create_factory(start_steps=30, mini_batch_size=4, update_every=5, test_every=30, num_test_episodes=2),
        prl.OffPolicyActor.create_factory(**actor),
        prl.ReplayBuffer.create_factory(size=100, sequences=sequences),
        train_envs,
    )


def vectors(observations: Any) -> Any:
    values = observations["vector"] if isinstance(observations, dict) else observations
    return np.asarray(values, np.float64).reshape(-1, 3)


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("memory", [None, "lstm"])
@pytest.mark.parametrize("kind", ["vector", "dict"])
@pytest.mark.parametrize("algorithm", ["dqn", "sac", "ppo"])
def test_statistics_are_those_of_all_collected_observations_and_no_others(
    algorithm: str, kind: str, memory: Any
) -> None:
    scheme = scheme_of(algorithm, kind, memory)
    collected: list[Any] = []
    insert = scheme.storage.insert_transition
    scheme.storage.insert_transition = lambda sample: (collected.append(vectors(sample[OBS])), insert(sample))[1]  # type: ignore[method-assign]
    train(scheme, 120)
    seen = np.concatenate(collected)
    assert len(seen) == 120
    part = first_part(scheme)
    assert part.count == 120
    np.testing.assert_allclose(part.mean.numpy(), seen.mean(0), rtol=1e-9)
    np.testing.assert_allclose((part.squares / part.count).numpy(), seen.var(0), rtol=1e-9)
    np.testing.assert_allclose(part.shift.numpy(), seen.mean(0), rtol=1e-6)
    np.testing.assert_allclose(part.scale.numpy(), 1 / np.sqrt(seen.var(0) + 1e-8), rtol=1e-6)


def test_normalised_observations_match_numpy_and_are_clipped_to_ten() -> None:
    generator = np.random.default_rng(0)
    space = spaces.Dict(a=spaces.Box(-1, 1, (2, 2), np.float32), b=spaces.Box(0, 255, (3,), np.uint8))
    normalization = ObservationNormalization(space)
    values = generator.normal(5, [[1, 100], [0.01, 3]], (1000, 2, 2)).astype(np.float32)
    for rows in np.split(values, [1, 4, 500]):
        normalization.add({"a": torch.from_numpy(rows), "b": torch.zeros(len(rows), 3, dtype=torch.uint8)})
    normalization.use_newest()
    new = generator.normal(5, 50, (6, 2, 2)).astype(np.float32)
    pixels = torch.full((6, 3), 7, dtype=torch.uint8)
    out = normalization({"a": torch.from_numpy(new), "b": pixels})
    expected = np.clip((new - values.mean(0, dtype=float)) / np.sqrt(values.var(0, dtype=float) + 1e-8), -10, 10)
    np.testing.assert_allclose(out["a"].numpy(), expected, rtol=1e-3, atol=1e-4)
    assert out["b"] is pixels
    assert out["a"].abs().max() == 10


@pytest.mark.parametrize("algorithm", ["dqn", "sac", "ppo"])
def test_evaluation_changes_no_statistics(algorithm: str) -> None:
    scheme = scheme_of(algorithm)
    scheme.collect(45)
    before = copy.deepcopy(scheme.algorithm.get_weights())
    scheme.evaluate(3)
    assert_equal(before, scheme.algorithm.get_weights())


def test_updates_use_the_statistics_with_which_the_rollout_was_collected() -> None:
    scheme = scheme_of("ppo")
    part = first_part(scheme)
    for _ in range(3):
        scheme.collect(scheme.steps + 30)
        in_use = part.shift.clone()
        (info,) = scheme.update()
        assert abs(float(info["kl"])) < 1e-6
        assert not torch.equal(part.shift, in_use)


class Faulty(Uneven):
    """Its third episode begins with an observation that is not finite."""

    def __init__(self, number: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.number, self.episodes = number, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        self.episodes += 1
        if self.episodes == 3:
            vectors(observation)[..., 1] = self.number
        return observation, info


def faulty_scheme(kind: str, number: float, **storage: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.DQN.create_factory(start_steps=30, mini_batch_size=4, update_every=5),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True),
        prl.ReplayBuffer.create_factory(size=100, **storage),
        prl.VecEnv.create_factory(Faulty, env_kwargs={"kind": kind, "number": number}),
    )


@pytest.mark.filterwarnings("ignore:.*not finite")
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["vector", "dict"])
def test_a_nonfinite_observation_is_refused_and_changes_no_statistics(kind: str, number: float) -> None:
    scheme = faulty_scheme(kind, number)
    # Two episodes of nine steps.
    train(scheme, 18)
    part = first_part(scheme)
    before = copy.deepcopy(part.state_dict())
    assert before["count"] == 18
    with pytest.raises(prl.SampleError, match="Observation"):
        train(scheme, 20)
    assert_equal(part.state_dict(), before)


@pytest.mark.filterwarnings("ignore:.*not finite")
def test_statistics_go_on_after_an_observation_that_is_not_finite_and_is_kept() -> None:
    scheme = faulty_scheme("vector", np.inf, allow_nonfinite=True)
    train(scheme, 29)
    part = first_part(scheme)
    assert part.count == 28
    assert all(bool(value.isfinite().all()) for value in part.state_dict().values())


def test_observations_without_floating_point_numbers_are_refused() -> None:
    envs: Any = SimpleNamespace(observation_space=spaces.Box(0, 255, (84, 84), np.uint8), action_space=BOX)
    with pytest.raises(
        ValueError, match="normalize_observations: there are no floating-point numbers to normalise in Box"
    ):
        prl.OffPolicyActor.create_factory(normalize_observations=True)("cpu", envs)


@given(st.integers(1, 50), st.integers(0, 50), st.floats(-1e3, 1e3), st.floats(0, 1e3), st.integers(0, 2**32 - 1))
def test_moments_of_two_sets_of_numbers_are_combined_and_separated_again(
    one: int, other: int, mean: float, deviation: float, seed: int
) -> None:
    values = torch.from_numpy(np.random.default_rng(seed).normal(mean, deviation, (one + other, 2)))
    nothing: Any = [torch.zeros(shape, dtype=torch.float64) for shape in ((), 2, 2)]
    first = add_to_moments(nothing, values[:one])
    both = RunningNormalization((2,))
    both.add(values[:one])
    further = add_to_moments(nothing, values[one:]) if other else nothing
    both.add_moments(further)
    count, numbers_mean, squares = both.moments
    size = float(mean**2 + deviation**2) * (one + other) + 1
    assert count == one + other
    torch.testing.assert_close(numbers_mean, values.mean(0))
    torch.testing.assert_close(squares, ((values - values.mean(0)) ** 2).sum(0), rtol=1e-9, atol=1e-12 * size)
    number, mean_since, squares_since = moments_since(first, both.moments)
    assert number == other
    if other:
        torch.testing.assert_close(mean_since, further[1], rtol=1e-9, atol=1e-9 * size**0.5)
        torch.testing.assert_close(squares_since, further[2], rtol=1e-9, atol=1e-12 * size)
        assert combined_moments(nothing, further)[0] == other
