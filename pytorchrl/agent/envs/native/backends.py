"""Vector environments that EnvPool and ale-py make."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from pytorchrl.agent.envs.native.autoreset import copied
from pytorchrl.agent.envs.other_packages import require, settings_of


class EnvPoolEnvs(VectorEnv[Any, Any, Any]):
    """Environments that EnvPool steps in threads, in C++.

    Weng et al., "EnvPool: A Highly Parallel Reinforcement Learning Environment Execution Engine" (arXiv 2206.10558).

    EnvPool takes seeds only when a pool is made, so that a reset with a seed makes a new pool.

    Args:
        env_id: an id of EnvPool's, "Pong-v5".
        num_envs: number of environments.
        settings: of ``envpool.make``, such as ``num_threads`` or ``episodic_life``.

    Raises:
        gymnasium.error.DependencyNotInstalled: envpool is not installed.
        ValueError: there is no such id or setting, or ``batch_size`` is not ``num_envs``.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012 - gymnasium's own way
    # gymnasium closes a vector environment whose settings were refused, too.
    _pool: Any = None

    def __init__(self, env_id: str, num_envs: int, **settings: Any) -> None:
        if settings.get("batch_size", num_envs) != num_envs:
            raise ValueError(
                f"EnvPoolEnvs: batch_size={settings['batch_size']} steps some of {num_envs} environments at a time; "
                f"all are stepped together here, leave it out"
            )
        self._envpool: Any = require("envpool", "EnvPoolEnvs")
        self._id, self._settings = env_id, {**settings, "num_envs": num_envs}
        self.num_envs = num_envs
        try:
            made = self._envpool.make_spec(env_id, **self._settings)
        except (AssertionError, TypeError) as error:
            raise ValueError(f"EnvPoolEnvs: envpool cannot make {env_id!r} with {settings}: {error}") from None
        with warnings.catch_warnings():
            # gymnasium warns of bounds in double precision of observations in single precision.
            warnings.simplefilter("ignore")
            self.single_observation_space = made.gymnasium_observation_space
            self.single_action_space = made.gymnasium_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.stacked_frames = int(getattr(made.config, "stack_num", 0))
        """Number of frames that are stacked in an observation; 0 without a stack."""
        self._action_dtype = np.dtype(made.action_array_spec["action"].dtype)
        self._observation: Any = None
        self._actions: NDArray[Any] = np.zeros(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin episodes, only in the environments that ``options["reset_mask"]`` (E,) selects where it is given.

        The episodes of these must have ended in the last step.
        """
        mask = None if options is None else options.get("reset_mask")
        if mask is not None:
            return self._reset_some(np.flatnonzero(mask).astype(np.int32))
        if seed is not None or self._pool is None:
            self._make_pool(seed)
        self._observation, infos = self._pool.reset()
        return self._observation, _without_players(infos)

    def step(self, actions: NDArray[Any]) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every environment."""
        self._actions = actions.astype(self._action_dtype, copy=False)
        result = self._pool.step(self._actions)
        self._observation, reward, terminated, truncated, infos = result
        return self._observation, reward, terminated, truncated, _without_players(infos)

    def own_episode(
        self,
        reward: NDArray[Any],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        infos: Mapping[str, Any],
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return rewards and episode ends (E,) of the game itself, without reward clipping and episodic lives."""
        if "reward" not in infos or "terminated" not in infos:
            return reward, terminated | truncated
        return infos["reward"], (infos["terminated"] != 0) | truncated

    def close_extras(self, **kwargs: Any) -> None:
        """End EnvPool's threads."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _make_pool(self, seed: int | None) -> None:
        self.close_extras()
        seeds = {}
        if seed is not None:
            seeds = {"seed": [int(word) >> 1 for word in np.random.SeedSequence(seed).generate_state(self.num_envs)]}
        self._pool = self._envpool.make(self._id, env_type="gymnasium", **self._settings, **seeds)
        with warnings.catch_warnings():
            # As above; the pool asks for its space once.
            warnings.simplefilter("ignore")
            assert self._pool.observation_space is not None

    def _reset_some(self, envs: NDArray[np.int32]) -> tuple[Any, dict[str, Any]]:
        # The step after an end begins the next episode, which continues the game after the loss of a life; a reset
        # would restart the game.
        begun, *_, infos = self._pool.step(self._actions[envs], envs)
        self._observation = copied(self._observation)
        _put(self._observation, infos["env_id"], begun)
        return self._observation, {}


def _put(observation: Any, envs: NDArray[np.int32], begun: Any) -> None:
    if isinstance(observation, Mapping):
        for name, part in observation.items():
            _put(part, envs, begun[name])
    else:
        observation[envs] = begun


def _without_players(infos: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in infos.items() if name != "players"}


class AleEnvs(VectorEnv[NDArray[np.uint8], NDArray[np.int64], NDArray[Any]]):
    """Games that ALE steps and preprocesses in threads, in C++; autoreset mode DISABLED.

    Rewards are the game's unless ``reward_clipping=True`` is given; returns are then sums of clipped rewards. With
    ``episodic_life=True`` ALE restarts the game at the loss of a life, so that returns are those of one life.

    Args:
        env_id: an id of Atari, "ALE/Pong-v5" or "PongNoFrameskip-v4"; it defines the game, the probability of sticky
            actions, the action set and the maximum length of a game.
        num_envs: number of games.
        settings: of ``ale_py.vector_env.AtariVectorEnv``, such as ``num_threads`` or ``episodic_life``.

    Raises:
        gymnasium.error.DependencyNotInstalled: ale-py is not installed.
        ValueError: it is not an id of Atari, or there is no such setting.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012 - gymnasium's own way
    # gymnasium closes a vector environment whose settings were refused, too.
    _games: Any = None

    def __init__(self, env_id: str, num_envs: int, **settings: Any) -> None:
        made_of = settings_of(env_id, "AleEnvs")
        for name in ("autoreset_mode", "batch_size"):
            if name in settings:
                raise ValueError(f"AleEnvs: {name} is set here, so that all games are stepped together; leave it out")
        require("ale_py", "AleEnvs").ALEInterface.setLoggerMode(require("ale_py", "AleEnvs").LoggerMode.Error)
        vector: Any = require("ale_py.vector_env", "AleEnvs").AtariVectorEnv
        settings = {**made_of, "reward_clipping": False, "num_envs": num_envs, **settings}
        try:
            self._games = vector(**settings, autoreset_mode=AutoresetMode.NEXT_STEP)
        except TypeError as error:
            raise ValueError(f"AleEnvs: {error}") from None
        self.num_envs = num_envs
        self.single_observation_space = self._games.single_observation_space
        self.single_action_space = self._games.single_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.stacked_frames = int(self._games.single_observation_space.shape[0])
        """Number of frames that are stacked in an observation."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin games, only in the environments that ``options["reset_mask"]`` (E,) selects where it is given."""
        result: tuple[Any, dict[str, Any]] = self._games.reset(seed=seed, options=options)
        return result

    def step(self, actions: NDArray[np.int64]) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every game."""
        result: tuple[Any, Any, Any, Any, dict[str, Any]] = self._games.step(actions)
        return result

    def close_extras(self, **kwargs: Any) -> None:
        """Close the games."""
        if self._games is not None:
            self._games.close()
