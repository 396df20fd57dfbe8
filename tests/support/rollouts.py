"""Rollouts with known values, and returns and advantages by their definitions, one transition at a time."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from storages.transition import ACT, ADV, DONE, DONE2, LOGP, OBS, OBS2, RET, REW, RHS, RHS2, TRUNC2, VAL
from tests.support.model import Sample, all_leaves, map_leaves

GAMMA = 0.9


class FakeActor:
    """Values an observation at ten times its first number, and records the observations that it valued."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def value(self, obs: Any, rhs: Any, done: torch.Tensor) -> torch.Tensor:
        obs = obs["x"] if isinstance(obs, dict) else obs
        assert not done.any()
        assert done.shape == (len(obs), 1)
        self.asked += obs[:, 0].tolist()
        return 10 * obs[:, :1]


class SummingActor:
    """Values observation and memory by the sum of their numbers, so that a wrong input changes the value."""

    def value(self, obs: Any, rhs: Any, done: torch.Tensor) -> torch.Tensor:
        assert not torch.is_grad_enabled()
        numbers = map_leaves({OBS: obs} if rhs is None else {OBS: obs, RHS: rhs}, torch.Tensor.numpy)
        return torch.from_numpy(summed(numbers))


def summed(numbers: Sample) -> Any:
    """(E, 1) float32: the values of :class:`SummingActor` for arrays (E, ...)."""
    parts = [leaf.reshape(len(leaf), -1).astype(np.float32).sum(1, keepdims=True) for leaf in all_leaves(numbers)]
    return 0.1 * np.sum(parts, axis=0, dtype=np.float32)


def buffer(
    cls: Any,
    size: int = 3,
    gamma: float = GAMMA,
    actor: Any = None,
    *,
    values_when_full: Iterable[str] = (),
    **hyper_parameters: Any,
) -> Any:
    factory = cls.create_factory(size=size, **hyper_parameters)
    algorithm = SimpleNamespace(gamma=gamma, values_when_full=frozenset(values_when_full))
    storage = factory("cpu", actor or FakeActor(), algorithm, None)
    storage.seed(0)
    return storage


def step(obs: Any, obs2: Any, reward: Any, *, terminated: Any = 0, truncated: Any = 0, done: Any = 0) -> Sample:
    """A step with one environment per number of the lists."""
    column = lambda value: np.atleast_1d(value).astype(np.float32)[:, None]  # noqa: E731
    flags = {DONE: done, DONE2: terminated, TRUNC2: truncated}
    envs = len(np.atleast_1d(obs))
    return {
        OBS: column(obs),
        OBS2: column(obs2),
        REW: column(reward),
        ACT: np.zeros((envs, 1), np.int64),
        VAL: 10 * column(obs),
        LOGP: column(obs),
        **{key: np.broadcast_to(column(value), (envs, 1)) for key, value in flags.items()},
    }


def by_observation(storage: Any, key: str) -> dict[float, float]:
    storage.before_gradients()
    (batch,) = storage.generate_batches(1)
    return dict(zip(batch[OBS].flatten().tolist(), batch[key].flatten().tolist(), strict=True))


def expected(steps: list[Sample], t: int, env: int, gamma: float, gae_lambda: float | None) -> dict[str, float]:
    """RET and ADV of one transition of a rollout whose VAL is :func:`summed`; no ``gae_lambda`` for plain returns."""
    value, factor = float(steps[t][VAL][env, 0]), 1.0
    total = 0.0
    for later in range(t, len(steps)):
        sample = steps[later]
        reward = float(sample[REW][env, 0])
        rest = 0.0 if sample[DONE2][env, 0] else float(_value_of_what_followed(sample)[env, 0])
        last = later == len(steps) - 1 or not goes_on(sample, steps[later + 1], env)
        if gae_lambda is None:
            total += factor * (reward + (gamma * rest if last else 0.0))
            factor *= gamma
        else:
            total += factor * (reward + gamma * rest - float(sample[VAL][env, 0]))
            factor *= gamma * gae_lambda
        if last:
            break
    return {RET: total, ADV: total - value} if gae_lambda is None else {RET: total + value, ADV: total}


def _value_of_what_followed(sample: Sample) -> Any:
    return summed({OBS: sample[OBS2]} | ({RHS: sample[RHS2]} if RHS2 in sample else {}))


def goes_on(sample: Sample, following: Sample, env: int) -> bool:
    if sample[DONE2][env, 0] or sample[TRUNC2][env, 0] or following[DONE][env, 0]:
        return False
    pairs = [(sample[OBS2], following[OBS])] + ([(sample[RHS2], following[RHS])] if RHS2 in sample else [])
    return all(
        one[env].tobytes() == two[env].tobytes()
        for left, right in pairs
        for one, two in zip(all_leaves(left), all_leaves(right), strict=True)
    )
