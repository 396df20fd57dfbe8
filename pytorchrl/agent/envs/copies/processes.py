"""Copies of an environment in processes of their own, which may end, hang, or fail with any exception."""

import atexit
import os
import select
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState, _async_worker

from pytorchrl.agent.envs import worker_processes
from pytorchrl.agent.envs.worker_processes import WorkerSignals, how_it_ended, sendable, worker_signals
from pytorchrl.agent.global_generators import seed_process, seeds_of_processes
from storages.open_files import open_files_named

SECONDS_TO_END = 5.0
"""Time for an interrupted step to end, after which the processes are killed."""


class ProcessEnvs(AsyncVectorEnv):
    """Copies in processes of their own, whose infos are not converted to arrays, but returned by index of the copy.

    The processes may start processes themselves.

    Args:
        makers: each makes one of the copies; the first is also called in this process, for the spaces.

    Raises:
        OSError: too many files are open.
        RuntimeError: the process of a copy has ended.
    """

    def __init__(self, makers: Sequence[Callable[[], gym.Env[Any, Any]]]) -> None:
        self.processes, self.parent_pipes = [], []
        self._polls: list[Callable[[float], Any]] = []
        seeds, owner, number = seeds_of_processes(len(makers)), os.getpid(), len(makers)
        try:
            with open_files_named(f"VecEnv: {number} environments with mode='async', a process each", "take fewer"):
                # Observations are copied by the caller, since gymnasium's deep copy is slower.
                super().__init__(
                    makers,
                    copy=False,
                    # Daemonic processes may start none.
                    daemon=False,
                    worker=partial(work, seeds, worker_signals()),
                    autoreset_mode=AutoresetMode.SAME_STEP,
                )
        except BaseException:
            self.closed = True
            _end(self.processes, self.parent_pipes, owner, 0.0)
            raise
        self._finalizer = weakref.finalize(self, _end, self.processes, self.parent_pipes, owner, SECONDS_TO_END)
        # At exit, multiprocessing joins its processes, and these wait for this one; they must have ended before that.
        atexit.register(self._finalizer)
        self._owner = owner

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
        self._finalizer.detach()
        atexit.unregister(self._finalizer)
        _end(self.processes, self.parent_pipes, self._owner, 0.0 if terminate else patience)

    def _check_spaces(self) -> None:
        try:
            super()._check_spaces()  # type: ignore[no-untyped-call]
        except (EOFError, ConnectionError) as error:
            raise (self._ended() or error) from error

    def _poll_pipe_envs(self, timeout: float | None = None) -> bool:
        if timeout is not None:
            return super()._poll_pipe_envs(timeout)
        # Gymnasium would then wait for each pipe without a word.
        for env, pipe in enumerate(self.parent_pipes):
            if len(self._polls) == env:
                self._polls.append(_poll_of(pipe))
            if pipe is not None and not self._polls[env](worker_processes.SECONDS_BEFORE_WARNING):
                self._wait_for(env)
        return True

    def _wait_for(self, env: int) -> None:
        """Wait for an answer that has not come for a while, and warn."""
        doing = {AsyncState.WAITING_STEP: "step()", AsyncState.WAITING_RESET: "reset()"}.get(self._state, "a call")
        process = self.processes[env]
        awaited = f"VecEnv: environment {env} (process {process.pid}) has not returned from {doing}"
        wait_ = worker_processes.LongWait(worker_processes.SECONDS_BEFORE_WARNING)
        wait_.look(awaited)
        while not self._polls[env](wait_.seconds_left):
            wait_.look(awaited)

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


def _poll_of(pipe: Connection | None) -> Callable[[float], Any]:
    """Return a function that waits for a message on a pipe, for a number of seconds at most."""
    if pipe is None or not hasattr(select, "poll"):
        return pipe.poll if pipe is not None else bool
    # An eighth of the time of the pipe's own method, which is that of a fast environment's step.
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLIN)
    return lambda seconds: poll.poll(1_000 * seconds)


def _end(
    processes: Sequence[BaseProcess], pipes: Sequence[Connection | None], owner: int, patience: float | None
) -> None:
    """End processes, unless called in a process that was forked from their owner; None waits as long as they take."""
    if os.getpid() != owner:
        return
    for pipe in pipes:
        if pipe is not None and not pipe.closed:
            with suppress(OSError):  # its process may have ended
                pipe.send(("close", None))
    end = time.monotonic() + (patience or 0.0)
    for process in processes:
        if process.pid is None:  # it could not be started
            continue
        process.join(None if patience is None else max(0.0, end - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
    for pipe in pipes:
        if pipe is not None:
            pipe.close()


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


def raise_picklable(env: gym.Env[Any, Any]) -> None:
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
            sent = sendable(error, by_type=True)
            if sent is error:
                raise
            raise sent from error

    return call
