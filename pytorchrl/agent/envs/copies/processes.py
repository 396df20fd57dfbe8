"""Copies of an environment in processes of their own, which may end, hang, or fail with any exception."""

import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from multiprocessing.connection import wait
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from pytorchrl.agent.envs.worker_signals import how_it_ended

SECONDS_TO_END = 5.0
"""Time for an interrupted step to end, after which the processes are killed."""


class ProcessEnvs(AsyncVectorEnv):
    """Copies in processes of their own, whose infos are not converted to arrays, but returned by index of the copy."""

    def step(self, actions: Any) -> Any:
        """Step every copy.

        Raises:
            RuntimeError: the process of one has ended.
        """
        try:
            return super().step(actions)
        except (EOFError, ConnectionError) as error:
            # An environment may raise these as well.
            ended = self._ended()
            if ended is None:
                raise
            raise ended from error

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close the copies; those that are in an interrupted step, which may never end, are killed after a while."""
        patience = None if self._state is AsyncState.DEFAULT else SECONDS_TO_END
        for pipe in self.parent_pipes:
            if pipe is not None:
                with suppress(OSError):  # its process may have ended
                    pipe.send(("close", None))
        end = time.monotonic() + (0.0 if terminate else patience or 0.0)
        for process in self.processes:
            process.join(None if patience is None and not terminate else max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self.parent_pipes:
            if pipe is not None:
                pipe.close()

    def _add_info(self, vector_infos: dict[Any, Any], env_info: dict[str, Any], env_num: int) -> dict[Any, Any]:
        vector_infos[env_num] = env_info
        return vector_infos

    def _ended(self) -> RuntimeError | None:
        """Return the error for a copy whose process has ended; None where all are running."""
        running = {process.sentinel: env for env, process in enumerate(self.processes) if self.parent_pipes[env]}
        for sentinel in wait(list(running), SECONDS_TO_END):
            env = running[sentinel]  # type: ignore[index]
            process = self.processes[env]
            process.join()
            return RuntimeError(
                f"VecEnv: the process of environment {env} (id {process.pid}) {how_it_ended(process.exitcode)}. A "
                f"resumed run begins new episodes"
            )
        return None


def raise_what_can_be_sent(env: gym.Env[Any, Any]) -> None:
    """Let an environment raise a RuntimeError in place of each exception that cannot be sent to another process.

    Gymnasium's vector environment would wait for it forever, or raise a TypeError of its constructor.
    """
    env.step, env.reset = _sendable(env.step), _sendable(env.reset)  # type: ignore[method-assign]


def _sendable(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except Exception as error:
            try:
                type(error)(pickle.loads(pickle.dumps(error)))
            except Exception:
                raise RuntimeError(f"{type(error).__name__}: {error}") from error
            raise

    return call
