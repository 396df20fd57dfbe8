"""Description of an environment: its layers, its spaces, and episodes with random actions."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit

from pytorchrl.agent.envs.checks import check_reset, check_step
from pytorchrl.agent.envs.copies.episode_recorder import EpisodeRecord
from pytorchrl.agent.envs.spaces import choices_of, random_actions
from pytorchrl.agent.envs.vec_env import VecEnv

_LISTED = 6
"""Maximum number of bounds that are listed."""


@dataclass(frozen=True)
class RandomPlay:
    """Statistics of episodes with random actions."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    terminated: int
    """Number of episodes that the environment terminated."""
    truncated: int
    """Number of episodes that a limit truncated."""
    rewards: tuple[float, float]
    """The smallest and the largest."""
    steps_per_second: float
    infos: tuple[str, ...]
    """Keys of the scalars in the info of the episodes' last steps."""
    outside: tuple[str, ...]
    """Which numbers of observations were not finite or outside the bounds of the space, a line each."""
    obeyed_mask: str | None
    """Where the mask of allowed actions was found, among which the random ones were drawn; None without one."""
    differs_at: int | None
    """First step at which another copy, with the same seed and actions, gave another observation or reward; None if
    there is none."""


def format_space(space: gym.Space[Any]) -> str:
    """Describe a space in a line: kind, shape, dtype and bounds; a Dict in a line for each part."""
    if isinstance(space, spaces.Dict):
        return "\n".join(f"{name}: {format_space(part)}" for name, part in space.spaces.items())
    if not isinstance(space, spaces.Box):
        return str(space)
    ends = [_numbers(bound) for bound in (space.low, space.high)]
    return f"Box {space.shape} of {space.dtype}, from {ends[0]} to {ends[1]}"


def layers_of(env: gym.Env[Any, Any]) -> list[str]:
    """Return the names of the wrappers, the outermost first, and of the environment."""
    layers, layer = [type(env).__name__], env
    while isinstance(layer, gym.Wrapper):
        layer = layer.env
        layers.append(type(layer).__name__)
    return layers


def time_limit_of(env: gym.Env[Any, Any]) -> int | None:
    """Return the number of steps after which episodes are truncated; None if no limit is known."""
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, TimeLimit):
            return int(layer._max_episode_steps)
        layer = layer.env
    return None if env.spec is None else env.spec.max_episode_steps


def play_at_random(
    make: Callable[[], gym.Env[Any, Any]], episodes: int, longest: int, seed: int, longest_replay: int = 1_000
) -> RandomPlay:
    """Play episodes with random actions, and replay the first one in another copy.

    Args:
        make: makes a copy.
        episodes: number of episodes.
        longest: maximum number of steps of an episode.
        seed: of the episodes and actions.
        longest_replay: maximum number of steps that are replayed.

    Raises:
        InvalidEnvironmentError: the environment breaks gymnasium's interface.
    """
    env, copy = make(), make()
    try:
        env.action_space.seed(seed)
        bounds = BoundsCheck(env.observation_space)
        first: list[tuple[Any, ...]] = []
        returns, lengths, rewards, ends, infos = [], [], [], [0, 0], dict[str, None]()
        seconds = 0.0
        masked_by: str | None = None
        for number in range(episodes):
            result = env.reset(seed=seed + number)
            with warnings.catch_warnings(action="ignore"):  # of bounds, which the other check sums up
                check_reset(result, env)
            bounds.add(result[0], 0)
            if not number:
                first.append((None, result[0], 0.0))
            length, of_episode = 0, 0.0
            observation, info = result
            while True:
                mask = find_action_mask(env, observation, info)
                masked_by = masked_by or (None if mask is None else mask.place)
                action = env.action_space.sample() if mask is None else env.action_space.sample(mask=mask.of_sampling)
                began = time.perf_counter()
                with _hint_at_array_actions(env.action_space):
                    step = env.step(action)
                seconds += time.perf_counter() - began
                with warnings.catch_warnings(action="ignore"):
                    check_step(step, env)
                observation, reward, terminated, truncated, info = step
                bounds.add(observation, length + 1)
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
            tuple(bounds.complaints()),
            masked_by,
            _first_difference(copy, first, seed),
        )
    finally:
        env.close()
        copy.close()


class ActionMask(NamedTuple):
    """The actions that an environment allows."""

    place: str
    """Where it is: 'info["action_mask"]', "action_masks()" or "the part action_mask of observations"."""
    of_sampling: Any
    """As the method ``sample`` of the action space takes it."""


def find_action_mask(env: gym.Env[Any, Any], observation: Any, info: Mapping[str, Any]) -> ActionMask | None:
    """Return the mask of allowed actions; None where there is none that the action space can take, or it allows none.

    It is looked for where :class:`ObserveActionMask` does, and in the part "action_mask" of dict observations.
    """
    space = env.action_space
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return None
    if _MASK in info:
        place, given = f'info["{_MASK}"]', info[_MASK]
    elif env.has_wrapper_attr(_MASKS):
        place, given = f"{_MASKS}()", env.get_wrapper_attr(_MASKS)()
    elif isinstance(observation, Mapping) and _MASK in observation:
        place, given = f"the part {_MASK} of observations", observation[_MASK]
    else:
        return None
    flags, counts = (np.asarray(given).reshape(-1) != 0).astype(np.int8), choices_of(space)
    if flags.size != sum(counts) or not flags.any():
        return None
    if isinstance(space, spaces.Discrete):
        return ActionMask(place, flags)
    return ActionMask(place, tuple(np.split(flags, np.cumsum(counts)[:-1])))


