"""PFRL's persistent replay buffers: a pickle of each transition in one file, an index of them in another.

The episodic one keeps all transitions a second time, as lists of episodes.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.persistence.disk_ours import Close, Keeper, Opened
from benchmarks.storages.replay_content import Content

with contextlib.redirect_stderr(io.StringIO()):
    # It imports gym, which warns of its successor.
    from pfrl.replay_buffers import PersistentEpisodicReplayBuffer, PersistentReplayBuffer


class _Peer:
    name = "PFRL"
    promise = "all; two writes for each of them"
    opens = "in memory, unpickled: it may run code"
    opens_lazily = False
    share_of_storing = 10
    share_of_filling = 10

    def storing(self, content: Content, folder: Path) -> Callable[[], Close]:
        buffer = self._made(content, folder)
        following = _transitions(content)

        def call() -> Close:
            for transition in following:
                buffer.append(**transition)
            close: Close = buffer.memory.close
            return close

        return call

    def fill(self, content: Content, folder: Path) -> None:
        self.storing(content, folder)()()

    def opening(self, content: Content, folder: Path) -> Callable[[], Opened]:
        def call() -> Opened:
            buffer = self._made(content, folder)
            return Opened(len(buffer), lambda: None, buffer.memory.close)

        return call

    def _made(self, content: Content, folder: Path) -> Any:
        return PersistentReplayBuffer(str(folder), content.transitions)


def _transitions(content: Content) -> Iterator[dict[str, Any]]:
    """Yield all transitions as its agents append them, one environment after the other."""
    circle = [
        {
            "state": content.observation[step, env],
            "action": content.action[step, env],
            "reward": float(content.reward[step, env, 0]),
            "next_state": content.next_observation[step, env],
            "is_state_terminal": bool(content.terminated[step, env, 0]),
            "env_id": env,
        }
        for step in range(min(content.steps, len(content.observation)))
        for env in range(content.environments)
    ]
    for place in range(content.transitions):
        yield circle[place % len(circle)]


class _EpisodicPeer(_Peer):
    name = "PFRL, episodes"
    promise = "episodes that have ended; each transition twice"
    share_of_storing = 2  # so that few belong to unfinished episodes, which it does not write
    share_of_filling = 0

    def storing(self, content: Content, folder: Path) -> Callable[[], Close]:
        buffer = self._made(content, folder)
        following = _transitions(content)
        steps, environments = content.done.shape[:2]
        ends = [
            int(env) if content.done[step, env, 0] else None for step in range(steps) for env in range(environments)
        ]

        def call() -> Close:
            for transition, ended in zip(following, cycle(ends)):
                buffer.append(**transition)
                if ended is not None:
                    buffer.stop_current_episode(env_id=ended)

            def close() -> None:
                buffer.memory.close()
                buffer.episodic_memory.close()

            return close

        return call

    def _made(self, content: Content, folder: Path) -> Any:
        return PersistentEpisodicReplayBuffer(str(folder), content.transitions)


PEERS: list[Keeper] = [_Peer(), _EpisodicPeer()]
