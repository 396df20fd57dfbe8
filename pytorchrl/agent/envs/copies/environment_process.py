"""What runs in the process of a copy of an environment."""

import pickle
from collections.abc import Callable, Sequence
from functools import wraps
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.async_vector_env import _async_worker

from pytorchrl.agent.envs.worker_signals import WorkerSignals
from pytorchrl.agent.process_seeds import seed_process


def work(
    seeds: Sequence[np.random.SeedSequence],
    signals: WorkerSignals,
    index: int,
    make: Callable[[], gym.Env[Any, Any]],
    pipe: Connection,
    *further: Any,
) -> None:
    """Step a copy as gymnasium's worker does, until the learner's process closes the pipe or has ended.

    Args:
        seeds: of the global random generators, for each copy.
        signals: that the learner's process shares.
        index: of the copy.
        make: makes it.
        pipe: to the learner's process.
        further: the other arguments of gymnasium's worker.
    """
    signals.apply()
    seed_process(seeds[index])
    try:
        _async_worker(index, make, pipe, *further)
    except (BrokenPipeError, ConnectionResetError):
        # Without this, each copy of a learner that was killed would write a traceback.
        if not _is_abandoned(pipe):
            raise


def raise_what_can_be_sent(env: gym.Env[Any, Any]) -> None:
    """Let an environment raise a RuntimeError in place of each exception that cannot be sent to another process.

    Gymnasium's vector environment would wait for it forever, or raise a TypeError of its constructor.
    """
    env.step, env.reset = _sendable(env.step), _sendable(env.reset)  # type: ignore[method-assign]


def _is_abandoned(pipe: Connection) -> bool:
    """Whether the other end of a pipe is closed."""
    try:
        while pipe.poll():
            pipe.recv_bytes()
    except (EOFError, OSError):
        return True
    return False


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
