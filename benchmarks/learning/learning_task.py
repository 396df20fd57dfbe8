"""What is compared in learning: tasks, what is trained in them, and the pages that show what came of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytorchrl as prl
from pytorchrl.agent.preset import Preset
from storages.component.factory import Factory


@dataclass(frozen=True)
class Composition:
    """What an algorithm is trained as."""

    compose: Callable[[], Preset]
    num_envs: int = 1
    """Of training."""
    threshold: float | None = None
    """In place of the task's."""
    wrappers: tuple[Any, ...] = ()
    """Of rewards, beside the task's."""


@dataclass(frozen=True)
class Task:
    """An environment, and what is trained in it."""

    env: str
    target_steps: int
    seeds: tuple[int, ...]
    episodes: int
    """Of the evaluation at the end of each run."""
    summary: Literal["mean", "median", "interval"]
    """Of the seeds; an interval is the mean with its standard error."""
    compositions: Mapping[str, Composition]
    peers: Mapping[str, str] = field(default_factory=dict)
    """What is trained beside ours, and the package that it is of."""
    peer_module: str = ""
    """Beside this one; its ``train_peer`` trains any of them."""
    threshold: float | None = None
    """Of the summary."""
    settings: str = ""
    """What all have in common, in words."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``gymnasium.make``."""
    package: str | None = None
    """That the environment needs."""
    wrappers: tuple[Any, ...] = ()
    """Of rewards; returns are of the environment itself."""

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Ours and the peers."""
        return *self.compositions, *self.peers

    def threshold_of(self, algorithm: str) -> float | None:
        """What the summary of an algorithm is to reach."""
        composition = self.compositions.get(algorithm)
        own = None if composition is None else composition.threshold
        return self.threshold if own is None else own

    def envs(self, num_envs: int, wrappers: tuple[Any, ...] = ()) -> Factory[prl.VecEnv]:
        """Copies of the environment, with further wrappers."""
        return prl.VecEnv.create_factory(
            self.env, num_envs=num_envs, env_kwargs=self.env_kwargs, wrappers=[*self.wrappers, *wrappers]
        )


@dataclass(frozen=True)
class Page:
    """Tasks that a command runs, and a page in ``docs`` shows."""

    title: str
    script: str
    """The command, beside this file."""
    target: str
    """Of make."""
    compositions: str
    """The file with the settings, beside this one."""
    tasks: Mapping[str, Task]
