"""What an environment is like: its spaces, and what comes of random actions."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit

from pytorchrl.agent.envs.checks import check_reset, check_step

_LISTED = 6
"""Bounds that are shown one by one."""


@dataclass(frozen=True)
class RandomPlay:
    """What came of random actions."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    terminated: int
    """Episodes that the environment ended."""
    truncated: int
    """Episodes that a limit cut."""
    rewards: tuple[float, float]
    """The smallest and the largest."""
    steps_per_second: float
    infos: tuple[str, ...]
    """Numbers in the info of the episodes' last steps."""
    differs_at: int | None
    """The first step at which another copy showed something else from the same seed and actions; None where it showed
    the same."""


def told_space(space: gym.Space[Any]) -> str:
    """A space in a line: kind, shape, dtype and bounds; of nested ones a line for each part."""
    if isinstance(space, spaces.Dict):
        return "\n".join(f"{name}: {told_space(part)}" for name, part in space.spaces.items())
    if not isinstance(space, spaces.Box):
        return str(space)
    ends = [_numbers(bound) for bound in (space.low, space.high)]
    return f"Box {space.shape} of {space.dtype}, from {ends[0]} to {ends[1]}"


def layers_of(env: gym.Env[Any, Any]) -> list[str]:
    """Names of the wrappers, the outermost first, and of the environment."""
    layers, layer = [type(env).__name__], env
    while isinstance(layer, gym.Wrapper):
        layer = layer.env
        layers.append(type(layer).__name__)
    return layers


def time_limit_of(env: gym.Env[Any, Any]) -> int | None:
    """After how many steps episodes are cut; None where nothing is known of a limit."""
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, TimeLimit):
            return int(layer._max_episode_steps)
        layer = layer.env
    return None if env.spec is None else env.spec.max_episode_steps


def play_at_random(
    make: Callable[[], gym.Env[Any, Any]], episodes: int, longest: int, seed: int, longest_replay: int = 1_000
) -> RandomPlay:
    """Play episodes by random actions, and the first one again in another copy.

    Args:
        make: makes a copy.
        episodes: how many.
        longest: steps of an episode at most.
        seed: of the episodes and actions.
        longest_replay: how many steps are played again at most.

    Raises:
        InvalidEnvironmentError: the environment breaks gymnasium's interface.
    """
    env, copy = make(), make()
    try:
        env.action_space.seed(seed)
        first: list[tuple[Any, ...]] = []
        returns, lengths, rewards, ends, infos = [], [], [], [0, 0], dict[str, None]()
        seconds = 0.0
        for number in range(episodes):
            result = env.reset(seed=seed + number)
            check_reset(result, env)
            if not number:
                first.append((None, result[0], 0.0))
            length, of_episode = 0, 0.0
            while True:
                action = env.action_space.sample()
                began = time.perf_counter()
                step = env.step(action)
                seconds += time.perf_counter() - began
                check_step(step, env)
                observation, reward, terminated, truncated, info = step
                length, of_episode = length + 1, of_episode + float(reward)
                rewards.append(float(reward))
                if not number and length <= longest_replay:
                    first.append((action, _copied(observation), float(reward)))
                if terminated or truncated or length >= longest:
                    break
            returns.append(of_episode)
            lengths.append(length)
            ends[0] += bool(terminated)
            ends[1] += bool(truncated and not terminated)
            infos |= dict.fromkeys(name for name, value in info.items() if np.isscalar(value))
        return RandomPlay(
            tuple(returns),
            tuple(lengths),
            ends[0],
            ends[1],
            (min(rewards), max(rewards)),
            len(rewards) / seconds,
            tuple(map(str, infos)),
            _first_difference(copy, first, seed),
        )
    finally:
        env.close()
        copy.close()


def complaints_of(make: Callable[[], gym.Env[Any, Any]]) -> list[str]:
    """What gymnasium's checker says of an environment below its wrappers, a line each; nothing where it is content.

    Args:
        make: makes the environment as it is, by :func:`bare_env`.
    """
    env, complaints = make(), list[str]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env.unwrapped, skip_render_check=True, skip_close_check=True)
        except Exception as error:
            # An environment can fail in any way.
            complaints.append(" ".join(str(error).split()) or type(error).__name__)
        finally:
            env.close()
    complaints += [_plain(str(warning.message)) for warning in caught if issubclass(warning.category, UserWarning)]
    return list(dict.fromkeys(complaints))


def _plain(message: str) -> str:
    """A message without gymnasium's colours and prefix."""
    text = message.replace("\x1b[33m", "").replace("\x1b[0m", "")
    return " ".join(text.removeprefix("WARN: ").split())


def _first_difference(copy: gym.Env[Any, Any], steps: Sequence[tuple[Any, ...]], seed: int) -> int | None:
    observation, _ = copy.reset(seed=seed)
    for number, (action, expected, reward) in enumerate(steps):
        paid: Any = 0.0
        if number:
            observation, paid, *_ = copy.step(action)
        if float(paid) != reward or not _equal(observation, expected):
            return number
    return None


def _copied(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {name: _copied(part) for name, part in observation.items()}
    return np.array(observation)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return all(_equal(one[name], other[name]) for name in one)
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()


def _numbers(bound: Any) -> str:
    values = np.unique(bound)
    if len(values) == 1:
        return f"{values[0]:g}"
    if bound.size <= _LISTED:
        return f"[{', '.join(f'{value:g}' for value in bound.reshape(-1))}]"
    return f"{values[0]:g} ... {values[-1]:g}"
