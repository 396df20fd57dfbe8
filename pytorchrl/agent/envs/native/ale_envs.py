"""The vector environments of the Arcade Learning Environment (ALE)."""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from pytorchrl.agent.envs.games.atari_ids import settings_of
from pytorchrl.agent.envs.other_packages import require


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
