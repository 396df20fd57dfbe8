"""Flattening of nested Dict and Tuple observations to one dict of arrays, which storages and actors take."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import gymnasium as gym
from gymnasium import spaces

from pytorchrl.agent.envs.spaces import UnsupportedSpaceError

SEPARATOR = "/"
"""Joins the keys of Dicts and the positions in Tuples that lead to a part: ``camera/0``, as in data sets."""

Path: TypeAlias = tuple[Any, ...]


def is_nested(space: gym.Space[Any]) -> bool:
    """Whether a space is a Tuple, or a Dict with a Dict or a Tuple in it."""
    if isinstance(space, spaces.Dict):
        return any(isinstance(part, spaces.Dict | spaces.Tuple) for part in space.spaces.values())
    return isinstance(space, spaces.Tuple)


def flattened(observation: Any) -> Any:
    """Flatten an observation of a nested space to one dict of arrays; return any other as it is."""
    if isinstance(observation, tuple):
        observation = dict(enumerate(observation))
    if not isinstance(observation, Mapping):
        return observation
    flat: dict[str, Any] = {}
    for key, value in observation.items():
        part = flattened(value)
        if isinstance(part, Mapping):
            flat |= {f"{key}{SEPARATOR}{name}": leaf for name, leaf in part.items()}
        else:
            flat[str(key)] = part
    return flat


class Flattening:
    """Flatten observations of a nested space to dicts of arrays; those of any other space stay as they are.

    Args:
        space: of one observation, or of a batch of them.
        owner: named in errors.

    Raises:
        UnsupportedSpaceError: it has no parts, or two that would have the same name.
    """

    def __init__(self, space: gym.Space[Any], owner: str) -> None:
        self.space = space
        """Space of the flattened observations."""
        self._paths: dict[str, Path] = {}
        if not is_nested(space):
            return
        parts: list[tuple[str, gym.Space[Any]]] = []
        for path, part in _parts(space, ()):
            name = _name(path)
            if name in self._paths:
                raise UnsupportedSpaceError(
                    f"{owner}: two parts of the observation space would both be named {name!r}: "
                    f"{_text(self._paths[name])} and {_text(path)}; rename one of them by a wrapper"
                )
            self._paths[name] = path
            parts.append((name, part))
        if not parts:
            raise UnsupportedSpaceError(f"{owner}: the observation space {space} has no parts")
        self.space = spaces.Dict(parts)

    def __call__(self, observation: Any) -> Any:
        """Flatten an observation to one of :attr:`space`; its arrays are not copied."""
        if not self._paths:
            return observation
        return {name: _part(observation, path) for name, path in self._paths.items()}


class FlatObservation(gym.ObservationWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Flatten observations of nested dicts and tuples to one dict of arrays.

    Args:
        env: whose observations are nested.

    Raises:
        UnsupportedSpaceError: they have no parts, or two that would have the same name.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._flattening = Flattening(env.observation_space, type(self).__name__)
        self.observation_space = self._flattening.space

    def observation(self, observation: Any) -> Any:
        """Flatten an observation."""
        return self._flattening(observation)


def named_parts(space: gym.Space[Any]) -> list[tuple[str, gym.Space[Any]]]:
    """Return the parts of a nested space that have no parts themselves, with their names, which may be equal."""
    return [(_name(path), part) for path, part in _parts(space, ())]


def _name(path: Path) -> str:
    return SEPARATOR.join(map(str, path))


def _parts(space: gym.Space[Any], path: Path) -> Iterator[tuple[Path, gym.Space[Any]]]:
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _parts(part, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for position, part in enumerate(space.spaces):
            yield from _parts(part, (*path, position))
    else:
        yield path, space


def _part(observation: Any, path: Path) -> Any:
    for key in path:
        observation = observation[key]
    return observation


def _text(path: Path) -> str:
    return "".join(f"[{key!r}]" for key in path)