_MASK, _MASKS = "action_mask", "action_masks"


@contextmanager
def _hint_at_array_actions(space: gym.Space[Any]) -> Iterator[None]:
    """Add to an error of numpy's that actions of a Box are arrays, from which numbers are taken."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if isinstance(space, spaces.Box) and space.shape and any(text in str(error) for text in _ARRAYS_FOR_NUMBERS):
            error.add_note(
                f"An action of {space} is an array of shape {space.shape}, and so is what is computed from it, such as "
                f"a part of the state; take its numbers by action[0], ..."
            )
        raise


_ARRAYS_FOR_NUMBERS = ("inhomogeneous shape", "array element with a sequence", "can be converted to Python scalars")
"""Parts of numpy's messages about an array in the place of a number."""

_NAMED = 4
"""Maximum number of numbers outside the bounds that are named."""


class BoundsCheck:
    """Collect the numbers of observations that are not finite, or outside the bounds of a Box.

    Args:
        space: of observations, a Box or a Dict whose parts may be; others have no bounds.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        self._boxes = {name: part for name, part in parts.items() if isinstance(part, spaces.Box)}
        self._found: dict[tuple[str, tuple[int, ...]], list[float]] = {}
        """Smallest and largest number outside the bounds, and the first step, by part and index."""

    def add(self, observation: Any, step: int) -> None:
        """Check the observation after a step of an episode; 0 for that of the reset."""
        for name, box in self._boxes.items():
            values = np.asarray(observation[name] if name else observation)
            is_outside = ~((values >= box.low) & (values <= box.high) & np.isfinite(values))
            for index in map(tuple, np.argwhere(is_outside).tolist() if is_outside.any() else ()):
                value = float(values[index])
                found = self._found.setdefault((name, index), [value, value, step])
                found[:2] = np.fmin(found[0], value), np.fmax(found[1], value)

    def complaints(self) -> list[str]:
        """Return which numbers were outside, from which values to which, a line each."""
        lines = []
        for (name, index), (least, most, step) in list(self._found.items())[:_NAMED]:
            box, label = self._boxes[name], f"{name}{list(index)}" if index else name or "the number"
            values = f"{least:g}" if least == most else f"{least:g} to {most:g}"
            bounds = f"{box.low[index]:g} to {box.high[index]:g}"
            lines.append(f"{label}: {values}, the bounds are {bounds}; first in step {step:g} of an episode")
        more = len(self._found) - len(lines)
        return [*lines, f"and {more:,} more numbers"] if more else lines


def env_warnings(make: Callable[[], gym.Env[Any, Any]]) -> list[str]:
    """Return the complaints of gymnasium's checker about an environment below its wrappers, a line each.

    Args:
        make: makes the environment without the toolkit's wrappers, by :func:`bare_env`.
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
    """Remove gymnasium's colours and prefix from a message."""
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


_MOST_SECONDS = 10.0


@dataclass(frozen=True)
class VectorPlay:
    """Statistics of episodes with random actions."""

    returns: tuple[float, ...]
    """Of the episodes that ended."""
    lengths: tuple[int, ...]
    rewards: tuple[float, float]
    """The smallest and the largest."""
    steps_per_second: float
    """Transitions of all environments together."""


def play_vector_at_random(envs: VecEnv, episodes: int, seed: int) -> VectorPlay:
    """Step with random actions until a number of episodes have ended, or ten seconds have passed.

    Args:
        envs: reset here.
        episodes: number of episodes.
        seed: of the environments and of the actions.

    Raises:
        InvalidEnvironmentError: the environment breaks gymnasium's interface.
    """
    random = np.random.default_rng(seed)
    envs.reset(seed)
    ended: list[EpisodeRecord] = []
    rewards, transitions, seconds = [np.inf, -np.inf], 0, 0.0
    while len(ended) < episodes and seconds < _MOST_SECONDS:
        actions = random_actions(envs.action_space, envs.num_envs, random)
        began = time.perf_counter()
        step = envs.step(torch.from_numpy(actions) if envs.takes_tensors else actions)
        seconds += time.perf_counter() - began
        paid = step.reward if step.made is None else step.reward[step.made]
        transitions += paid.size
        if paid.size:
            rewards = [min(rewards[0], float(paid.min())), max(rewards[1], float(paid.max()))]
        ended += envs.finished_episodes
    ended = ended[:episodes]
    return VectorPlay(
        tuple(one.episode_return for one in ended),
        tuple(one.length for one in ended),
        (rewards[0], rewards[1]),
        transitions / seconds,
    )
